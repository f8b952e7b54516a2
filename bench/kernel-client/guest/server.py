"""NFS servers in the guest, over RDMA and TCP, steered by the host."""

import json
import subprocess
import traceback

import kernel
from control import Control
from serving import ServerError, Servers


def main():
    control = Control()
    with open("/payload/parameters.json", encoding="utf-8") as file:
        servers = Servers(json.load(file))
    order = {"do": "start"}
    while order and order["do"] != "poweroff":
        try:
            control.send("done", **servers.obey(order["do"]))
        except (OSError, subprocess.SubprocessError):
            control.send("failed", detail=traceback.format_exc(), kernel=kernel.log())
        except ServerError as error:
            control.send("failed", detail=str(error), kernel=kernel.log())
        order = control.receive()


main()
