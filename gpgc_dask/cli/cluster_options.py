"""Where a command runs: the options that say so, the same for every command that has them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gpgc_dask.cli.options import check_choice, check_output

if TYPE_CHECKING:
    from gpgc_dask.clusters.connect import TlsFiles

__all__ = ["on_cluster"]

CLUSTER = "Where it runs"

OPTIONS: dict[str, Any] = {
    "workers": Annotated[
        int | None,
        typer.Option(min=1, help="Processes on this machine, or pods.", rich_help_panel=CLUSTER),
    ],
    "most_workers": Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Let the number of workers follow the work, up to this many.",
            rich_help_panel=CLUSTER,
        ),
    ],
    "memory_limit": Annotated[
        str | None,
        typer.Option(
            help="Memory of each worker, as 4GB; gpgc plan says how much it takes.",
            rich_help_panel=CLUSTER,
        ),
    ],
    "scheduler": Annotated[
        str | None,
        typer.Option(
            help="A running Dask scheduler, as tcp://host:8786 or tls://host:8786.",
            rich_help_panel=CLUSTER,
        ),
    ],
    "kubernetes": Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="Start pods of this image with dask-kubernetes, see deploy/README.md.",
            rich_help_panel=CLUSTER,
        ),
    ],
    "tls_ca": Annotated[
        str | None,
        typer.Option(
            help="Certificate of who is trusted, as gpgc certs makes it: ca.pem.",
            rich_help_panel=CLUSTER,
        ),
    ],
    "tls_cert": Annotated[
        str | None,
        typer.Option(
            help="Our own: client.pem for tls://, worker.pem for --workers.",
            rich_help_panel=CLUSTER,
        ),
    ],
    "tls_key": Annotated[
        str | None, typer.Option(help="The key of that certificate.", rich_help_panel=CLUSTER)
    ],
    "performance_report": Annotated[
        str | None,
        typer.Option(
            metavar="FILE.html",
            help="Write what the workers did and when, as Dask's dashboard shows it, to a page.",
            rich_help_panel=CLUSTER,
        ),
    ],
}


def on_cluster(
    *, only: tuple[str, ...] = tuple(OPTIONS), always: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options, in the place of its parameter ``client``.

    The command gets a context with a client there: of processes on this machine where nobody asked
    for anything, or, unless ``always``, None.
    """

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*arguments: Any, **given: Any) -> None:
            where = {name: given.pop(name, None) for name in OPTIONS}
            page = where.pop("performance_report")
            client = _client(always=always, **where)
            command(*arguments, **given, client=_reported(client, page) if page else client)

        hints = get_type_hints(command, include_extras=True)
        signature = inspect.signature(command)
        parameters = [
            each.replace(annotation=hints[name])
            for name, each in signature.parameters.items()
            if name != "client"
        ] + [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OPTIONS[name]
            )
            for name in only
        ]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return with_options


def _client(
    *,
    always: bool,
    workers: int | None,
    most_workers: int | None,
    memory_limit: str | None,
    scheduler: str | None,
    kubernetes: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
) -> AbstractContextManager[Any] | None:
    check_choice(scheduler=scheduler, kubernetes=kubernetes)
    for name, value in (
        ("workers", workers),
        ("most_workers", most_workers),
        ("memory_limit", memory_limit),
    ):
        check_choice(**{name: value, "scheduler": scheduler})
    if not (always or workers or most_workers or memory_limit or scheduler or kubernetes):
        return None
    from gpgc_dask.clusters.connect import connect

    return connect(
        scheduler or ("kubernetes" if kubernetes else "local"),
        workers=workers,
        most_workers=most_workers,
        memory_limit=memory_limit,
        tls=_tls(tls_ca, tls_cert, tls_key),
        kubernetes={"image": kubernetes},
    )


def _reported(client: AbstractContextManager[Any] | None, page: str) -> AbstractContextManager[Any]:
    """The client's context; when it ends, what happened on the cluster is written to ``page``."""
    if client is None:
        raise typer.BadParameter(
            "--performance-report tells of a cluster, and without one this runs on threads of its "
            "own: add --workers"
        )
    check_output(page)
    from gpgc_dask.clusters.connect import reported

    return reported(client, page)


def _tls(ca: str | None, cert: str | None, key: str | None) -> TlsFiles | None:
    given = {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 3:
        return None
    if ca is None or cert is None or key is None:
        raise typer.BadParameter(f"{' and '.join(missing)} missing: the three go together")
    from gpgc_dask.clusters.connect import TlsFiles

    return TlsFiles(ca, cert, key)
