"""Description of the machine that a measurement ran on, for reports."""

import os
import platform
from pathlib import Path


def cores() -> int:
    """Number of cores that this process may use; containers and batch systems may restrict it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_description() -> str:
    """Description such as `16 cores of AMD EPYC 9654, Linux 6.8, Python 3.12.4`."""
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    return f"{cores()} cores of {_processor()}, {system}, Python {platform.python_version()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine() or "an unknown processor"
