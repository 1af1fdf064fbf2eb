"""`python -m tests.controlplane.set_clock operator run …`: Tonnage with a clock of dates that a test sets.

The file that CLOCK_STEP names holds by how many seconds the clock of dates is off; the monotonic one is as it is.
"""

import os
import runpy
import time
from pathlib import Path

STEP = Path(os.environ["CLOCK_STEP"])
true_time_s = time.time


def stepped_time_s() -> float:
    return true_time_s() + float(STEP.read_text(encoding="ascii"))


if __name__ == "__main__":
    time.time = stepped_time_s
    runpy.run_module("cli.main", run_name="__main__")
