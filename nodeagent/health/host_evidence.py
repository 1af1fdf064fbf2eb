"""Evidence of the host: readings of devices, the kernel's log, and counters of network devices."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from health.records.frames import Evidence, Source
from power.devices.backend import DeviceReading


class HostEvidence(Protocol):
    """One source of evidence on a node."""

    def read(self, now_s: float) -> Sequence[Evidence]:
        """All that is known now, with its age; never raises. now_s: clock that counts since boot."""
        ...


HARDWARE = ("thermal", "power_brake")
"""Causes of throttling that are a fault of the node; `power_cap` is Tonnage's own, and no fault."""
CODES = {"thermal": "ThermalThrottle", "power_brake": "PowerBrake"}


class DeviceEvidence:
    """What the newest readings of all devices show."""

    def __init__(self, readings: Callable[[], Mapping[str, DeviceReading]]) -> None:
        self._readings = readings
        self._since: dict[tuple[str, str], float] = {}
        self._first_errors: dict[str, int] = {}

    def read(self, now_s: float) -> Sequence[Evidence]:
        found = {}
        for uuid, reading in self._readings().items():
            for cause in HARDWARE:
                if cause in (reading.throttled_by or ()):
                    found[(uuid, CODES[cause])] = f"clocks are held down: {cause}"
            if (errors := reading.uncorrected_errors) is not None:
                rise = errors - self._first_errors.setdefault(uuid, errors)
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
            # A record reads `priority,sequence,microseconds,flags;text`; user space may write records, too, with a
            # facility other than the kernel's, 0: those count for nothing.
            head, _, text = record.decode("utf-8", "replace").partition(";")
            fields = head.split(",")
            if len(fields) < 3 or not (fields[0].isdigit() and fields[2].isdigit()) or int(fields[0]) >> 3:
                continue
            line = text.partition("\n")[0][:200]
            if (key := _code_and_subject(line)) is not None:
                self._seen.pop(key, None)  # the newest of a kind counts, and stands last
                self._seen[key] = (int(fields[2]) * 1e-6, line)
        recent = [(key, each) for key, each in self._seen.items() if now_s - each[0] <= KEPT_S][-MOST_KEPT:]
        self._seen = dict(recent)
        return [
            Evidence(Source.KERNEL, code, subject, max(0.0, now_s - at_s), words)
            for (code, subject), (at_s, words) in recent
        ]


def _code_and_subject(line: str) -> tuple[str, str] | None:
    """What a message of the kernel is about, where it concerns hardware."""
    for name, pattern in (("Xid", _XID), ("SXid", _SXID)):
        if found := pattern.search(line):
            return f"{name}{found[2]}", found[1]
    return next(((code, "host") for code, pattern in PATTERNS if pattern.search(line)), None)


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
        self._past: list[tuple[float, Mapping[tuple[str, str], int]]] = []
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
        self._past = [each for each in self._past if now_s - each[0] <= WINDOW_S] + [(now_s, counted)]
        began_s, first = self._past[0]
        found = {}
        for (nic_name, counter), value in counted.items():
            rise = value - first.get((nic_name, counter), value)
            if rise >= ERRORS[counter]:
                found[(nic_name, "NicErrors")] = f"{counter} rose by {rise} in {now_s - began_s:.0f} s"
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
