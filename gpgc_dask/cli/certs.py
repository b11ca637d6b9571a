"""``gpgc certs``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from gpgc_dask.cli.console import facts, print_json, print_out
from gpgc_dask.cli.options import Json

__all__ = ["EXAMPLE", "certs"]

EXAMPLE = (
    "Examples:\n\n"
    "gpgc certs tls/\n\n"
    "dask scheduler --protocol tls --tls-ca-file tls/ca.pem --tls-cert tls/scheduler.pem "
    "--tls-key tls/scheduler-key.pem\n\n"
    "dask worker tls://host:8786 --tls-ca-file tls/ca.pem --tls-cert tls/worker.pem "
    "--tls-key tls/worker-key.pem\n\n"
    "gpgc fit horses.zarr -o model.zarr --scheduler tls://host:8786 --tls-ca tls/ca.pem "
    "--tls-cert tls/client.pem --tls-key tls/client-key.pem"
)

PURPOSES = {
    "ca.pem": "for every machine: certificates of this authority are trusted",
    "ca-key.pem": "signs further certificates; keep it in a safe place, no machine needs it",
    "scheduler.pem": "with scheduler-key.pem, for the scheduler",
    "worker.pem": "with worker-key.pem, for the workers",
    "client.pem": "with client-key.pem, for you",
}


def certs(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="New folder for the files.")],
    *,
    days: Annotated[
        int, typer.Option(min=1, help="Number of days for which the certificates are valid.")
    ] = 365,
    json: Json = False,
) -> None:
    """Create certificates for a Dask cluster, to encrypt it and to keep others out.

    Scheduler, workers and clients accept only connections with a certificate of the same authority,
    which is created, too.
    """
    from gpgc_dask.clusters.certificates import make_certificates

    written = make_certificates(folder, days=days)
    if json:
        print_json({"files": [str(path) for path in written], "days": days})
        return
    print_out(f"[bold]{escape(folder)}[/bold]: certificates valid for {days} days")
    print_out(facts(list(PURPOSES.items())))
