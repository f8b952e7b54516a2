"""NFS servers in the guest, over RDMA and TCP, steered by the host, or by the
program that holds the other end of the socket named by its number."""

import json
import subprocess
import sys
import traceback

import kernel
from control import Control
from serving import ServerError, Servers


def main():
    control = Control(*map(int, sys.argv[1:]))
    with open("/payload/parameters.json", encoding="utf-8") as file:
        parameters = json.load(file)
    servers = Servers(parameters.get("serve", parameters))
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
