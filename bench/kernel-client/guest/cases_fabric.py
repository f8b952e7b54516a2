"""Cases about RDMA devices that go and return."""

import os
import threading

from harness import case, check, content, equal, equal_content

PART = 65536


class Work:
    """A thread that does a step again and again, and counts."""

    def __init__(self, step):
        self.done = 0
        self.error = None
        self._step = step
        self._moved = threading.Condition()
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._stop:
                self._step(self.done)
                with self._moved:
                    self.done += 1
                    self._moved.notify_all()
        except BaseException as error:  # the case fails with it, whatever it is
            with self._moved:
                self.error = error
                self._moved.notify_all()

    def goes_on(self, steps):
        """Waits for so many steps more."""
        with self._moved:
            goal = self.done + steps
            self._moved.wait_for(lambda: self.done >= goal or self.error)
        if self.error:
            raise self.error

    def finish(self):
        """Ends it after its current step."""
        self._stop = True
        self._thread.join()
        if self.error:
            raise self.error


def part(number):
    """What the writer writes in its step of this number."""
    return content(f"part{number}", PART)


@case(shared=True, needs="device")
def device_goes_and_returns(context):
    """The server loses its RDMA device under load and gets it back: reads and
    writes that were under way end well, and every byte is right."""
    room = 64
    written = os.path.join(context.root, "written")
    constant = os.path.join(context.root, "constant")
    data = content("constant", 700001)
    context.write(constant, data)
    file = os.open(written, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)

    def write(number):
        equal(os.pwrite(file, part(number), number % room * PART), PART, "bytes written")

    def read(_):
        equal_content(context.read(constant, os.O_DIRECT), data, "read beside the writer")

    for turn in range(2):
        writer, reader = Work(write), Work(read)
        writer.goes_on(8)
        reader.goes_on(2)
        context.control.ask("unplug")
        context.control.ask("plug")
        writer.goes_on(room + 8)
        reader.goes_on(2)
        writer.finish()
        reader.finish()
        last = {number % room: number for number in range(writer.done)}
        expected = b"".join(part(last[place]) for place in range(room))
        context.verify(written, expected, f"written across the removal {turn}", os.O_DIRECT)
    os.close(file)
    for path in (written, constant):
        os.unlink(path)
    # Linux's server says nothing of it.
    log = context.control.ask("check")["logs"].get("millraced")
    for words in ("the RDMA device was removed", "an RDMA device was added"):
        check(log is None or log.count(words) >= 2, f"`{words}` is not twice in the log:\n{log}")
