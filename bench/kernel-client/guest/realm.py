"""This guest as a member of a Kerberos realm."""

import os
import shutil
import subprocess

FILES = "/payload/files"
# A user and a group that the server's machine does not have.
UNKNOWN = "only-in-the-guest"


def append(path, lines):
    """Adds lines to a file."""
    with open(path, "a", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in lines)


def join(told):
    """Where the realm and its machines are, and its users."""
    append("/etc/hosts", (f"{address} {name}" for name, address in told["hosts"].items()))
    shutil.copy(f"{FILES}/guest.conf", "/etc/krb5.conf")
    append("/etc/passwd", (f"{name}:x:{user}:{told['groups'][name]}::/:/bin/sh"
                           for name, user in told["users"].items()))
    append("/etc/group", (f"{name}:x:{group}:" for name, group in told["groups"].items()))


def join_as_client(told):
    """Names, keys, and the daemon that makes contexts."""
    join(told)
    subprocess.run(["busybox", "hostname", told["client"]], check=True)
    shutil.copy(f"{FILES}/host.keytab", "/etc/krb5.keytab")
    append("/etc/passwd", [f"{UNKNOWN}:x:7999:7999::/:/bin/sh"])
    append("/etc/group", [f"{UNKNOWN}:x:7999:"])
    name_owners(told)
    start_daemon("rpc.gssd", "-p", "/run/rpc_pipefs")


def serve_contexts(told):
    """What Linux's own server needs: the daemons that accept contexts and know owners' names."""
    name_owners(told)
    shutil.copy(f"{FILES}/nfs.keytab", "/etc/krb5.keytab")
    # -n: with any key of the keytab.
    start_daemon("rpc.svcgssd", "-n")
    subprocess.run(["rpc.idmapd", "-S", "-p", "/run/rpc_pipefs"], check=True)


def name_owners(told):
    """The domain of owners by name."""
    with open("/etc/idmapd.conf", "w", encoding="ascii") as idmap:
        idmap.write(f"[General]\nDomain = {told['domain'].lower()}\n"
                    "[Mapping]\nNobody-User = nobody\nNobody-Group = nogroup\n"
                    "[Translation]\nMethod = nsswitch\n")


def start_daemon(*command):
    """Starts a daemon of the kernel's contexts. It goes to the background by itself."""
    subprocess.run(["modprobe", "-a", "cts", "auth_rpcgss", "rpcsec_gss_krb5"], check=True)
    os.makedirs("/run/rpc_pipefs", exist_ok=True)
    subprocess.run(["mount", "-t", "rpc_pipefs", "rpc_pipefs", "/run/rpc_pipefs"], check=True)
    subprocess.run(command, check=True)
