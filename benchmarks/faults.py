"""Fits under fire: 200 faults of all kinds against real processes, and what became of the results.

Scheduler, workers and driver are processes of their own that talk TLS; the driver is ``gpgc fit
--resume``, begun again whenever it has died.
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
"""Nats a row that a fit may end from the undisturbed one."""

MOST_STARTS = 50
"""A fit that was begun so often and is not done is lost."""


class Fire:
    """Faults of a random kind, one at a time."""

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

    def strike(self) -> None:
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
    """Runs on a worker, beyond what it may have."""
    eaten = []
    for _ in range(40):
        eaten.append(np.ones(int(1e8 / 8)))
        time.sleep(0.02)
    return len(eaten)


def one_fit(command: list[str], fire: Fire, faults: int) -> int:
    """A fit from beginning to end, under fire until so many faults; how often it was begun."""
    starts = 0
    while True:
        starts += 1
        fire.driver = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        complaint = threading.Thread(target=fire.driver.stderr.read)
        complaint.start()
        while fire.driver.poll() is None:
            time.sleep(fire.rng.uniform(0.5, 5.0))
            if fire.driver.poll() is None and fire.done.total() < faults:
                fire.strike()
        complaint.join()
        if fire.driver.returncode == 0 or starts > MOST_STARTS:
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
            fire = Fire(processes, random.Random(seed))
            target = folder / "model.zarr"
            command = [*fit, "-o", str(target), "--resume", "--scheduler", processes.address]
            command += [*processes.tls_options(), "--json"]
            while fire.done.total() < faults:
                begun = one_fit(command, fire, faults)
                starts += begun
                if begun > MOST_STARTS or not load(target).converged_:
                    lost += 1
                    break
                away = load(target).log_evidence_ - undisturbed.log_evidence_
                deviations.append(abs(away) / n)
                shutil.rmtree(target)
                if not args.smoke:
                    told = f"{fire.done.total()} faults, {len(deviations)} fits"
                    print(f"{told}, worst {max(deviations):.1e} nats a row", file=sys.stderr)
    minutes = (time.monotonic() - start) / 60
    section.say(
        f"{n:,} × {k} float32, {images:,} images, c = 1, a scheduler and two workers over TLS; "
        f"seed {seed}; {minutes:.0f} minutes."
    )
    section.table(["fault", "times"], sorted(fire.done.items()))
    wrong = sum(deviation > BOUND for deviation in deviations)
    section.table(
        ["", ""],
        [
            ("faults", fire.done.total()),
            ("fits begun", starts),
            ("fits ended", len(deviations)),
            ("fits lost", lost),
            ("fits further than 1e-6 nats a row from the undisturbed one", wrong),
            ("the furthest, nats a row", f"{max(deviations):.1e}"),
        ],
    )
    section.finish()
    if wrong or lost:
        sys.exit("a fit went wrong")


if __name__ == "__main__":
    main()
