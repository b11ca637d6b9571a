"""``python -m gpgc_dask.clusters.kubernetes tls://gpgc-scheduler.gpgc.svc:8786 20``.

The first command of the driver's pod: it waits for the scheduler and its workers, and checks that
they run the same image. Certificates come from Dask's configuration.
"""

from __future__ import annotations

import sys

from gpgc_dask.clusters.kubernetes.waiting import wait_for_scheduler
from gpgc_dask.core.errors import GpgcError, exit_code


def _main() -> None:
    address, workers = sys.argv[1], int(sys.argv[2])
    try:
        found = wait_for_scheduler(address, workers)
    except GpgcError as error:
        print(f"gpgc: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
    print(f"{address} answers with {found} of {workers} workers", file=sys.stderr)


if __name__ == "__main__":
    _main()
