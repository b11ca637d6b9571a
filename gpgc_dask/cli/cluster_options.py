"""Options for where a command runs, the same for every command that has them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gpgc_dask.cli.options import check_choice, check_output
from gpgc_dask.clusters.registry import CLUSTERS

if TYPE_CHECKING:
    from gpgc_dask.clusters.tls import TlsFiles

__all__ = ["on_cluster"]

CLUSTER, PODS = "Where it runs", "Pods of --cluster kubernetes"


def _option(kind: Any, help_text: str, *names: str, panel: str = CLUSTER, **settings: Any) -> Any:
    """An option of a panel; its default is None."""
    return Annotated[kind, typer.Option(*names, help=help_text, rich_help_panel=panel, **settings)]


POD_OPTIONS: dict[str, Any] = {
    "image": _option(
        str | None,
        "Container image, with a tag or a digest; see deploy/README.md.",
        panel=PODS,
    ),
    "threads": _option(
        int | None,
        "Threads per worker, one core each. Default: what fits on a node.",
        panel=PODS,
        min=1,
    ),
    "name": _option(
        str | None,
        "Name of the DaskCluster. Default: a new one, such as gpgc-1f9c2a07.",
        panel=PODS,
    ),
    "namespace": _option(str | None, "Namespace of the pods. Default: gpgc.", panel=PODS),
    "tls_secret": _option(
        str | None, "Secret with the files of gpgc certs. Default: gpgc-tls.", panel=PODS
    ),
    "tls": _option(
        bool | None,
        "Encrypt all connections between pods, or none. Default: all.",
        "--tls/--no-tls",
        panel=PODS,
    ),
    "store_secret": _option(
        str | None,
        "Secret with the environment variables of the object store; '' for none. Default: "
        "gpgc-store.",
        panel=PODS,
    ),
    "pull_secret": _option(str | None, "Secret with which the image is pulled.", panel=PODS),
    "service_account": _option(
        str | None, "Service account that has an identity at the object store.", panel=PODS
    ),
}

OPTIONS: dict[str, Any] = {
    "workers": _option(int | None, "Number of workers: processes on this machine, or pods.", min=1),
    "min_workers": _option(
        int | None,
        "Let the number of workers follow the work, down to this many (1 by default).",
        min=1,
    ),
    "max_workers": _option(
        int | None,
        "Let the number of workers follow the work, up to this many (--workers by default).",
        min=1,
    ),
    "memory_limit": _option(
        str | None, "Memory per worker, such as 4GB; gpgc plan shows how much a fit needs."
    ),
    "cluster": _option(
        str | None,
        f"Kind of cluster to start: {', '.join(CLUSTERS)}. Default: local.",
        metavar="KIND",
    ),
    "scheduler": _option(
        str | None,
        "Address of a Dask scheduler that is running already, such as tcp://host:8786 or "
        "tls://host:8786.",
    ),
    "tls_ca": _option(
        str | None, "Certificate of the authority to trust: ca.pem, as gpgc certs makes it."
    ),
    "tls_cert": _option(
        str | None,
        "Certificate of this program: client.pem for tls://, worker.pem for --workers.",
    ),
    "tls_key": _option(str | None, "Private key of that certificate."),
    "performance_report": _option(
        str | None,
        "Write a page that shows what the workers did and when, as Dask's dashboard does.",
        metavar="FILE.html",
    ),
    **POD_OPTIONS,
}


def on_cluster(
    *, only: tuple[str, ...] = tuple(OPTIONS), always: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options, in place of its parameter ``client``.

    The command receives a context that opens a client. Without any of these options it is one of
    processes on this machine or, unless ``always``, None.
    """

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*arguments: Any, **options: Any) -> None:
            where = {name: options.pop(name, None) for name in OPTIONS}
            page = where.pop("performance_report")
            client = _client(always=always, **where)
            command(*arguments, **options, client=_reporting(client, page) if page else client)

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
    cluster: str | None,
    scheduler: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    **others: Any,
) -> AbstractContextManager[Any] | None:
    """A context that opens a client; ``others``: options of pods, number and memory of workers."""
    pods = {name: others.pop(name) for name in POD_OPTIONS}
    given = {name: value for name, value in pods.items() if value is not None}
    size = others
    for name, value in (*size.items(), ("cluster", cluster), *given.items()):
        check_choice(**{name: value is not None, "scheduler": scheduler})
    if given and cluster in (None, "local"):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise typer.BadParameter(f"{names}: for --cluster kubernetes only; add it")
    if cluster is not None and cluster not in CLUSTERS:
        names = ", ".join(CLUSTERS)
        raise typer.BadParameter(f"{cluster!r} is not one of {names}", param_hint="--cluster")
    if not (always or cluster or scheduler or any(size.values())):
        return None
    from gpgc_dask.clusters.connect import connect

    return connect(
        scheduler or cluster or "local",
        **size,
        tls=_tls(tls_ca, tls_cert, tls_key),
        settings=_settings(**given),
    )


def _settings(*, tls: bool | None = None, **given: Any) -> dict[str, Any]:
    """Fields of the settings of pods."""
    if "store_secret" in given:
        given["store_secret"] = given["store_secret"] or None
    return given if tls in (None, True) else given | {"tls_secret": None}


def _reporting(
    client: AbstractContextManager[Any] | None, page: str
) -> AbstractContextManager[Any]:
    """The client's context, at whose end Dask's performance report is written to ``page``."""
    if client is None:
        raise typer.BadParameter(
            "--performance-report describes the work of a cluster, and without one this command "
            "runs on threads of its own: add --workers"
        )
    check_output(page)
    from gpgc_dask.clusters.performance import with_performance_report

    return with_performance_report(client, page)


def _tls(ca: str | None, cert: str | None, key: str | None) -> TlsFiles | None:
    files = {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}
    missing = [name for name, value in files.items() if value is None]
    if len(missing) == 3:
        return None
    if ca is None or cert is None or key is None:
        raise typer.BadParameter(f"{' and '.join(missing)} missing: the three belong together")
    from gpgc_dask.clusters.tls import TlsFiles

    return TlsFiles(ca, cert, key)
