"""Runs the same fio jobs on mounts of several servers, one after the other."""

import json
import os
import traceback

import kernel
import realm
from control import Control
from harness import Failure, Mount, command, drop_caches

# Read and written through the whole transfer path, not from the client's memory.
COMMON = ("--direct=1", "--ioengine=libaio", "--fallocate=none", "--randrepeat=1",
          "--time_based", "--output-format=json", "--group_reporting", "--thread")
WARMING = "2"


def fio(path, job, size, seconds):
    """The rate of one job: operations and bytes a second, and latencies in microseconds."""
    output = command(
        "fio", "--name=job", f"--filename={path}", f"--size={size}", f"--rw={job['kind']}",
        f"--bs={job['block']}", f"--iodepth={job['depth']}", f"--runtime={seconds}",
        f"--ramp_time={WARMING}", *COMMON)
    # Warnings may come before it.
    told = json.loads(output[output.index("{"):])["jobs"][0]
    side = told["read" if "read" in job["kind"] else "write"]
    middle = side["clat_ns"]["percentile"]
    return {"operations": side["iops"], "bytes": side["bw_bytes"],
            "median": middle["50.000000"] / 1000, "tail": middle["99.000000"] / 1000}


def main():
    control = Control()
    with open("/payload/parameters.json", encoding="utf-8") as file:
        parameters = json.load(file)
    mounts = {}
    try:
        if "kerberos" in parameters:
            realm.join_as_client(parameters["kerberos"])
        for name, server in parameters["servers"].items():
            mounts[name] = Mount(server, "/scratch", f"/mnt/{name}", extra=parameters["options"])
            mounts[name].mount()
            shown = [one for one in mounts[name].shown() if one[:6] in ("rsize=", "wsize=")]
            control.send("mounted", server=name, options=",".join(shown))
            path = os.path.join(mounts[name].point, "file")
            command("dd", "if=/dev/zero", f"of={path}", "bs=1M", "oflag=direct",
                    f"count={parameters['size']}")
        names = list(mounts)
        for turn in range(parameters["rounds"]):
            for job in parameters["jobs"]:
                # Who is first changes from round to round.
                for name in names if turn % 2 == 0 else reversed(names):
                    drop_caches()
                    path = os.path.join(mounts[name].point, "file")
                    rates = fio(path, job, f"{parameters['size']}M", parameters["seconds"])
                    control.send("rates", server=name, job=job["name"], round=turn, **rates)
        for mount in mounts.values():
            mount.unmount()
    except (Failure, OSError, ValueError, KeyError):
        control.send("failed", detail=traceback.format_exc(), kernel=kernel.log())
        return
    control.send("end", complaints=kernel.complaints())


main()
