"""Evidence of NICs: error counters and states under /sys/class/net and /sys/class/infiniband."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from health.records.frames import Evidence, Source

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
        if self._past and now_s - self._past[-1][0] < LOOK_S:
            return self._aged(now_s)
        counted = dict(self._counters())
        self._past = [each for each in self._past if now_s - each[0] <= WINDOW_S] + [(now_s, counted)]
        first = self._past[0][1]
        found = {}
        for (nic, counter), value in counted.items():
            rise = value - first.get((nic, counter), value)
            if rise >= ERRORS[counter]:
                found[(nic, "NicErrors")] = f"{counter} rose by {rise} in {now_s - self._past[0][0]:.0f} s"
        for nic, is_up in self._states():
            if is_up:
                self._was_up.add(nic)
            elif nic in self._was_up:  # an unused port was never up
                found[(nic, "LinkDown")] = "the link was up and is down"
        self._since = {key: self._since.get(key, now_s) for key in found}
        self._words = found
        return self._aged(now_s)

    def _aged(self, now_s: float) -> Sequence[Evidence]:
        return [
            Evidence(Source.NIC, code, nic, now_s - since_s, self._words[(nic, code)])
            for (nic, code), since_s in self._since.items()
        ]

    def _counters(self) -> Iterator[tuple[tuple[str, str], int]]:
        for nic, folder in self._folders():
            for counter in ERRORS:
                value = _number(folder / counter)
                if value is not None:
                    yield (nic, counter), value

    def _folders(self) -> Iterator[tuple[str, Path]]:
        for nic in _entries(self._sys / "net"):
            if (nic / "device").exists():  # virtual interfaces of pods have none
                yield nic.name, nic / "statistics"
        for device in _entries(self._sys / "infiniband"):
            for port in _entries(device / "ports"):
                yield f"{device.name}/{port.name}", port / "counters"
                yield f"{device.name}/{port.name}", port / "hw_counters"

    def _states(self) -> Iterator[tuple[str, bool]]:
        for nic in _entries(self._sys / "net"):
            if (nic / "device").exists():
                yield nic.name, _text(nic / "operstate") == "up"
        for device in _entries(self._sys / "infiniband"):
            for port in _entries(device / "ports"):
                yield f"{device.name}/{port.name}", "ACTIVE" in _text(port / "state")


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


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None
