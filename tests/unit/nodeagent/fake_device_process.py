"""A child process with fake devices: `python -m tests.unit.nodeagent.fake_device_process [hang|die|raise]` serves a
back end.
"""

import sys
import time

from nodeagent.device_process import serve
from tests.fake_devices import FakeDevice, FakeDevices


class FaultyDevices(FakeDevices):
    """Hangs, dies or raises when a limit of 666 W is asked for."""

    def __init__(self, how: str) -> None:
        super().__init__([FakeDevice("g", obeys_after_s=0.0), FakeDevice("lost", lost_from_s=0.0)], lambda: 7.0)
        self.how = how

    def set_limit(self, uuid: str, limit_w: float) -> float:
        if limit_w == 666.0 and self.how == "hang":
            while True:
                time.sleep(1.0)
        if limit_w == 666.0 and self.how == "die":
            sys.exit(3)
        if limit_w == 666.0:
            raise RuntimeError("the vendor's library is unwell")
        return super().set_limit(uuid, limit_w)


if __name__ == "__main__":
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    # Readings are of 7 s and are delivered at 10 s: they are 3 s old.
    serve(lambda: FaultyDevices(how), sys.stdin.buffer, sys.stdout.buffer, lambda: 10.0)
