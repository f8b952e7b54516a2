"""Servers that run inside guests, on software RDMA devices."""

import threading

import kerberos
import machine
import servers
import stores

# The segment's interface in every guest, and eth0 where all is in one.
SEGMENT_INTERFACE = "eth1"
OWN_ADDRESS = "10.0.2.15"
PORTS = {
    "knfsd": {"rdma_port": 20049, "nfs_port": 2049, "mount_port": 20048},
    "millraced": {"rdma_port": 20050, "nfs_port": 2050, "mount_port": 2050},
}
MEMORY = 2048


# The file system of folders in guests: their kernel brings no other along.
FILE_SYSTEM = "ext4"


def serving(kinds, device, *, address, provider="verbs", listen="any", store_keys=None,
            rdma_port=None):
    """What a guest is told that runs these servers on such a device at the address.

    millraced listens on that one, bound to its device, or on any, at this port if one is given;
    Linux's server knows only the latter. With `store_keys` (a list) the exports are folders of a
    scratch disk."""
    interface = "eth0" if address == OWN_ADDRESS else SEGMENT_INTERFACE
    stored = {} if store_keys is None else {"disk": FILE_SYSTEM, "store_keys": store_keys}
    return stored | {
        "servers": list(kinds),
        "provider": provider,
        "address": address if listen == "own" else "0.0.0.0",
        "rdma_port": rdma_port or PORTS["millraced"]["rdma_port"],
        "devices": [[f"{device}0", device, interface]],
    }


def scratch(folder, store_keys):
    """The disk of the folders, if there are to be some; it goes with the run's folder."""
    if store_keys is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    disk = folder / f"scratch.{FILE_SYSTEM}"
    stores.make_image(FILE_SYSTEM, disk)
    return disk


def files(kinds, program):
    """What the guest of these servers must bring along."""
    return [(program.resolve(), "millraced")] if "millraced" in kinds else []


class Across:
    """Servers in a guest of their own; clients reach it over a segment."""

    can_restart = True
    can_be_killed = False

    def __init__(self, images, folder, kinds, device, *, program=None, provider="verbs",
                 listen="any", capture=None, store_keys=None, rdma_port=None,
                 realm=None, security="sys"):
        self.segment = machine.free_segment()
        self.host = machine.segment_address(1)
        self.ports = {kind: PORTS[kind] for kind in kinds}
        vars(self).update(PORTS[kinds[0]])
        self.rdma_port = rdma_port or self.rdma_port
        told = serving(kinds, device, address=self.host, provider=provider, listen=listen,
                       store_keys=store_keys, rdma_port=rdma_port)
        brought = files(kinds, program)
        self.realm = realm
        if realm:
            self.nfs_port = self.mount_port = kerberos.NFS_PORT
            told["kerberos"] = realm.server_told(security, self.host)
            brought += realm.server_files()
        self.guest = machine.Guest(
            images, folder, "server", told,
            memory=MEMORY, scratch=scratch(folder, store_keys), devices=(f"{device}:{SEGMENT_INTERFACE}",),
            files=brought, segment=self.segment, number=1, capture=capture,
        )
        self._lock = threading.Lock()

    def start(self):
        """Boots the guest and waits until it serves."""
        if self.realm:
            self.realm.start()
        self.guest.boot()

    def obey(self, order):
        """Has the servers' guest do something, or the realm; what it found out."""
        if order in kerberos.ORDERS:
            return self.realm.obey(order)
        with self._lock:
            return self.guest.do(order)

    def problem(self):
        """How a server ended, if one did by itself."""
        if not self.guest.alive():
            return f"the servers' guest ended\n{self.guest.tail()}"
        try:
            self.obey("check")
        except machine.GuestError as error:
            return str(error)
        return None

    def said(self):
        """The ends of the servers' logs."""
        try:
            logs = self.obey("check")["logs"]
        except machine.GuestError as error:
            return str(error)
        return "\n".join(line for log in logs.values() for line in log.splitlines()[-40:])

    def stop(self):
        """Ends the machine: what it stored is lost."""
        self.guest.stop()
        if self.realm:
            self.realm.stop()


class NextDoor:
    """Servers in the client's own guest: the client starts and steers them."""

    can_restart = True
    can_be_killed = False
    host = OWN_ADDRESS

    def __init__(self, folder, kind, device, *, program=None, provider="verbs", listen="any",
                 store_keys=None):
        vars(self).update(PORTS[kind])
        self.serve = serving([kind], device, address=self.host, provider=provider,
                             listen=listen, store_keys=store_keys)
        self.scratch = scratch(folder, store_keys)
        self.files = files([kind], program)

    def start(self):
        """The client's business."""

    def obey(self, order):
        """The client's business, so nobody asks for it here."""
        raise servers.ServerError(f"nobody to ask for {order}")

    def problem(self):
        """The client would tell."""
        return None

    def said(self):
        """The client tells it where it cannot mount."""
        return ""

    def stop(self):
        """It ends with the client's machine."""
