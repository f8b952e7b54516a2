"""What millraced keeps files in: memory, a folder, or a file system in a loop image."""

import os
import shutil
import subprocess
import time
from pathlib import Path

# Sparse: only what is written takes space here. Every one of these has room for
# two journals and what the cases write.
IMAGE_BYTES = 3 << 30

MAKE = {"ext4": ["mkfs.ext4", "-q", "-F", "-m", "0"], "xfs": ["mkfs.xfs", "-q", "-f"]}
PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


class StoreError(Exception):
    """There is no such store here."""


def call(*command):
    """Runs a command that must succeed."""
    done = subprocess.run(command, env=dict(os.environ, PATH=PATH), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise StoreError(f"`{' '.join(map(str, command))}` ended with {done.returncode}: "
                         f"{done.stdout.strip()}")


def make_image(kind, path):
    """A file with an empty file system in it."""
    if not shutil.which(MAKE[kind][0], path=PATH):
        raise StoreError(f"there is no {MAKE[kind][0]}: apt-get install {PACKAGES[kind]}")
    with open(path, "wb") as file:
        file.truncate(IMAGE_BYTES)
    call(*MAKE[kind], path)


class LoopImage:
    """A file system of its own, made for the run and thrown away after it."""

    def __init__(self, kind, folder):
        self.kind = kind
        self.path = Path(folder) / f"image.{kind}"
        self.point = Path(folder) / f"mounted.{kind}"
        self._mounted = False

    def open(self):
        """Makes and mounts it; the folder where it is."""
        if os.geteuid() != 0:
            raise StoreError("--image mounts a loop image, which only root may do")
        make_image(self.kind, self.path)
        self.point.mkdir()
        call("mount", "-o", "loop", self.path, self.point)
        self._mounted = True
        return self.point

    def close(self):
        """Unmounts and deletes it. A server that was killed may hold it for a moment."""
        for _ in range(100):
            if not self._mounted:
                break
            try:
                call("umount", self.point)
                self._mounted = False
            except StoreError:
                time.sleep(0.1)
        else:
            if self._mounted:
                call("umount", "-l", self.point)
        self.path.unlink(missing_ok=True)


class Memory:
    """Stores that are gone with the process."""

    survives = False
    keeps_locks = False

    def open(self):
        """Nothing to make."""

    def text(self, export, size):
        """The store of an export, as the configuration has it."""
        return f"{{ kind: memory, size: {size} }}"

    def close(self):
        """Nothing to remove."""


class Posix:
    """Folders of this machine, below `root` or on an image of their own."""

    survives = True
    # Locks of a process end with it.
    keeps_locks = False

    def __init__(self, folder, root=None, image=None, keys=()):
        self._image = LoopImage(image, folder) if image else None
        self._root = Path(root) if root else None
        self._keys = list(keys)
        self._exports = None

    def open(self):
        """Makes the image, if there is to be one, and a folder for the exports."""
        below = self._image.open() if self._image else self._root
        self._exports = below / f"millrace-exports.{os.getpid()}"
        self._exports.mkdir()

    def text(self, export, _size):
        """The store of an export, as the configuration has it; its folder is made."""
        folder = self._exports / export.strip("/").replace("/", ".")
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o1777)
        more = "".join(f", {key}" for key in self._keys)
        return f"{{ kind: posix, root: '{folder}'{more} }}"

    def close(self):
        """Removes all that was made."""
        if self._exports and not self._image:
            shutil.rmtree(self._exports, ignore_errors=True)
        if self._image:
            self._image.close()


class Ceph(Posix):
    """Directories of a CephFS file system, which is mounted at `root`, too."""

    # Until the cluster ends the session.
    keeps_locks = True

    def __init__(self, folder, root, conf, user):
        super().__init__(folder, root)
        self._conf, self._user = conf, user

    def text(self, export, size):
        """The store of an export, as the configuration has it; its directory is made."""
        super().text(export, size)
        name = export.strip("/").replace("/", ".")
        return (f"{{ kind: ceph, conf: '{self._conf}', user: {self._user}, "
                f"root: '/{self._exports.name}/{name}', delegations: true }}")


class Shared:
    """A store that several servers open and close."""

    def __init__(self, store):
        self._store = store
        self._is_open = False
        self.survives = store.survives

    def open(self):
        """Opens it for the first of them."""
        if not self._is_open:
            self._store.open()
            self._is_open = True

    def text(self, export, size):
        """The store of an export, as the configuration has it."""
        return self._store.text(export, size)

    def close(self):
        """Nothing: others may use it."""

    def finish(self):
        """Closes it after the last of them."""
        if self._is_open:
            self._store.close()
