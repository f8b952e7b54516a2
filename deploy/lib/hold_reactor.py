"""Holds a reactor of a running millraced still, as a debugger would, until its process is gone.

Usage: hold_reactor.py PROCESS

PROCESS is a number on this host. Prints `held NAME` once it is; needs the rights of a debugger.
"""

import ctypes
import os
import sys
from pathlib import Path

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
WALL = 0x40000000


def reactor_of(process):
    """The thread of the first reactor, and its name."""
    for task in sorted(Path(f"/proc/{process}/task").iterdir()):
        name = (task / "comm").read_text().strip()
        if name.startswith("reactor-"):
            return int(task.name), name
    raise SystemExit(f"process {process} has no reactor")


def main():
    """Holds it."""
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        raise SystemExit(__doc__)
    thread, name = reactor_of(int(sys.argv[1]))
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    library.ptrace.restype = ctypes.c_long
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if library.ptrace(request, thread, None, None) != 0:
            error = ctypes.get_errno()
            raise SystemExit(f"cannot hold {name}: {os.strerror(error)}")
    while True:
        _, status = os.waitpid(thread, WALL)
        if os.WIFSTOPPED(status):
            print(f"held {name}", flush=True)
        else:
            # Killed: the manager has given up on it.
            return


main()
