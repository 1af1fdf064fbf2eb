"""Reader of the node's DCGM exporter: a thread of its own, so that an exporter that hangs delays no other evidence."""

import http.client
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

import structlog
from prometheus_client.parser import text_string_to_metric_families

from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake, ObservationError
from health.records.frames import Evidence, Source
from nodeagent.health.host_evidence import CODES, KEPT_S, RisingCounter
from nodeagent.health.kernel_messages import ACTIONS
from nodeagent.loops import AgentLoop
from power.devices.nvml import REASONS

WINDOW_S = 60.0
"""A rise counts within this time, and a state for as long after it was last read: four readings."""
MOST_GPUS, MOST_KEPT = 64, 64
"""GPUs that are followed, and findings that are kept: a text of nonsense takes no room of other evidence."""


@dataclass(slots=True)
class _Counter:
    at_s: float
    counter: RisingCounter
    rises: list[tuple[float, float]] = field(default_factory=list)
    """Instants and sizes."""


@dataclass(slots=True)
class _Gpu:
    """What one GPU showed so far."""

    xids: dict[tuple[str, str], float] | None = None
    """How many errors by metric and number; None: it has not been read yet, so that all of it is old news."""
    counters: dict[tuple[str, str], _Counter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Finding:
    since_s: float
    until_s: float
    words: str


LAST_XID = "DCGM_FI_DEV_XID_ERRORS"
"""The last GPU error since the exporter or its host engine started, without an instant."""
XIDS = frozenset({LAST_XID, "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL"})
"""The other two, off by default, count errors by number: those of the last minutes, and all since the start."""
CLOCK_REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
"""Bits as NVML's."""
REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
STATES: Mapping[str, Mapping[int, tuple[str, str]]] = {
    REMAP_FAILURE: {1: ("RowRemapFailure", "memory rows can no longer be remapped; the GPU is to be replaced")},
    "DCGM_FI_DEV_ROW_REMAP_PENDING": {1: ("RowRemapPending", "memory rows are remapped at the GPU's next reset")},
    "DCGM_FI_DEV_GPU_RECOVERY_ACTION": {
        number: (f"Xid154{word}", f"the driver asks for {word}") for number, word in ACTIONS.items() if number
    },
}
"""What a value of a gauge states, and in which words; a higher one than all counts as the highest."""
PRESENT = "DCGM_FI_DEV_GPU_TEMP"
"""Says that a GPU is there: one without any error may have no line about errors."""


@dataclass(frozen=True, slots=True)
class Rise:
    """From when on a counter is evidence of what."""

    code: str
    least: int
    """Rise within a minute."""
    words: str


RISES: Mapping[str, Rise] = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Rise("UncorrectedErrors", 1, "uncorrected memory errors"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": Rise("UncorrectedErrors", 1, "uncorrected memory errors"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Rise("RowsRemapped", 1, "rows remapped for uncorrected errors"),
    "DCGM_FI_DEV_THERMAL_VIOLATION": Rise("ThermalThrottle", 1, "time for which heat held clocks down"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": Rise("PcieError", 9, "PCIe retries"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 6000, "CRC errors of NVLink"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 6000, "CRC errors of NVLink"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": Rise("NvlinkErrors", 1, "recoveries of NVLink"),
}
"""Source of the least: DCGM's own health checks (dcgm_gpu_hardware_limits.h, DcgmHealthWatch.cpp): more than 8 retries
a minute, 100 CRC errors a second, any recovery."""

NAMES: Mapping[str, str] = {
    **{name: name for name in (*XIDS, *RISES, *STATES, CLOCK_REASONS, PRESENT)},
    "DCGM_FI_DEV_XID_ERROR": LAST_XID,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": CLOCK_REASONS,
    "DCGM_FI_DEV_ROW_REMAP_FAILED": REMAP_FAILURE,
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": PRESENT,
}
"""The name used here by the exporter's. Source: etc/default-counters.csv of dcgm-exporter, and dcgm_fields.py of
DCGM 4.7, whose names it has had since 4.9.0; reasons were called so before DCGM 3.3."""


LONGEST_LINE = 8192
"""Characters of a line that is read: with all labels of a pod on it. The parser's time grows with their square."""
MOST_LINES = 4096
"""Lines about health that are read: a dozen for each of 64 instances of GPUs, five times over."""
_METRIC = re.compile(r"[A-Z0-9_]+(?=[{ \t])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,79}")
_BUS = re.compile(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?")


@dataclass(frozen=True, slots=True)
class DcgmSample:
    """One value of one GPU."""

    metric: str
    """The name used here, whatever the release."""
    gpu: str
    """Its UUID; the name of its device where the exporter does not tell UUIDs."""
    value: float
    part: str = "0"
    """Number of a GPU error or of a link, where the value is of one; 0 also for none."""
    bus: str = ""
    """PCI address as the kernel writes it, `0000:3b:00`; empty where the exporter does not tell it."""
    host: str = ""
    """Node as the exporter calls it; empty where it does not."""


def samples_in(text: str) -> tuple[tuple[DcgmSample, ...], int]:
    """Samples about health, and how many lines about it could not be read. Other metrics are not looked at.

    There is none of a switch, of a GPU without a name, or of a value that is blank.
    """
    found: list[DcgmSample] = []
    lines = unread = 0
    for line in text.split("\n"):
        metric = NAMES.get(named[0]) if (named := _METRIC.match(line)) else None
        if metric is None:
            continue
        lines += 1
        if len(line) > LONGEST_LINE or lines > MOST_LINES:
            unread += 1
            continue
        try:
            # Each line alone, so that a mistake in it spoils no other.
            ((parsed,),) = (family.samples for family in text_string_to_metric_families(line))
            sample = _sample(metric, parsed.labels, float(parsed.value))
        except (ValueError, LookupError, ArithmeticError):  # the parser's own, for all kinds of nonsense
            unread += 1
        else:
            found += [sample] if sample is not None else []
    return tuple(found), unread


def _sample(metric: str, labels: Mapping[str, str], value: float) -> DcgmSample | None:
    gpu = _name(labels, "UUID", "uuid", "gpu_uuid") or _name(labels, "device", "gpu")
    # DCGM writes numbers for "no value", "not supported" and the like, which exporters pass on: the README of
    # dcgm-exporter shows 9223372036854775794 degrees. Source: DCGM_BLANK_VALUES, dcgm_structs.h: 16 values from each
    # base on.
    is_blank = 0x7FFFFFF0 <= value <= 0x7FFFFFFF or 2**47 <= value < 2**47 + 16 or value >= 2**62
    if not gpu or not math.isfinite(value) or value < 0 or is_blank:
        return None
    part = _name(labels, "xid" if metric in XIDS else "nvlink") or "0"
    if metric == LAST_XID:
        part, value = f"{value:g}", 1.0
    if not (part.isdecimal() and len(part) <= 4):
        raise ValueError(part)
    on_bus = _BUS.fullmatch(labels.get("pci_bus_id", "").lower())
    return DcgmSample(metric, gpu, value, part, on_bus[1] if on_bus else "", _name(labels, "Hostname", "hostname"))


def _name(labels: Mapping[str, str], *of: str) -> str:
    """The first of these labels that there is, where it may stand in a status; else nothing."""
    found = next((labels[each] for each in of if labels.get(each)), "")
    return found if _NAME.fullmatch(found) else ""


class DcgmEvidence:
    """Findings of one exporter. One thread takes what was read; another may read the evidence."""

    def __init__(self) -> None:
        self._gpus: dict[str, _Gpu] = {}
        self._found: dict[tuple[str, str], _Finding] = {}
        self._shown: tuple[tuple[tuple[str, str], _Finding], ...] = ()

    def take(self, samples: Iterable[DcgmSample], now_s: float) -> None:
        """One reading, whole: a metric that it does not have is not there."""
        read: dict[str, list[DcgmSample]] = {}
        for each in samples:
            read.setdefault(each.gpu, []).append(each)
        for name, of_gpu in read.items():
            if name in self._gpus or len(self._gpus) < MOST_GPUS:
                gpu = self._gpus.setdefault(name, _Gpu())
                bus = next((each.bus for each in of_gpu if each.bus), "")
                for xid in _new_xids(gpu, of_gpu):
                    self._found.pop((f"Xid{xid}", bus or name), None)  # the newest of a kind counts, and stands last
                    self._note(f"Xid{xid}", bus or name, now_s, now_s + KEPT_S, f"DCGM tells of it on {name}")
                until_s = now_s + WINDOW_S
                reasons = [int(each.value) for each in of_gpu if each.metric == CLOCK_REASONS]
                for bits, cause in REASONS:
                    if cause in CODES and any(value & bits for value in reasons):
                        self._note(CODES[cause], name, now_s, until_s, f"clocks are held down: {cause} (DCGM)")
                for (metric, _), value in _highest(of_gpu, STATES).items():
                    if value >= 1:
                        code, words = STATES[metric][min(int(value), max(STATES[metric]))]
                        self._note(code, name, now_s, until_s, f"DCGM: {words}")
                for (metric, part), value in _highest(of_gpu, RISES).items():
                    rise = _risen(gpu, metric, part, value, now_s)
                    if rise >= RISES[metric].least:
                        self._note(
                            RISES[metric].code, name, now_s, until_s, f"DCGM: {RISES[metric].words} rose by {rise:.0f}"
                        )
        standing = [(key, each) for key, each in self._found.items() if now_s <= each.until_s]
        self._found = dict(standing[-MOST_KEPT:])
        self._shown = tuple(self._found.items())

    def read(self, now_s: float) -> Sequence[Evidence]:
        return [
            Evidence(Source.DEVICE, code, subject, max(0.0, now_s - each.since_s), each.words)
            for (code, subject), each in self._shown
            if now_s <= each.until_s
        ]

    def _note(self, code: str, subject: str, now_s: float, until_s: float, words: str) -> None:
        known = self._found.get((code, subject))
        since_s = known.since_s if known is not None and now_s <= known.until_s else now_s
        self._found[(code, subject)] = _Finding(since_s, until_s, words)


def _new_xids(gpu: _Gpu, samples: Sequence[DcgmSample]) -> list[str]:
    """Numbers of errors that are new since the last reading.

    The last error stays for as long as the exporter or its host engine lives, hours after it. So what is there at the
    first reading is old news, and so is the same number again after readings without any: an exporter that was
    restarted beside an engine that was not. A number after a 0, or after another, is new.
    """
    shown = _highest(samples, XIDS)
    before, gpu.xids = gpu.xids, shown
    if before is None:
        return []
    if not any(metric == LAST_XID for metric, _ in shown):
        gpu.xids = {**{key: count for key, count in before.items() if key[0] == LAST_XID}, **shown}
    return sorted(
        {xid for (metric, xid), count in shown.items() if xid != "0" and count > before.get((metric, xid), 0)}
    )


def _highest(samples: Iterable[DcgmSample], metrics: Collection[str]) -> dict[tuple[str, str], float]:
    """Values by metric and part. The exporter repeats a GPU's value for each of its instances and pods."""
    found: dict[tuple[str, str], float] = {}
    for each in samples:
        if each.metric in metrics:
            key = (each.metric, each.part)
            found[key] = max(found.get(key, 0.0), each.value)
    return found


def _risen(gpu: _Gpu, metric: str, part: str, value: float, now_s: float) -> float:
    """Rise of a counter within the window that ends with a rise now; 0 where there is none now.

    Where a rise by one is enough, it counts however long nobody read; a rate is known only between readings that are
    close.
    """
    known = gpu.counters.get((metric, part))
    if known is None:
        known = gpu.counters[(metric, part)] = _Counter(now_s, RisingCounter())
    before, gap_s = known.counter.total, now_s - known.at_s
    rise = known.counter.risen(value) - before
    known.at_s = now_s
    known.rises = [(at_s, size) for at_s, size in known.rises if now_s - at_s < WINDOW_S]
    if rise <= 0 or (gap_s > WINDOW_S and RISES[metric].least > 1):
        return 0.0
    known.rises.append((now_s, rise))
    return sum(size for _, size in known.rises)


log = structlog.get_logger(__name__)
EVERY_S = 15.0
"""Seconds between two readings: the exporter collects every 30 s by default, and often every 10 or 15."""
LOG_EVERY_S = 3600.0
"""Pause between two log lines about failures: an exporter that fails every other time fills no log."""
PATIENCE_S = 5.0
"""Seconds for the whole answer. An exporter collects when it is asked, which takes it tenths of a second."""
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of one answer: 64 instances of GPUs with a hundred metrics of 600 bytes each."""


class PageError(ObservationError):
    """The page could not be read, or was not what it should be. The code classifies it for metrics."""

    def __init__(self, code: str, words: str) -> None:
        self.code = code
        super().__init__(words)


def fetched(url: str, patience_s: float = PATIENCE_S, most_bytes: int = MOST_BYTES) -> str:
    """The page's text. Raises PageError. No proxy is asked, no redirect followed, no connection kept."""
    parts, ends_s = urlsplit(url), time.monotonic() + patience_s
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        with (
            closing(http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=patience_s)) as page,
            _shut_at(page, ends_s),
        ):
            page.request("GET", path, headers={"Accept": "text/plain", "Connection": "close"})
            with page.getresponse() as answer:
                body = answer.read(most_bytes + 1)
        if time.monotonic() >= ends_s:
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as error:
        if time.monotonic() >= ends_s:
            raise PageError("Silent", f"{url}: no whole answer within {patience_s:g} s") from error
        raise PageError("Unreachable", f"{url}: {type(error).__name__} {error}"[:200]) from error
    if answer.status != HTTPStatus.OK:
        raise PageError("Refused", f"{url} answers {answer.status}")
    if len(body) > most_bytes:
        raise PageError("TooLong", "the answer is longer than a page of metrics may be")
    if answer.length:
        raise PageError("Unreachable", f"{url}: the answer ends {answer.length} bytes early")
    return body.decode("utf-8", "replace")


@contextmanager
def _shut_at(page: http.client.HTTPConnection, ends_s: float) -> Iterator[None]:
    """Connects, and ends the connection at this instant: a socket's own time-out starts anew with every byte."""
    page.connect()
    line = page.sock

    def shut() -> None:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(ends_s - time.monotonic(), shut)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class DcgmExporter:
    """Evidence of one exporter (`HostEvidence`). Failures are counted by code, and logged when they begin."""

    def __init__(self, fetch: Callable[[], str], is_own: Callable[[DcgmSample], bool], clock: Clock) -> None:
        """fetch: the exporter's text; raises PageError. is_own: whether a sample is of this node."""
        self._fetch, self._is_own, self._clock = fetch, is_own, clock
        self._evidence = DcgmEvidence()
        self._loop = AgentLoop("DCGM exporter", self.look, pause_s=EVERY_S, gives_way=True)
        self._logged_s = float("-inf")
        self._fails = self._is_logged = False
        self.reads = 0
        self.failed: dict[str, int] = {}

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def read(self, now_s: float) -> Sequence[Evidence]:
        """What was found so far; waits for nothing."""
        return self._evidence.read(now_s)

    def look(self) -> float:
        """Reads the exporter once. Returns seconds until the next time."""
        self.reads += 1
        try:
            samples, unread = samples_in(self._fetch())
            own = [each for each in samples if self._is_own(each)]
            if own:
                self._evidence.take(own, self._clock())
            if unread:
                raise PageError("Malformed", f"{unread} lines about health cannot be read")
            if not samples:
                raise PageError("Empty", "it tells nothing about the health of any GPU")
            if not own:
                raise PageError("OtherNode", f"it tells of {samples[0].gpu} on {samples[0].host or 'a nameless host'}")
        except PageError as error:
            self.failed[error.code] = self.failed.get(error.code, 0) + 1
            begins, self._fails = not self._fails, True
            if begins and self._clock() - self._logged_s >= LOG_EVERY_S:
                self._logged_s, self._is_logged = self._clock(), True
                log.warning("the DCGM exporter cannot be read", code=error.code, why=str(error))
            return EVERY_S
        if self._is_logged:
            log.info("the DCGM exporter can be read again")
        self._fails = self._is_logged = False
        return EVERY_S


def own_gpus(node: str, uuids: Callable[[], Collection[str]]) -> Callable[[DcgmSample], bool]:
    """Whether a sample is of this node: a Service may have answered with another node's exporter.

    uuids: devices of this node as the agent knows them, none where it reads none.
    """

    def is_own(sample: DcgmSample) -> bool:
        known = uuids()
        if sample.gpu in known:
            return True
        if not sample.host:
            return not known
        return sample.host == node or sample.host.startswith(f"{node}.") or node.startswith(f"{sample.host}.")

    return is_own


def page_of(url: str, node: str, address: str) -> str:
    """The page or service, with this node's name and IP address in it. Raises ConfigError where none is known."""
    if "{address}" in url and not address:
        raise ConfigError(Mistake(f"health: {url}", "the node's address is not known", "set NODE_ADDRESS"))
    return url.replace("{node}", node).replace("{address}", f"[{address}]" if ":" in address else address)
