"""Evidence in the kernel's log: GPU errors, machine checks, lost links, hung drivers."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from health.records.frames import Evidence, Source

KEPT_S = 7 * 86_400.0
"""Age up to which a message is kept: a lost GPU stays lost until the reboot that empties the log."""
MOST_KEPT = 64
_LONGEST = 8192
"""Bytes of one message, by the kernel's own limit. Source: Documentation/ABI/testing/dev-kmsg."""

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_SXID = re.compile(r"nvidia-nvswitch\S*: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("MachineCheck", re.compile(r"\[Hardware Error\]")),
    ("MemoryError", re.compile(r"EDAC \S+: \d+ UE ")),
    ("PcieError", re.compile(r"(?:AER|pcieport).*(?:Uncorrect|fatal)", re.IGNORECASE)),
    ("LinkDown", re.compile(r"\b(?:mlx5_core|bnxt_en|ice|i40e|ixgbe)\b.*(?:Link|link) (?:is )?[Dd]own")),
    ("GpuLost", re.compile(r"NVRM: .*(?:fallen off the bus|RmInitAdapter failed)")),
    ("SoftLockup", re.compile(r"watchdog: BUG: soft lockup")),
    ("HungTask", re.compile(r"INFO: task \S+ blocked for more than \d+ seconds")),
)
"""Messages by code; the first that matches counts. Xid and SXid have codes with their numbers, `Xid79`."""

Read = Callable[[], bytes | None]
"""Returns the next record of /dev/kmsg; None when there is none now."""


class KernelLog:
    """Messages of the last hour that say something about hardware."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._seen: dict[tuple[str, str], tuple[float, str]] = {}

    def read(self, now_s: float) -> Sequence[Evidence]:
        while (record := self._read()) is not None:
            for at_s, code, subject, words in _evidence_in(record):
                self._seen.pop((code, subject), None)  # the newest of a kind counts, and stands last
                self._seen[(code, subject)] = (at_s, words)
        recent = [(key, each) for key, each in self._seen.items() if now_s - each[0] <= KEPT_S][-MOST_KEPT:]
        self._seen = dict(recent)
        return [
            Evidence(Source.KERNEL, code, subject, max(0.0, now_s - at_s), words)
            for (code, subject), (at_s, words) in recent
        ]


def _evidence_in(record: bytes) -> Iterator[tuple[float, str, str, str]]:
    """Instant since boot, code, subject and text of a record, where it concerns hardware.

    A record reads `priority,sequence,microseconds,flags;text`; user space may write records, too, with a facility
    other than the kernel's, 0: those count for nothing.
    """
    head, _, text = record.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if len(fields) < 3 or not (fields[0].isdigit() and fields[2].isdigit()) or int(fields[0]) >> 3:
        return
    at_s, line = int(fields[2]) * 1e-6, text.partition("\n")[0][:200]
    for name, pattern in (("Xid", _XID), ("SXid", _SXID)):
        if found := pattern.search(line):
            yield at_s, f"{name}{found[2]}", found[1], line
            return
    for code, pattern in PATTERNS:
        if pattern.search(line):
            yield at_s, code, "host", line
            return


def kmsg(path: str = "/dev/kmsg") -> Read:
    """Reader of the kernel's log from its beginning. Raises OSError where it may not be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def read() -> bytes | None:
        for _ in range(2):
            with suppress(BrokenPipeError):  # records were overwritten before they were read: go on with the oldest
                try:
                    return os.read(descriptor, _LONGEST) or None
                except BlockingIOError:
                    return None
        return None

    return read
