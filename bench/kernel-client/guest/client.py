"""Runs the cases on a mount and reports each to the host."""

import fnmatch
import json
import os
import shutil
import socket
import subprocess
import sys

import cases_clients
import cases_data
import cases_fabric
import cases_kerberos
import cases_locks
import cases_mount
import cases_names
import cases_programs
import cases_unaligned
import cases_version2
import harness
import kernel
import realm
from control import Control

# The order in which they run: those that change the mount come last.
MODULES = (
    cases_data, cases_unaligned, cases_locks, cases_version2, cases_names, cases_programs,
    cases_kerberos, cases_mount, cases_fabric, cases_clients,
)


def chosen(parameters):
    """The cases to run, in order."""
    patterns = parameters["cases"]
    capabilities = parameters["capabilities"]
    order = [module.__name__ for module in MODULES]
    cases = sorted(harness.CASES, key=lambda one: order.index(one.body.__module__))
    # What is about the mount itself would not bear other clients beside it.
    alone = parameters["clients"] == 1
    return [
        one
        for one in cases
        if (one.needs in capabilities if one.needs else alone or not one.shared)
        and any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)
    ]


def run_case(one, context):
    """The outcome of one case, and of tidying up after it."""
    if one.shared:
        return harness.run_isolated(lambda: one.body(context))
    context.folder = os.path.join(context.root, f"case.{one.name}.{context.number}")

    def body():
        os.mkdir(context.folder)
        one.body(context)

    text = harness.run_isolated(body)
    if text == "ok":
        text = harness.run_isolated(lambda: tidy(context.folder))
    else:
        harness.run_isolated(lambda: shutil.rmtree(context.folder, ignore_errors=True))
    context.folder = None
    return text


def tidy(folder):
    """Removes a case's folder; that it can be removed is part of the case."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise harness.Failure(f"cannot remove what the case made: {error}") from error


class NextDoor:
    """The host's place where the servers run in this guest. They have a process
    of their own, as cases come and go in theirs."""

    def __init__(self, control):
        self.send = control.send
        ours, theirs = socket.socketpair()
        self._socket = ours
        subprocess.Popen([sys.executable, "/payload/server.py", str(theirs.fileno())],
                         pass_fds=[theirs.fileno()])
        theirs.close()
        self._control = Control(ours.fileno())
        self._answer("start")

    def ask(self, what):
        """Has the servers do it; what they found out."""
        self._control.order(what)
        return self._answer(what)

    def _answer(self, what):
        answer = self._control.receive()
        if not answer or answer["event"] != "done":
            raise RuntimeError(f"could not {what}: {answer and answer['detail']}")
        return answer


def main():
    control = Control()
    with open("/payload/parameters.json", encoding="utf-8") as file:
        parameters = json.load(file)
    # By their names version 4 tells clients from each other.
    socket.sethostname(parameters["name"])
    if "serve" in parameters:
        control = NextDoor(control)
    if "kerberos" in parameters:
        realm.join_as_client(parameters["kerberos"])
    mounted = harness.Mount(parameters["server"], parameters["export"], "/mnt/rdma",
                            extra=parameters["options"])
    context = harness.Context(mounted, control, parameters)
    todo = chosen(parameters)
    last = [harness.Case("unmount", lambda context: context.mounted.unmount())]
    control.send("plan", cases=["mount"] + [one.name for one in todo + last])

    text = harness.run_isolated(lambda: cases_mount.mount(context), limit=180)
    if text != "ok" and "serve" in parameters:
        logs = control.ask("check")["logs"]
        text += "".join(f"\n{name} said:\n{log}" for name, log in logs.items())
    control.send("case", name="mount", outcome=text)
    if text != "ok":
        control.send("end", kernel=kernel.log())
        return
    for one in todo:
        control.send("case", name=one.name, outcome=run_case(one, context))
    for one in last:
        text = harness.run_isolated(lambda one=one: one.body(context))
        control.send("case", name=one.name, outcome=text)
    control.send("end", kernel=kernel.log())


main()
