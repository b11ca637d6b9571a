"""Inject 200 faults of all kinds into fits on real processes, and compare the results.

Scheduler, workers and driver are processes of their own that talk TLS; the driver is ``gpgc fit
--resume``, started again whenever it has died.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import Section, parser

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from gpgc_dask import load  # noqa: E402
from tests.support.processes import Processes  # noqa: E402
from tests.support.superpixels import write_dataset  # noqa: E402

BOUND = 1e-6
"""Largest accepted difference from the undisturbed fit, in nats per row."""

MAX_STARTS = 50
"""Number of starts after which a fit counts as failed."""


class Injector:
    """Inject faults of random kinds, one at a time."""

    def __init__(self, processes: Processes, rng: random.Random) -> None:
        self.processes, self.rng = processes, rng
        self.driver: subprocess.Popen | None = None
        self.done: Counter[str] = Counter()
        self.kinds: dict[str, tuple[float, Callable[[], bool]]] = {
            "worker killed": (0.4, self._kill_worker),
            "worker stopped for 1 to 8 s": (0.15, self._stop_worker),
            "worker out of memory": (0.1, self._starve_worker),
            "scheduler killed, and all workers with it": (0.1, self._kill_scheduler),
            "driver killed": (0.25, self._kill_driver),
        }

    def inject(self) -> None:
        names = list(self.kinds)
        (name,) = self.rng.choices(names, [self.kinds[each][0] for each in names])
        if self.kinds[name][1]():
            self.done[name] += 1

    def _signal(self, number: int) -> int | None:
        pids = self.processes.worker_pids()
        if not pids:
            return None
        pid = self.rng.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return pid
        return None

    def _kill_worker(self) -> bool:
        return self._signal(signal.SIGKILL) is not None

    def _stop_worker(self) -> bool:
        pid = self._signal(signal.SIGSTOP)
        if pid is None:
            return False
        threading.Timer(self.rng.uniform(1, 8), wake, [pid]).start()
        return True

    def _starve_worker(self) -> bool:
        before = set(self.processes.worker_pids())
        with contextlib.suppress(Exception), self.processes.connect() as client:
            workers = list(client.nthreads())
            if workers:
                client.submit(eat, workers=[self.rng.choice(workers)], pure=False, priority=100)
                time.sleep(4)
        return set(self.processes.worker_pids()) != before

    def _kill_scheduler(self) -> bool:
        self.processes.stop()
        time.sleep(self.rng.uniform(0, 2))
        self.processes.start()
        return True

    def _kill_driver(self) -> bool:
        if self.driver is None or self.driver.poll() is not None:
            return False
        self.driver.kill()
        return True


def wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def eat() -> int:
    """Exceed the memory limit of the worker that runs this."""
    eaten = []
    for _ in range(40):
        eaten.append(np.ones(int(1e8 / 8)))
        time.sleep(0.02)
    return len(eaten)


def run_fit(command: list[str], injector: Injector, faults: int) -> int:
    """Run a fit to its end with up to ``faults`` faults in total; return the number of starts."""
    starts = 0
    while True:
        starts += 1
        injector.driver = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        errors = threading.Thread(target=injector.driver.stderr.read)
        errors.start()
        while injector.driver.poll() is None:
            time.sleep(injector.rng.uniform(0.5, 5.0))
            if injector.driver.poll() is None and injector.done.total() < faults:
                injector.inject()
        errors.join()
        if injector.driver.returncode == 0 or starts > MAX_STARTS:
            return starts


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__, "fault-tolerance.md")
    n, k, images, faults = (4_000, 48, 60, 2) if args.smoke else (150_000, 512, 1_000, 200)
    seed = random.randrange(2**32)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        data = write_dataset(folder / "data.zarr", n, k, images)
        fit = [sys.executable, "-m", "gpgc_dask", "fit", str(data), "--redundancy", "1.0"]
        whole = folder / "whole.zarr"
        subprocess.run([*fit, "-o", str(whole), "--json"], check=True, capture_output=True)
        undisturbed = load(whole)
        deviations, starts, lost = [], 0, 0
        with Processes(folder) as processes:
            injector = Injector(processes, random.Random(seed))
            target = folder / "model.zarr"
            command = [*fit, "-o", str(target), "--resume", "--scheduler", processes.address]
            command += [*processes.tls_options(), "--json"]
            while injector.done.total() < faults:
                started = run_fit(command, injector, faults)
                starts += started
                if started > MAX_STARTS or not load(target).converged_:
                    lost += 1
                    break
                away = load(target).log_evidence_ - undisturbed.log_evidence_
                deviations.append(abs(away) / n)
                shutil.rmtree(target)
                if not args.smoke:
                    progress = f"{injector.done.total()} faults, {len(deviations)} fits"
                    print(
                        f"{progress}, largest difference {max(deviations):.1e} nats per row",
                        file=sys.stderr,
                    )
    minutes = (time.monotonic() - start) / 60
    section.add(
        f"{n:,} × {k} float32, {images:,} images, c = 1, a scheduler and two workers over TLS; "
        f"seed {seed}; {minutes:.0f} minutes."
    )
    section.table(["fault", "times"], sorted(injector.done.items()))
    wrong = sum(deviation > BOUND for deviation in deviations)
    section.table(
        ["", ""],
        [
            ("faults", injector.done.total()),
            ("fits started", starts),
            ("fits completed", len(deviations)),
            ("fits failed", lost),
            ("fits more than 1e-6 nats per row from the undisturbed fit", wrong),
            ("largest difference, nats per row", f"{max(deviations):.1e}"),
        ],
    )
    section.finish()
    if wrong or lost:
        sys.exit("a fit failed")


if __name__ == "__main__":
    main()
