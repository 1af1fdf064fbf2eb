"""Ring buffer of recorded cycles: the snapshots, plans and outcomes of the last hour, within a limit of bytes.

A snapshot or plan is kept as a compressed frame, stored once for all cycles that share it. Frames are made in the loop
after a cycle, so they have to be cheap: 10 ms for 60,000 pods on 6,000 nodes, and 20 ms to compress it to 240 kB.
"""

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock

from cluster.plans import Phase, Plan, Refused
from cluster.snapshot import Snapshot
from controller.brain.frames import plan_frame, plan_from_frame, snapshot_frame
from controller.cycle import Cycle
from controller.ports import Outcome, Undone

QUIET_EVERY_S = 60.0
"""Minimum distance of recorded cycles without decisions, except for the newest. Chosen: 60 of them in an hour."""
ENTRY_BYTES = 2048
"""Bytes counted for each cycle besides its frames: its entry and Python's overhead. Measured: 1.4 kB."""
DIGEST_SIGNS = 32
"""Hexadecimal digits of a frame's name: 128 bits of its SHA-256."""


@dataclass(frozen=True, slots=True)
class CycleEntry:
    """One recorded cycle; refers to its snapshot and plans by the digests of their frames."""

    number: int
    """Number of the cycle since the start of the operator's process."""
    at_s: float
    """Instant of its snapshot, seconds since the epoch."""
    observed_at_s: Mapping[str, float]
    snapshot: str
    wanted: str
    """Plan of the brain, before the guard."""
    guarded: str
    """Plan after the guard; the same digest if the guard refused nothing."""
    outcome: str
    stage_s: Mapping[str, float] = field(default_factory=dict)
    is_quiet: bool = False
    """Whether nothing was decided, refused or left undone."""
    repeats: int = 0
    """Number of quiet cycles after this one with the same snapshot; they are only counted."""
    last_at_s: float = 0.0
    """Instant of the last of them; `at_s` if there are none."""
    by: str = ""
    """Identity of the operator's process, in a bundle of several replicas."""

    @property
    def frames(self) -> tuple[str, ...]:
        """Digests of the cycle's frames, each once."""
        return tuple(dict.fromkeys((self.snapshot, self.wanted, self.guarded, self.outcome)))


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded cycles, oldest first, and their frames."""

    entries: tuple[CycleEntry, ...]
    frames: Mapping[str, bytes]
    """Digest → frame, compressed by gzip."""
    seen: int = 0
    """Number of cycles so far, recorded or not."""
    too_large: int = 0
    """Number of cycles that alone would have exceeded the limit of bytes."""


class Ring:
    """Ring buffer of the newest cycles, limited by `keep_s`, `most_cycles` and `most_bytes`; drops the oldest first.

    One thread adds cycles; others may copy the content.
    """

    def __init__(self, keep_s: float, most_cycles: int, most_bytes: int) -> None:
        self._keep_s, self._most_cycles, self._most_bytes = keep_s, most_cycles, most_bytes
        self._lock = Lock()
        self._entries: list[CycleEntry] = []
        self._frames: dict[str, bytes] = {}
        self._uses: dict[str, int] = {}
        self._held_bytes = 0
        self._seen = self._too_large = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all frames, plus `ENTRY_BYTES` for each cycle; never above the limit."""
        return self._held_bytes

    def put(self, cycle: Cycle) -> None:
        """Record a cycle."""
        entry, frames = recorded(cycle, self._seen + 1)
        with self._lock:
            self._seen += 1
            last = self._entries[-1] if self._entries else None
            if last is not None and last.is_quiet and entry.is_quiet and last.snapshot == entry.snapshot:
                self._entries[-1] = replace(last, repeats=last.repeats + 1, last_at_s=entry.at_s)
                return
            packed = {name: self._frames.get(name) or gzip.compress(frame, 1, mtime=0) for name, frame in frames}
            if ENTRY_BYTES + sum(map(len, packed.values())) > self._most_bytes:
                self._too_large += 1
                return
            # The newest cycle goes if it and the one before are quiet and close together.
            if len(self._entries) > 1:
                before, newest = self._entries[-2:]
                if before.is_quiet and newest.is_quiet and newest.last_at_s - before.at_s < QUIET_EVERY_S:
                    self._drop(-1)
            self._entries.append(entry)
            self._held_bytes += ENTRY_BYTES
            for name, frame in packed.items():
                self._uses[name] = self._uses.get(name, 0) + 1
                if name not in self._frames:
                    self._frames[name] = frame
                    self._held_bytes += len(frame)
            while (
                len(self._entries) > self._most_cycles
                or self._held_bytes > self._most_bytes
                or self._entries[0].last_at_s < entry.at_s - self._keep_s
            ):
                self._drop(0)

    def copy(self) -> Recording:
        """Copy of the present content."""
        with self._lock:
            return Recording(tuple(self._entries), dict(self._frames), self._seen, self._too_large)

    def _drop(self, at: int) -> None:
        entry = self._entries.pop(at)
        self._held_bytes -= ENTRY_BYTES
        for name in entry.frames:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]
                self._held_bytes -= len(self._frames.pop(name))


def recorded(cycle: Cycle, number: int) -> tuple[CycleEntry, tuple[tuple[str, bytes], ...]]:
    """The cycle's entry, and its frames by digest, each once."""
    snapshot, plan = cycle.snapshot, cycle.plan
    # An outcome in the form of a plan, so that it can be stored as a frame, too.
    outcome = cycle.outcome
    undone = tuple(Refused(each.step, each.reason) for each in outcome.undone)
    frames = [
        # Instants of observation are in the entry; otherwise no snapshot would equal the one before.
        snapshot_frame(replace(snapshot, at_s=0.0, observed_at_s={})),
        plan_frame(replace(cycle.wanted, health=None)),
        plan_frame(replace(plan, health=None)),
        plan_frame(Plan(phases=(Phase("done", outcome.done),) if outcome.done else (), refused=undone)),
    ]
    names = [digest(frame) for frame in frames]
    entry = CycleEntry(
        number=number,
        at_s=snapshot.at_s,
        observed_at_s=dict(snapshot.observed_at_s),
        snapshot=names[0],
        wanted=names[1],
        guarded=names[2],
        outcome=names[3],
        stage_s=dict(cycle.stage_s),
        is_quiet=cycle.is_quiet and not plan.refused and not cycle.outcome.undone,
        last_at_s=snapshot.at_s,
    )
    return entry, tuple(dict(zip(names, frames, strict=True)).items())


def digest(frame: bytes) -> str:
    """Name of a frame: the digest of its content."""
    return sha256(frame).hexdigest()[:DIGEST_SIGNS]


def outcome_from(frame: bytes) -> Outcome:
    """Outcome from a frame. Raises FrameError."""
    plan = plan_from_frame(frame)
    return Outcome(tuple(plan.steps()), tuple(Undone(each.step, each.reason) for each in plan.refused))


def seen_at(snapshot: Snapshot, entry: CycleEntry) -> Snapshot:
    """The snapshot of a frame with the instants of the entry."""
    return replace(snapshot, at_s=entry.at_s, observed_at_s=entry.observed_at_s)
