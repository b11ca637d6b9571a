"""Ctrl-C at a known point of the program, however fast or slow the machine is."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

DRIVER = """
import signal
import sys
import threading
from importlib import import_module
from itertools import count
from pathlib import Path

from gpgc_dask.cli import main


def block_after(module, owner, method, number, mark):
    kind = getattr(import_module(module), owner)
    original, calls = getattr(kind, method), count(1)

    def blocking(*arguments, **options):
        result = original(*arguments, **options)
        if next(calls) == number:
            Path(mark).touch()
            threading.Event().wait()
        return result

    setattr(kind, method, blocking)


if __name__ == "__main__":
    module, owner, method, number, mark, *words = sys.argv[1:]
    # A shell that starts the tests in the background has them ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    block_after(module, owner, method, int(number), mark)
    main(words)
"""


def interrupt_after(
    folder: Path, place: str, words: list[object], call: int = 1
) -> tuple[int, str]:
    """(exit code, stderr) of the program, interrupted right after a call of a method.

    place : "module:Class.method", which blocks after its ``call``-th call until the signal comes
    """
    script, mark = folder / "driver.py", folder / "reached"
    script.write_text(DRIVER)
    module, _, name = place.partition(":")
    command = [sys.executable, script, module, *name.split("."), call, mark, *words]
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not mark.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    return process.returncode, err
