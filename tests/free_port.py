"""A port for processes that tests start, which nobody else takes in between."""

import random
import socket
from pathlib import Path

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port():
    """A free port below those that the kernel gives to connections, which it would give away at any moment."""
    end = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 32768
    chance = random.SystemRandom()  # two processes of pytest shall not try the same ones
    while True:
        port = chance.randrange(10_000, max(end, 10_100))
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
