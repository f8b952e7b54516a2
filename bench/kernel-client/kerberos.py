"""A Kerberos realm of a run's own: a KDC on the loopback interface, principals and keytabs."""

import grp
import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path

import machine

REALM = "MILLRACE.TEST"
SERVER = "server.test"
# Another server in the same guest: each has port 2049 at an address of its own.
SECOND = "second.test"
CLIENT = "client.test"
FLAVORS = ("krb5", "krb5i", "krb5p")
# rpc.gssd makes its contexts at this port of the server, whatever the mount's options say.
NFS_PORT = 2049
# Users that have tickets, and how long these live. The server asks this machine for them.
USERS = {"daemon": "1 hour", "bin": "1 hour", "lp": "1 hour", "mail": "1 hour", "games": "1 minute"}
# The domain of owners by name, not in the case that clients use. With names, users and groups have
# other numbers in the guest.
DOMAIN = "Names.Millrace.test"
ABOVE = 7000
PACKAGES = {"krb5kdc": "krb5-kdc", "kadmin.local": "krb5-admin-server"}
START_LIMIT = 60.0
# This machine, as its guests see it.
OUTSIDE = "10.0.2.2"
# As in guest/serving.py.
SECOND_ADDRESS = "10.9.0.101"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


class KerberosError(Exception):
    """The realm could not be made."""


def client_configuration(kdc):
    """krb5.conf of a machine that reaches the KDC at this address. No DNS is asked."""
    return f"""[libdefaults]
 default_realm = {REALM}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
[realms]
 {REALM} = {{
  kdc = {kdc}
 }}
[domain_realm]
 .test = {REALM}
"""


# What cases may ask of a realm.
ORDERS = ("stop_kdc", "start_kdc")


class Realm:
    """The realm, from `start` to `stop`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._port = machine.free_port()
        self._process = None

    def _environment(self):
        return dict(os.environ, PATH=PATH, KRB5_CONFIG=str(self.folder / "krb5.conf"),
                    KRB5_KDC_PROFILE=str(self.folder / "kdc.conf"))

    def _call(self, *command):
        done = subprocess.run(command, env=self._environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        # kadmin.local ends with 0 whatever happened.
        if done.returncode or "rror" in done.stdout:
            raise KerberosError(f"`{' '.join(command)}` ended with {done.returncode}: "
                                f"{done.stdout.strip()}")

    def _kadmin(self, query):
        self._call("kadmin.local", "-r", REALM, "-q", query)

    def start(self):
        """Makes the principals and their keytabs, and starts the KDC."""
        lacking = [package for program, package in PACKAGES.items()
                   if not shutil.which(program, path=PATH)]
        if lacking:
            raise KerberosError("Kerberos programs are missing: apt-get install "
                                "--no-install-recommends " + " ".join(lacking))
        self.folder.mkdir(parents=True, mode=0o700)
        place, address = self.folder, f"127.0.0.1:{self._port}"
        (place / "krb5.conf").write_text(client_configuration(address), encoding="utf-8")
        (place / "guest.conf").write_text(client_configuration(f"{OUTSIDE}:{self._port}"),
                                          encoding="utf-8")
        (place / "kdc.conf").write_text(f"""[kdcdefaults]
 kdc_listen = {address}
 kdc_tcp_listen = {address}
[realms]
 {REALM} = {{
  database_name = {place}/principal
  key_stash_file = {place}/stash
  acl_file = {place}/acl
  supported_enctypes = aes256-cts-hmac-sha384-192:normal aes256-cts-hmac-sha1-96:normal
 }}
[logging]
 kdc = FILE:{place}/kdc.log
""", encoding="utf-8")
        (place / "acl").touch()
        self._call("kdb5_util", "-P", "master", "create", "-s", "-r", REALM)
        for name, keytab in ((f"nfs/{SERVER}", "nfs"), (f"nfs/{SECOND}", "nfs"),
                             (f"host/{CLIENT}", "host")):
            self._kadmin(f"addprinc -randkey {name}")
            self._kadmin(f"ktadd -k {place}/{keytab}.keytab {name}")
        for user, life in USERS.items():
            self._kadmin(f'addprinc -randkey -maxlife "{life}" {user}')
            self._kadmin(f"ktadd -k {place}/users.keytab {user}")
        self._serve()

    def _serve(self):
        """Starts the KDC and waits until it answers."""
        self._process = subprocess.Popen(["krb5kdc", "-n", "-r", REALM], env=self._environment(),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        limit = time.monotonic() + START_LIMIT
        while not machine.accepts_connections(self._port):
            if self._process.poll() is not None or time.monotonic() > limit:
                raise KerberosError(f"the KDC did not start: see {self.folder}/kdc.log")
            time.sleep(0.1)

    def stop(self):
        """Ends the KDC."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def obey(self, order):
        """Stops or starts the KDC. Its tickets and keys stay valid."""
        self.stop()
        if order == "start_kdc":
            self._serve()
        return {}

    def settings(self, folder=None):
        """A line of millraced.yaml. Root of the guest is its machine's principal."""
        return f"gss: {{ keytab: '{folder or self.folder}/nfs.keytab', machine: root }}"

    def ticket(self, user):
        """The environment of a program that has a ticket of a user."""
        environment = dict(self._environment(), KRB5CCNAME=f"FILE:{self.folder}/tickets")
        subprocess.run(["kinit", "-k", "-t", self.folder / "users.keytab", user], env=environment,
                       stdin=subprocess.DEVNULL, check=True)
        return environment

    def files(self, names=("guest.conf", "host.keytab", "users.keytab")):
        """What the clients' guest is given, or one of other files, with the names there."""
        return [(self.folder / name, name) for name in names]

    def server_files(self):
        """What the servers' guest is given."""
        return self.files(("guest.conf", "nfs.keytab"))

    def told(self, has_names, address=OUTSIDE):
        """The clients' guest's parameters. Owners have names in version 4; the server is at this
        address."""
        above = ABOVE if has_names else 0
        users = {name: pwd.getpwnam(name).pw_uid + above for name in USERS}
        groups = {name: grp.getgrnam(name).gr_gid + above for name in USERS}
        return {"hosts": {SERVER: address, SECOND: SECOND_ADDRESS, CLIENT: "10.0.2.15"},
                "client": CLIENT, "users": users, "groups": groups, "domain": DOMAIN.lower()}

    def server_told(self, security, address):
        """The servers' guest's parameters, with the numbers of this machine."""
        return self.told(False, address) | {"domain": DOMAIN, "security": security,
                                            "address": address,
                                            "settings": self.settings("/payload/files")}
