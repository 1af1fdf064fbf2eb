"""Evidence in what a DCGM exporter tells: new GPU errors, counters that rise, brakes and heat, failed memory rows."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from health.records.frames import Evidence, Source
from nodeagent.health.dcgm_metrics import CLOCK_REASONS, LAST_XID, REMAP_FAILURE, RISES, XIDS, DcgmSample
from nodeagent.health.host_evidence import CODES, KEPT_S
from power.devices.nvml import REASONS

WINDOW_S = 60.0
"""A rise counts within this time, and a state for as long after it was last read: four readings."""
MOST_GPUS, MOST_KEPT = 64, 64
"""GPUs that are followed, and findings that are kept: a text of nonsense takes no room of other evidence."""


@dataclass(slots=True)
class _Counter:
    at_s: float
    value: float
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
                if any(each.value >= 1 for each in of_gpu if each.metric == REMAP_FAILURE):
                    words = "DCGM: memory rows can no longer be remapped; the GPU is to be replaced"
                    self._note("RowRemapFailure", name, now_s, until_s, words)
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

    A counter that falls was reset with its driver or its exporter, and counts from there. Where a rise by one is
    enough, it counts however long nobody read; a rate is known only between readings that are close.
    """
    known = gpu.counters.get((metric, part))
    if known is None:
        gpu.counters[(metric, part)] = _Counter(now_s, value)
        return 0.0
    rise, gap_s = value - known.value, now_s - known.at_s
    known.at_s, known.value = now_s, value
    known.rises = [(at_s, size) for at_s, size in known.rises if now_s - at_s < WINDOW_S]
    if rise <= 0 or (gap_s > WINDOW_S and RISES[metric].least > 1):
        return 0.0
    known.rises.append((now_s, rise))
    return sum(size for _, size in known.rises)
