"""Where a server's time goes under a load, by perf (linux-perf).

Samples of the processor's clock are counted by function, and the functions by kind: copies and the
rest, in the kernel and in the server.
"""

import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

KINDS = ("kernel: copies", "kernel: rest", "server: copies", "server: rest")
COPIES = re.compile(r"copy_(to|from)_iter|copy_user|clear_page|memcpy|memmove|copies::|copy_from_slice")
# Functions of the server that are named.
NAMED = 4


def absent():
    """Why there is no profile, if there is none."""
    if not shutil.which("perf"):
        return "perf is not installed (linux-perf)"
    tried = subprocess.run(["perf", "record", "--quiet", "--event", "cpu-clock", "--output", "/dev/null", "true"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if tried.returncode:
        return f"perf records nothing here: {(tried.stderr.strip().splitlines() or ['no message'])[-1]}"
    return None


def kind_of(is_kernel, function):
    """One of KINDS."""
    side = "kernel" if is_kernel else "server"
    return f"{side}: {'copies' if COPIES.search(function) else 'rest'}"


def short(function):
    """The last two parts of a path, without what is in angle brackets."""
    while (plain := re.sub(r"<[^<>]*>", "", function)) != function:
        function = plain
    parts = [part for part in function.split("::") if part and not part.startswith("{")]
    return "::".join(parts[-2:])


def shares(samples):
    """Shares of the kinds, and the largest functions of the server with theirs; of (dso, function)."""
    kinds, functions = Counter(), Counter()
    for dso, function in samples:
        is_kernel = dso.startswith("[kernel")
        kinds[kind_of(is_kernel, function)] += 1
        if not is_kernel:
            functions[short(function)] += 1
    total = sum(kinds.values()) or 1
    return ({kind: kinds[kind] / total for kind in KINDS},
            [(name, count / total) for name, count in functions.most_common(NAMED)])


def of_process(process, seconds):
    """The samples of a process over this time, as (dso, function)."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "perf.data")
        subprocess.run(["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "2000", "--pid",
                        str(process), "--output", data, "--", "sleep", str(seconds)],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        done = subprocess.run(["perf", "script", "--input", data, "--fields", "ip,sym,dso"],
                              check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    samples = []
    for line in done.stdout.splitlines():
        # Address, function and (file).
        found = re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line)
        if found:
            samples.append((found[2], found[1]))
    return samples


def of_load(process, load, seconds):
    """Shares while a load runs, and what it printed: a started process that lasts for two seconds longer at
    least.

    Fails if the load does, as the profile would be that of an idle server.
    """
    try:
        time.sleep(1)  # Its connection, and its file.
        samples = of_process(process, seconds)
    finally:
        said, _ = load.communicate()
    if load.returncode:
        raise subprocess.CalledProcessError(load.returncode, load.args)
    return shares(samples), said
