"""Linux's own NFS server in the guest, over RDMA and TCP, steered by the host."""

import json
import os
import subprocess
import traceback

from control import Control

RDMA_PORT = 20049
MOUNT_PORT = 20048
THREADS = 8


def call(*command):
    """Runs a command that must succeed."""
    print("server:", *command, flush=True)
    subprocess.run(command, check=True)


def start_nfsd():
    call("rpc.nfsd", f"--rdma={RDMA_PORT}", str(THREADS))


def restart():
    """What a client sees as a server that went away and came back."""
    call("rpc.nfsd", "0")
    start_nfsd()


def prepare_exports(exports):
    """Each export is a folder of the scratch disk, an ext4 file system."""
    call("modprobe", "nfsd")
    call("mount", "-t", "ext4", "-o", "noatime", "/dev/vdc", "/mnt")
    call("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    with open("/etc/exports", "w", encoding="utf-8") as table:
        for number, options in enumerate(exports, start=1):
            folder = "/mnt" + options["path"]
            os.makedirs(folder)
            os.chmod(folder, 0o1777)
            os.makedirs(options["path"], exist_ok=True)
            call("mount", "--bind", folder, options["path"])
            table.write(
                f"{options['path']} *({options['options']},insecure,no_subtree_check,"
                f"fsid={number})\n"
            )


def start_services():
    os.makedirs("/run/rpcbind", exist_ok=True)
    call("rpcbind", "-w")
    call("exportfs", "-ra")
    call("rpc.mountd", "--port", str(MOUNT_PORT))
    start_nfsd()


def main():
    control = Control()
    with open("/payload/parameters.json", encoding="utf-8") as file:
        parameters = json.load(file)
    try:
        prepare_exports(parameters["exports"])
        start_services()
    except (OSError, subprocess.SubprocessError):
        control.send("failed", detail=traceback.format_exc())
        return
    control.send("ready")
    while message := control.receive():
        if message["do"] == "poweroff":
            break
        try:
            if message["do"] == "restart":
                restart()
            control.send("done")
        except (OSError, subprocess.SubprocessError):
            control.send("failed", detail=traceback.format_exc())


main()
