"""Processes of a replay: agents that think and call, and calls that hold memory as their trace says."""

import json
import mmap
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.sandboxes.traces import AgentTrace

BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Scale:
    """Replayed memory and time as fractions of the trace's."""

    memory: float
    time: float

    def bytes_of(self, mib: float) -> int:
        return round(mib * self.memory * BLOCK)


class Memory:
    """Anonymous memory of this process, written to page by page."""

    def __init__(self) -> None:
        self._blocks: list[mmap.mmap] = []

    def hold(self, total_bytes: int) -> None:
        blocks = round(total_bytes / BLOCK)
        while len(self._blocks) > blocks:
            self._blocks.pop().close()
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        while len(self._blocks) < blocks:
            self._blocks.append(mmap.mmap(-1, BLOCK, flags=flags))


def run_agent(trace: AgentTrace, line: socket.socket, scale: Scale, delay_s: float, first_base_mib: float) -> int:
    """The agent: closed loop, so that a call that waits delays all that follows. Asks for calls over the line.

    first_base_mib: what this process takes by itself already, unscaled MiB.
    """
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    memory = Memory()
    reader = line.makefile("r", encoding="utf-8")
    time.sleep(delay_s)
    began_s = time.monotonic()
    stalled_s = 0.0
    for number, phase in enumerate(trace.phases):
        memory.hold(max(0, scale.bytes_of(phase.base_mib) - round(first_base_mib * BLOCK)))
        time.sleep(phase.think_s * scale.time)
        if phase.call is None:
            continue
        asked_s = time.monotonic()
        line.sendall(json.dumps({"call": number}).encode() + b"\n")
        reader.readline()
        stalled_s += max(0.0, time.monotonic() - asked_s - phase.call.for_s * scale.time)
    done = {"done": True, "for_s": time.monotonic() - began_s, "stalled_s": stalled_s}
    line.sendall(json.dumps(done).encode() + b"\n")
    return 0


def run_call(samples: Sequence[tuple[float, float]], scale: Scale) -> int:
    """The tool call: holds what its trace held; a stall delays the rest."""
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    memory = Memory()
    at_s = 0.0
    late_s = 0.0
    for sample_s, mib in samples:
        # A stall in an allocation is not caught up with by sleeping less: work takes as long as it takes.
        time.sleep(max(0.0, (sample_s - at_s) * scale.time - late_s))
        at_s = sample_s
        began_s = time.monotonic()
        memory.hold(scale.bytes_of(mib))
        took_s = time.monotonic() - began_s
        late_s = min(took_s, 0.002)  # the guest's slow page faults are no part of the trace
    return 0


def set_oom_score(score: int) -> None:
    Path("/proc/self/oom_score_adj").write_text(str(score), encoding="ascii")


def close_inherited(keep: set[int]) -> None:
    """Closes descriptors of the parent, so that an end of a line is seen when its owner ends."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:
                continue
