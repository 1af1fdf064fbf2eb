"""Fake devices for a child process, which may hang, die or raise."""

import sys
import time

from tests.fake_devices import FakeDevice, FakeDevices

AGE_S = 3.0
"""Of its readings, when they are delivered."""


class FaultyDevices(FakeDevices):
    """Hangs, dies or raises when a limit of 666 W is asked for."""

    def __init__(self, how: str = "") -> None:
        devices = [FakeDevice("g", obeys_after_s=0.0), FakeDevice("lost", lost_from_s=0.0)]
        super().__init__(devices, lambda: time.monotonic() - AGE_S)
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
