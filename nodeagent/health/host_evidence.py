"""Evidence of the host: readings of devices, the kernel's log, and counters of network devices."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from health.records.frames import Evidence, Source
from health.verdicts.findings import Severity, severity_of
from nodeagent.health.kernel_messages import Message, message_of
from power.devices.backend import DeviceReading


class HostEvidence(Protocol):
    """One source of evidence on a node."""

    def read(self, now_s: float) -> Sequence[Evidence]:
        """All that is known now, with its age; never raises. now_s: clock that counts since boot."""
        ...


@dataclass(slots=True)
class RisingCounter:
    """Errors since the first reading of a counter that may be reset, or read wrongly once.

    A counter that falls was reset and counts from there; one that is back at its height was only read wrongly.
    """

    last: float | None = None
    height: float = 0.0
    """Highest value before the last fall."""
    total: float = 0.0
    before_fall: float = 0.0
    """Errors until then."""

    def risen(self, value: float) -> float:
        """Errors so far, after a reading."""
        if self.last is not None and value < self.last:
            if self.last >= self.height:
                self.height, self.before_fall = self.last, self.total
        elif self.last is not None:
            self.total += value - self.last
            if self.height and self.last < self.height <= value:
                self.total = self.before_fall + value - self.height
        self.last = value
        return self.total


HARDWARE = ("thermal", "power_brake")
"""Causes of throttling that are a fault of the node; `power_cap` is Tonnage's own, and no fault."""
CODES = {"thermal": "ThermalThrottle", "power_brake": "PowerBrake"}


class DeviceEvidence:
    """What the newest readings of all devices show."""

    def __init__(self, readings: Callable[[], Mapping[str, DeviceReading]]) -> None:
        self._readings = readings
        self._since: dict[tuple[str, str], float] = {}
        self._errors: dict[str, RisingCounter] = {}

    def read(self, now_s: float) -> Sequence[Evidence]:
        found = {}
        for uuid, reading in self._readings().items():
            for cause in HARDWARE:
                if cause in (reading.throttled_by or ()):
                    found[(uuid, CODES[cause])] = f"clocks are held down: {cause}"
            if (errors := reading.uncorrected_errors) is not None:
                rise = self._errors.setdefault(uuid, RisingCounter()).risen(errors)
                if rise > 0:
                    found[(uuid, "UncorrectedErrors")] = f"{rise} uncorrected memory errors since the agent started"
        self._since = {key: self._since.get(key, now_s) for key in found}
        return [
            Evidence(Source.DEVICE, code, uuid, now_s - since_s, found[(uuid, code)])
            for (uuid, code), since_s in self._since.items()
        ]


KEPT_S = 7 * 86_400.0
"""Age up to which a message is kept: a lost GPU stays lost until the reboot that empties the log."""
MOST_KEPT = 64
_LONGEST = 8192
"""Bytes of one message, by the kernel's own limit. Source: Documentation/ABI/testing/dev-kmsg."""
_LONGEST_LINE = 1024
LASTING = frozenset({"Xid64"})
"""Errors that no reset mends: rows that could not be remapped."""

Read = Callable[[], bytes | None]
"""Returns the next record of /dev/kmsg; None when there is none now."""


