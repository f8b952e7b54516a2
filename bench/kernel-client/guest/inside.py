"""Runs one program in the guest and hands its output to the host as it comes."""

import json
import os
import signal
import subprocess
import threading
import traceback

import kernel
from control import Control
from serving import ServerError, Servers

FILES = "/payload/files"


def pump(control, name, stream):
    """Sends what the program prints; every byte has a character of its own."""
    while data := os.read(stream.fileno(), 16384):
        control.send("output", stream=name, text=data.decode("latin-1"))


def run(control, parameters):
    """Runs the program to its end; its status, as the shell counts it."""
    os.makedirs(FILES, exist_ok=True)
    environment = dict(os.environ, PATH=f"{FILES}:{os.environ['PATH']}")
    environment.update(parameters["environment"])
    try:
        process = subprocess.Popen(
            parameters["command"], cwd=FILES, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
    except OSError as error:
        control.send("output", stream="stderr", text=f"in-guest: {error}\n")
        return 127
    pumps = [
        threading.Thread(target=pump, args=(control, name, stream), daemon=True)
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr))
    ]
    for thread in pumps:
        thread.start()
    status = process.wait()
    # What it left running would hold the pipes open.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    for thread in pumps:
        thread.join(10)
    return status if status >= 0 else 128 - status


def finish(control, servers):
    """Ends the servers: they must have lived, and end in order."""
    try:
        servers.obey("stop")
    except (OSError, subprocess.SubprocessError, ServerError) as error:
        control.send("output", stream="stderr", text=f"in-guest: {error}\n")
        return 1
    return 0


def main():
    control = Control()
    with open("/payload/parameters.json", encoding="utf-8") as file:
        parameters = json.load(file)
    if "serve" in parameters:
        servers = Servers(parameters["serve"])
        try:
            servers.obey("start")
        except (OSError, subprocess.SubprocessError, ServerError):
            control.send("failed", detail=traceback.format_exc())
            return
    status = run(control, parameters)
    if "serve" in parameters:
        status = status or finish(control, servers)
    control.send("exit", status=status, complaints=kernel.complaints())


main()
