"""Tables of measured figures, and what they were measured on."""

import os
import platform
import subprocess
from pathlib import Path


def table(header, rows):
    """In Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def machine():
    """The machine, as text."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Linux {platform.release()}"


def checked_out():
    """The revision of the programs, if they are of this checkout."""
    done = subprocess.run(["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"],
                          stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip()
