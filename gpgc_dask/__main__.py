"""``python -m gpgc_dask``: the program ``gpgc``."""

from __future__ import annotations

import sys

__all__ = ["run"]


def run() -> None:
    """The program; Ctrl-C while it is still being loaded ends it without a word, too."""
    try:
        from gpgc_dask.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    main()


if __name__ == "__main__":
    run()
