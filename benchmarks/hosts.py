"""Three hosts made of network namespaces: a fit over TLS, one host cut off midway.

Needs root and iproute2 (``ip``). Nothing leaves the machine: the hosts share a bridge of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from common import Section, parser

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.processes import Processes  # noqa: E402
from tests.support.superpixels import write_dataset  # noqa: E402

HOSTS = {f"10.77.0.{number}": f"gpgc-host{number}" for number in (1, 2, 3)}
BRIDGE = "gpgc-bridge"


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


def why_not() -> str | None:
    """What keeps this machine from being three."""
    if not shutil.which("ip"):
        return "iproute2 is not installed"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    try:
        ip("netns", "add", "gpgc-try")
    except subprocess.CalledProcessError as error:
        return f"no network namespace can be made: {error.stderr.strip()}"
    ip("netns", "delete", "gpgc-try")
    return None


@contextlib.contextmanager
def network() -> Iterator[None]:
    """A bridge in a namespace of its own, with a host at each of its ports."""
    hub = f"{BRIDGE}-ns"
    try:
        ip("netns", "add", hub)
        ip("-n", hub, "link", "add", BRIDGE, "type", "bridge")
        ip("-n", hub, "link", "set", BRIDGE, "up")
        for address, host in HOSTS.items():
            port = port_of(address)
            ip("netns", "add", host)
            ip(
                "-n",
                hub,
                "link",
                "add",
                port,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                host,
            )
            ip("-n", hub, "link", "set", port, "master", BRIDGE, "up")
            ip("-n", host, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield
    finally:
        for host in (*HOSTS.values(), hub):
            ip("netns", "delete", host, check=False)


def port_of(address: str) -> str:
    return f"port{address.rsplit('.', 1)[1]}"


def cut_off(address: str) -> None:
    """Disconnect a host from the network."""
    ip("-n", f"{BRIDGE}-ns", "link", "set", port_of(address), "down")


def within(host: str) -> list[str]:
    return ["ip", "netns", "exec", HOSTS[host]]


def main() -> None:
    args = parser(__doc__).parse_args()
    section = Section(args, __file__, "fault-tolerance.md")
    reason = why_not()
    if reason is not None:
        print(f"not run: {reason}")
        return
    n, k, images = (20_000, 128, 200) if args.smoke else (300_000, 512, 2_000)
    first, *others = HOSTS
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, network():
        folder = Path(name)
        data = write_dataset(folder / "data.zarr", n, k, images)
        fit = [sys.executable, "-m", "gpgc_dask", "fit", str(data), "--redundancy", "1.0", "--json"]
        done = subprocess.run(
            [*fit, "-o", str(folder / "whole.zarr")], check=True, capture_output=True
        )
        whole = json.loads(done.stdout)
        with Processes(folder, hosts=list(HOSTS), within=within) as processes:
            target = folder / "model.zarr"
            command = [*within(first), *fit, "-o", str(target), "--scheduler", processes.address]
            checkpoint = folder / "model.zarr.unfinished.npz"
            start = time.monotonic()
            driver = subprocess.Popen(
                [*command, *processes.tls_options()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            was_cut: list[str] = []
            given = (driver, checkpoint, others[-1], was_cut)
            cut = threading.Thread(target=cut_after, args=given)
            cut.start()
            out, err = driver.communicate(timeout=600)
            cut.join()
            seconds = time.monotonic() - start
        if driver.returncode:
            sys.exit(f"the fit failed: {err}")
        if not was_cut:
            sys.exit("the fit was done before a host could be disconnected")
    found = json.loads(out)
    away = abs(found["log_evidence"] - whole["log_evidence"]) / n
    section.add(
        f"{n:,} × {k} float32, {images:,} images: a scheduler and the driver on one host, a worker "
        "on each of two others, TLS between them. After the first read of the data one worker's "
        "host was disconnected permanently."
    )
    section.table(
        ["", ""],
        [
            ("converged", "yes" if found["converged"] else "no"),
            ("nats per row from the undisturbed fit", f"{away:.1e}"),
            ("reads", found["reads"]),
            ("seconds", f"{seconds:.0f}"),
        ],
    )
    section.finish()
    if away > 1e-6 or not found["converged"]:
        sys.exit("the fit failed")


def cut_after(driver: subprocess.Popen, checkpoint: Path, address: str, was_cut: list[str]) -> None:
    """Disconnect a host as soon as the first checkpoint exists."""
    while driver.poll() is None:
        if checkpoint.exists():
            cut_off(address)
            was_cut.append(address)
            return
        time.sleep(0.01)


if __name__ == "__main__":
    main()
