"""Ports for servers whose address must be known before they start."""

from __future__ import annotations

import itertools
import os
import socket

FIRST, LAST = 20_000, 32_000
"""Below the ports that Linux gives to clients, so that no connection takes one meanwhile."""

_next = itertools.count(FIRST + os.getpid() * 97 % (LAST - FIRST))


def free_ports(n: int) -> list[int]:
    """Return n ports of the loopback interface that are free, and not returned before."""
    ports: list[int] = []
    while len(ports) < n:
        port = FIRST + (next(_next) - FIRST) % (LAST - FIRST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
    return ports
