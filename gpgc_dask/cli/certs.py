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

FOR = {
    "ca.pem": "for everybody: whose certificates are trusted",
    "ca-key.pem": "makes further certificates; keep it somewhere safe, no machine needs it",
    "scheduler.pem": "with scheduler-key.pem, for the scheduler",
    "worker.pem": "with worker-key.pem, for the workers",
    "client.pem": "with client-key.pem, for you",
}


def certs(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A new folder for the files.")],
    *,
    days: Annotated[int, typer.Option(min=1, help="How long they are valid.")] = 365,
    json: Json = False,
) -> None:
    """Make certificates for a Dask cluster, so that only those who hold them take part.

    Encrypts what travels, and keeps strangers out: scheduler, workers and clients show each other
    certificates of one authority, which is made along with them.
    """
    from gpgc_dask.clusters.certificates import make_certificates

    written = make_certificates(folder, days=days)
    if json:
        print_json({"files": [str(path) for path in written], "days": days})
        return
    print_out(f"[bold]{escape(folder)}[/bold]: certificates valid for {days} days")
    print_out(facts(list(FOR.items())))
