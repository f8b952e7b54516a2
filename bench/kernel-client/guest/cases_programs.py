"""Programs from elsewhere that exercise a file system, where the run brings them."""

import os
import subprocess

from harness import Failure, case

FILES = "/payload/files"

# Seconds; the programs are long at work in an emulated machine.
LIMIT = 390


def program(name, *arguments, folder):
    """Runs one to its end; its status and what it printed."""
    os.chmod(os.path.join(FILES, name), 0o755)
    done = subprocess.run([os.path.join(FILES, name), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", cwd=folder,
                          timeout=LIMIT, check=False)
    return done.returncode, done.stdout


@case(needs="fsx")
def fsx(context):
    """Random reads, writes, truncations and mappings of one file, each compared with memory."""
    for seed in ("1", "2"):
        status, said = program("fsx", "-N", "1500", "-S", seed, context.path("exercised"),
                               folder=context.folder)
        if status:
            raise Failure(f"seed {seed}: status {status}: {said[-3000:]}")
