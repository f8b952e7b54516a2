"""The guest's end of the control line: one JSON object per line, on ttyS1 or a socket."""

import json
import os
import termios
import threading
import tty


class Control:
    """Sends events to the host and asks it for things; with a descriptor, to
    and from who holds the other end of that socket."""

    def __init__(self, descriptor=None):
        if descriptor is None:
            descriptor = os.open("/dev/ttyS1", os.O_RDWR | os.O_NOCTTY)
            tty.setraw(descriptor)
            termios.tcflush(descriptor, termios.TCIFLUSH)
        self._descriptor = descriptor
        self._reader = os.fdopen(os.dup(self._descriptor), "r", encoding="utf-8")
        self._lock = threading.Lock()

    def send(self, event, **fields):
        """Tells the host of an event."""
        self._write({"event": event, **fields})

    def order(self, what):
        """Tells a server what to do."""
        self._write({"do": what})

    def _write(self, message):
        data = (json.dumps(message) + "\n").encode()
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]

    def receive(self):
        """The host's next message; None when the host is gone."""
        line = self._reader.readline()
        return json.loads(line) if line else None

    def ask(self, what, **fields):
        """Asks the host for something and waits until it is done."""
        self.send("ask", what=what, **fields)
        answer = self.receive()
        if not answer or not answer.get("done"):
            raise RuntimeError(f"the host could not do this: {what}: {answer}")
        return answer
