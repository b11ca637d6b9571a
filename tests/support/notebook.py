"""A real Jupyter kernel that runs cells as a notebook does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty

from jupyter_client import KernelManager

ROOT = Path(__file__).parents[2]


@dataclass
class Cell:
    """Output of a cell so far.

    shown : (display_id, {mime type: text}) of displayed objects, in the order in which they were
        displayed or replaced
    """

    stdout: str = ""
    stderr: str = ""
    error: str | None = None
    shown: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        return [bundle["text/plain"] for _, bundle in self.shown]

    def add(self, kind: str, content: dict) -> None:
        if kind == "stream":
            setattr(self, content["name"], getattr(self, content["name"]) + content["text"])
        elif kind == "error":
            self.error = content["ename"]
        elif kind in ("display_data", "update_display_data"):
            self.shown.append((content["transient"].get("display_id"), content["data"]))


class Notebook:
    """A kernel with its runtime files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager()
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager.kernel_spec.argv = command
        folders = {"IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder)}
        self.manager.start_kernel(cwd=ROOT, env=os.environ | folders)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(
        self, code: str, *, interrupt: Callable[[Cell], bool] | None = None, seconds: float = 120
    ) -> Cell:
        """Run a cell; interrupt the kernel once, as soon as ``interrupt(cell)`` is true."""
        # By default the kernel drops requests that arrive just after a cell that failed.
        sent = self.client.execute(code, stop_on_error=False)
        cell, deadline = Cell(), time.monotonic() + seconds
        while time.monotonic() < deadline:
            if interrupt is not None and interrupt(cell):
                interrupt = None
                self.manager.interrupt_kernel()
            try:
                message = self.client.get_iopub_msg(timeout=0.02)
            except Empty:
                continue
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return cell
            cell.add(kind, content)
        raise TimeoutError(f"the cell did not end: {cell}")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
