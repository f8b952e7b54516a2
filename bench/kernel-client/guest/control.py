"""The guest's end of the control line: one JSON object per line on ttyS1."""

import json
import os
import termios
import threading
import tty


class Control:
    """Sends events to the host and asks it for things."""

    def __init__(self, path="/dev/ttyS1"):
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._descriptor)
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self._reader = os.fdopen(os.dup(self._descriptor), "r", encoding="utf-8")
        self._lock = threading.Lock()

    def send(self, event, **fields):
        """Tells the host of an event."""
        line = json.dumps({"event": event, **fields}) + "\n"
        data = line.encode()
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
