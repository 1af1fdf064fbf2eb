"""Processes of a control plane, and what one has used so far, as Linux tells it in /proc."""

import os
import re
from pathlib import Path

from simulator.controlplane.commands import Folder
from simulator.controlplane.processes import Process, remembered


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads, seconds (/proc/PID/stat, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int, kind: str = "VmRSS") -> float:
    """Current (VmRSS) or peak (VmHWM) resident memory of a process, MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{kind}:\s+(\d+) kB", status, re.M)
    return int(found[1]) * 1024 / 1e6 if found else float("nan")


def process_of(folder: Folder, name: str) -> Process:
    """Process of a control plane that runs."""
    process = remembered(name, folder.run)
    assert process is not None, f"{name} of {folder.path} does not run"
    return process
