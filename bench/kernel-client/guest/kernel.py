"""What the guest's kernel said."""

import subprocess

COMPLAINTS = ("BUG", "WARNING", "Call Trace", "Oops", "general protection", "blocked for more than")
SUBJECTS = ("siw", "rxe", "rpcrdma", "nfs", "rdma", "RPC", "infiniband")


def lines():
    """The kernel's log."""
    done = subprocess.run(["dmesg"], stdout=subprocess.PIPE, text=True, errors="replace",
                          check=False)
    return done.stdout.splitlines()


def log():
    """What the kernel said of RDMA and NFS, and all that it complained of."""
    words = SUBJECTS + COMPLAINTS
    return [line for line in lines() if any(word in line for word in words)][-60:]


def complaints():
    """Where the kernel found itself wrong, with what follows: empty on a good day."""
    said = lines()
    found = [at for at, line in enumerate(said) if any(word in line for word in COMPLAINTS)]
    return said[found[0]:][:60] if found else []
