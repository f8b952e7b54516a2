"""Runs the cases on a mount and reports each to the host."""

import fnmatch
import json
import os
import shutil

import cases_data
import cases_mount
import cases_names
import harness
import kernel
from control import Control

# The order in which they run: those that change the mount come last.
MODULES = (cases_data, cases_names, cases_mount)


def chosen(parameters):
    """The cases to run, in order."""
    patterns = parameters["cases"]
    capabilities = parameters["capabilities"]
    order = [module.__name__ for module in MODULES]
    cases = sorted(harness.CASES, key=lambda one: order.index(one.body.__module__))
    return [
        one
        for one in cases
        if (not one.needs or one.needs in capabilities)
        and any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)
    ]


def run_case(one, context):
    """The outcome of one case, and of tidying up after it."""
    if one.shared:
        return harness.run_isolated(lambda: one.body(context))
    context.folder = os.path.join(context.root, "case." + one.name)

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


def main():
    control = Control()
    with open("/payload/parameters.json", encoding="utf-8") as file:
        parameters = json.load(file)
    mounted = harness.Mount(parameters["server"], parameters["export"], "/mnt/rdma")
    context = harness.Context(mounted, control, parameters)
    todo = chosen(parameters)
    last = [harness.Case("unmount", lambda context: context.mounted.unmount())]
    control.send("plan", cases=["mount"] + [one.name for one in todo + last])

    text = harness.run_isolated(lambda: cases_mount.mount(context), limit=180)
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
