"""The cost of a fit, and of what surrounds it, before it runs."""

from __future__ import annotations

from dataclasses import dataclass

from gpgc_dask.core.display import render_card
from gpgc_dask.core.text import bytes_text
from gpgc_dask.gp.solvers.redundancy import MIN_GROUPS_FOR_REDUNDANCY
from gpgc_dask.planning.cost import count_products, estimate_seconds, network_bytes
from gpgc_dask.planning.machine import Machine
from gpgc_dask.planning.memory import USABLE_SHARE, driver_bytes, process_bytes
from gpgc_dask.planning.resources import Resources
from gpgc_dask.planning.shape import Shape
from gpgc_dask.planning.stages import Stage
from gpgc_dask.planning.sweeps import Sweeps, expected_rounds, expected_sweeps

__all__ = ["Plan", "duration", "plan"]


@dataclass(frozen=True)
class Plan:
    """The cost of a fit.

    Attributes
    ----------
    shape : Shape
        Sizes of the data.
    resources : Resources
        Workers, threads and memory.
    machine : Machine
        Speed of a core.
    sweeps : Sweeps
        Typical reads of the data, by kind.
    worker_bytes : int
        Peak memory of a worker, the Python process included.
    driver_bytes : int
        Peak memory of the driver, the Python process included.
    network_bytes : int
        Bytes sent between workers and driver in all sweeps, without reads from the store.
    bytes_read : int
        Bytes read from the store, decoded.
    products : float
        Multiply-adds over the rows.
    seconds : float
        Wall time of the fit and its second look.
    second_look_seconds : float, default 0.0
        The part of it that is the second look.
    stages : tuple of Stage
        What comes before and after the fit: ingest and review, if there are images.
    """

    shape: Shape
    resources: Resources
    machine: Machine
    sweeps: Sweeps
    worker_bytes: int
    driver_bytes: int
    network_bytes: int
    bytes_read: int
    products: float
    seconds: float
    second_look_seconds: float = 0.0
    stages: tuple[Stage, ...] = ()

    @property
    def reads(self) -> float:
        """Typical number of reads of the data."""
        return self.sweeps.reads

    @property
    def fits(self) -> bool:
        """Whether the memory of a worker is enough, as far as it is known."""
        memory = self.resources.memory_limit
        return memory is None or self.worker_bytes <= USABLE_SHARE * memory

    @property
    def facts(self) -> list[tuple[str, str]]:
        """(name, value) pairs as text, for display."""
        s, r = self.shape, self.resources
        memory = "unknown" if r.memory_limit is None else bytes_text(r.memory_limit)
        verdict = "fits" if self.fits else "DOES NOT FIT"
        speed = self.machine.products_per_second / 1e9
        return [
            (
                "data",
                f"{s.n_rows:,} rows × {s.n_features:,} features, {s.n_groups:,} groups"
                f" ({'adjacent' if s.adjacent else 'scattered'}), blocks of {s.block_rows:,} rows",
            ),
            ("reads of X", f"{self.reads:.3g} ({bytes_text(self.bytes_read)})"),
            ("multiply-adds", f"{self.products:.3g}"),
            ("memory per worker", f"{bytes_text(self.worker_bytes)} of {memory}: {verdict}"),
            ("memory of driver", bytes_text(self.driver_bytes)),
            ("network", f"{bytes_text(self.network_bytes)} between workers and driver"),
            (
                "time",
                f"{duration(self.seconds)} on {r.workers} worker(s) of {r.threads} thread(s) at "
                f"{speed:.0f} G multiply-adds/s per thread ({self.machine.name})",
            ),
            *self._parts,
        ]

    @property
    def _parts(self) -> list[tuple[str, str]]:
        """Facts of the second look, and of what surrounds the fit."""
        second = self.second_look_seconds
        look = [("second look", f"{duration(second)} of it")] if second else []
        return look + [
            (stage.name, f"{duration(stage.seconds)}, {bytes_text(stage.worker_bytes)} per worker")
            for stage in self.stages
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:<19}{value}" for name, value in self.facts)

    def _repr_html_(self) -> str:
        return render_card("plan", self)


def duration(seconds: float) -> str:
    """A duration as text: 45 s, 12 min, 3.4 h."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plan(
    shape: Shape,
    *,
    estimate_redundancy: bool,
    separable: bool,
    resources: Resources,
    machine: Machine | None = None,
    rounds: int = 0,
) -> Plan:
    """Project memory, reads, arithmetic, traffic and time of a fit.

    Parameters
    ----------
    shape : Shape
        Sizes of the data.
    estimate_redundancy : bool
        Whether the fit estimates the redundancy.
    separable : bool
        Whether each group has a noise variance of its own.
    resources : Resources
        Workers, threads and memory.
    machine : Machine, optional
        Speed of a core. By default one small product is timed on this machine.
    rounds : int, default 0
        Rounds of the second look.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from gpgc_dask.planning.plan import plan
    >>> from gpgc_dask.planning.resources import Resources
    >>> from gpgc_dask.planning.shape import Shape
    >>> cost = plan(
    ...     Shape.from_images(111_668, features=489),
    ...     estimate_redundancy=True,
    ...     separable=True,
    ...     resources=Resources.detect(is_dask=True, workers=4, memory_limit="8GB"),
    ... )
    >>> cost.fits, round(cost.reads)
    (True, 4)
    """
    machine = machine or Machine.measure(shape.product_bytes)
    estimate = estimate_redundancy and shape.n_groups >= MIN_GROUPS_FOR_REDUNDANCY
    rounds = expected_rounds(shape, rounds)

    def seconds(sweeps: Sweeps, network: int) -> float:
        return estimate_seconds(
            shape, resources, machine, sweeps, network, estimate_redundancy=estimate
        )

    def traffic(sweeps: Sweeps) -> int:
        return network_bytes(shape, resources, sweeps, estimate_redundancy=estimate)

    sweeps, first = (
        expected_sweeps(shape, estimate_redundancy=estimate, separable=separable, rounds=each)
        for each in (rounds, 0)
    )
    worker = process_bytes(shape, resources, estimate_redundancy=estimate, rounds=rounds)
    network = traffic(sweeps)
    taken = seconds(sweeps, network)
    return Plan(
        shape=shape,
        resources=resources,
        machine=machine,
        sweeps=sweeps,
        worker_bytes=worker,
        driver_bytes=driver_bytes(shape, rounds=rounds) if resources.separate else worker,
        network_bytes=network,
        bytes_read=int(sweeps.reads * shape.n_rows * shape.n_features * shape.stored_bytes),
        products=count_products(shape, sweeps, estimate_redundancy=estimate),
        seconds=taken,
        second_look_seconds=taken - seconds(first, traffic(first)) if rounds else 0.0,
    )