class KernelLog:
    """Messages of the last days that say something about hardware."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._seen: dict[tuple[str, str], tuple[float, str, str]] = {}
        """Instant, code and line by topic and subject."""

    def read(self, now_s: float) -> Sequence[Evidence]:
        while (record := self._read()) is not None:
            # A record reads `priority,sequence,microseconds,flags;text`; user space may write records, too, with a
            # facility other than the kernel's, 0: those count for nothing.
            head, _, text = record.decode("utf-8", "replace").partition(";")
            fields = head.split(",")
            if len(fields) < 3 or not (fields[0].isdigit() and fields[2].isdigit()) or int(fields[0]) >> 3:
                continue
            line = text.partition("\n")[0][:_LONGEST_LINE]
            if (found := message_of(line)) is not None:
                self._note(found, int(fields[2]) * 1e-6, line[:200])
        recent = [(key, each) for key, each in self._seen.items() if now_s - each[0] <= KEPT_S]
        for weak in (Severity.NONE, Severity.WATCH, None):  # what asks for least makes room, the oldest first
            for entry in [each for each in recent if severity_of(each[1][1]) is weak or weak is None]:
                if len(recent) > MOST_KEPT:
                    recent.remove(entry)
        self._seen = dict(recent)
        return [
            Evidence(Source.KERNEL, code, subject, max(0.0, now_s - at_s), words)
            for (_, subject), (at_s, code, words) in recent
        ]

    def _note(self, found: Message, at_s: float, line: str) -> None:
        """Keeps the newest of a topic, last. Where the driver asks for nothing any more, its GPU was mended."""
        if found.code == "Xid154None":
            mended = [key for key in self._seen if key[1] == found.subject and key[0] not in LASTING]
            for key in mended:
                del self._seen[key]
        self._seen.pop((found.topic, found.subject), None)
        self._seen[(found.topic, found.subject)] = (at_s, found.code, line)


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


LOOK_S = 2.0
WINDOW_S = 30.0
"""Errors count within this time; then the NIC is quiet again."""
ERRORS: Mapping[str, int] = {
    "rx_crc_errors": 10,
    "rx_errors": 100,
    "tx_errors": 100,
    "tx_carrier_errors": 1,
    "symbol_error": 10,
    "link_downed": 1,
    "link_error_recovery": 1,
    "port_rcv_errors": 100,
    "local_link_integrity_errors": 1,
    "excessive_buffer_overrun_errors": 1,
    "local_ack_timeout_err": 20,
    "packet_seq_err": 1000,
    "out_of_sequence": 1000,
}
"""Rises within WINDOW_S from which a counter is evidence. One is enough for a link that was down; a few bit errors are
within what cables are specified for. Chosen: order of magnitude of vendors' alarm thresholds."""


class NicCounters:
    """Counters of all physical NICs, and their rise in the last half minute."""

    def __init__(self, sys: Path = Path("/sys/class")) -> None:
        self._sys = sys
        self._past: list[tuple[float, Mapping[tuple[str, str], float]]] = []
        """Errors so far of each counter, by instant."""
        self._counters: dict[tuple[str, str], RisingCounter] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._was_up: set[str] = set()
        self._words: dict[tuple[str, str], str] = {}

    def read(self, now_s: float) -> Sequence[Evidence]:
        if not self._past or now_s - self._past[-1][0] >= LOOK_S:
            self._words = self._examine(now_s)
            self._since = {key: self._since.get(key, now_s) for key in self._words}
        return [
            Evidence(Source.NIC, code, nic, now_s - since_s, self._words[(nic, code)])
            for (nic, code), since_s in self._since.items()
        ]

    def _examine(self, now_s: float) -> dict[tuple[str, str], str]:
        """What the NICs show now: words by NIC and code."""
        counted: dict[tuple[str, str], int] = {}
        is_up: dict[str, bool] = {}
        for nic in _entries(self._sys / "net"):
            if (nic / "device").exists():  # virtual interfaces of pods have none
                _count(nic.name, nic / "statistics", counted)
                is_up[nic.name] = _text(nic / "operstate") == "up"
        for device in _entries(self._sys / "infiniband"):
            for port in _entries(device / "ports"):
                name = f"{device.name}/{port.name}"
                _count(name, port / "counters", counted)
                _count(name, port / "hw_counters", counted)
                is_up[name] = "ACTIVE" in _text(port / "state")
        risen = {key: self._counters.setdefault(key, RisingCounter()).risen(value) for key, value in counted.items()}
        self._past = [each for each in self._past if now_s - each[0] <= WINDOW_S] + [(now_s, risen)]
        began_s, first = self._past[0]
        found = {}
        for (nic_name, counter), errors in risen.items():
            rise = errors - first.get((nic_name, counter), errors)
            if rise >= ERRORS[counter]:
                found[(nic_name, "NicErrors")] = f"{counter} rose by {rise:.0f} in {now_s - began_s:.0f} s"
        for nic_name, up in is_up.items():
            if up:
                self._was_up.add(nic_name)
            elif nic_name in self._was_up:  # an unused port was never up
                found[(nic_name, "LinkDown")] = "the link was up and is down"
        return found


def _count(nic: str, folder: Path, counted: dict[tuple[str, str], int]) -> None:
    """Adds the counters of a folder."""
    for counter in ERRORS:
        if (text := _text(folder / counter)).isdigit():
            counted[(nic, counter)] = int(text)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
