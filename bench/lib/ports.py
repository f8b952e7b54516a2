"""Ports for servers that are started here."""

import contextlib
import socket


def free_ports(count):
    """Free TCP ports of loopback."""
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
