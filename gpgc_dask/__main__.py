"""``python -m gpgc_dask`` is ``gpgc``."""

from gpgc_dask.cli import main

if __name__ == "__main__":
    main()
