"""Who may write: the rules of a coordination Lease, as a state machine that asks no clock and sends nothing.

The algorithm is that of Kubernetes' own leader election: a Lease that has not changed for its duration, by the
watcher's own monotonic clock, is free. Clocks of different machines are never compared.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long leadership lasts. The defaults are those of Kubernetes' own controllers."""

    duration_s: int = 15
    """A standby takes a Lease that it has seen unchanged for so long."""
    renew_deadline_s: float = 10.0
    """A leader that could not renew for so long stops writing. The difference to `duration_s` is the time that a
    request in flight may take."""
    retry_s: float = 2.0
    """How often the Lease is renewed, or looked at."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The Lease as it stands in the API."""

    holder: str = ""
    """Identity of the leader; empty when it was released."""
    duration_s: int = 15
    acquired: str = ""
    """RFC 3339 instants for people to read; only their change means anything here."""
    renewed: str = ""
    transitions: int = 0
    """How often the holder changed: the epoch of what a leader writes."""
    version: str = ""
    """resourceVersion, the precondition of replacing it; empty when there is no Lease yet."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What one candidate knows of the Lease. Instants are of its own monotonic clock, seconds."""

    identity: str
    """Never used twice: a restarted process is another candidate."""
    times: LeaseTimes = LeaseTimes()
    seen: LeaseRecord | None = None
    seen_at_s: float = 0.0
    """When `seen` was first seen as it is."""
    renewed_at_s: float | None = None
    """When the last renewal that succeeded was sent (not: answered); None while it does not lead."""

    @property
    def epoch(self) -> int:
        return self.seen.transitions if self.seen else 0

    def write_until_s(self) -> float | None:
        """Until when this candidate may start writing; None when it may not at all."""
        return None if self.renewed_at_s is None else self.renewed_at_s + self.times.renew_deadline_s

    def may_write(self, now_s: float) -> bool:
        until_s = self.write_until_s()
        return until_s is not None and now_s < until_s

    def watched(self, record: LeaseRecord, now_s: float) -> "Standing":
        """After having read the Lease. One that another holds ends this candidate's leadership at once."""
        changed = self.seen is None or record != self.seen
        renewed_at_s = self.renewed_at_s if record.holder == self.identity else None
        return replace(self, seen=record, seen_at_s=now_s if changed else self.seen_at_s, renewed_at_s=renewed_at_s)

    def wanted(self, now_s: float, instant: str) -> LeaseRecord | None:
        """The Lease as this candidate should try to write it now; None while another holds it.

        instant: RFC 3339 with microseconds. A Lease must have been read before (`LeaseRecord()` when there is none).
        """
        assert self.seen is not None, "the Lease is read before it is wanted"  # noqa: S101 - a mistake of the caller
        seen = self.seen
        if seen.holder == self.identity:
            return replace(seen, renewed=instant, duration_s=self.times.duration_s)
        if seen.holder and now_s < self.seen_at_s + seen.duration_s:
            return None
        # A Lease that was never held has no transition behind it; any later holder is a new epoch.
        transitions = seen.transitions + 1 if seen.version else 0
        return LeaseRecord(self.identity, self.times.duration_s, instant, instant, transitions, seen.version)

    def written(self, record: LeaseRecord, sent_at_s: float) -> "Standing":
        """After `record` was accepted by the API; `sent_at_s` is when the request left."""
        return replace(self, seen=record, seen_at_s=sent_at_s, renewed_at_s=sent_at_s)

    def released(self, instant: str) -> LeaseRecord | None:
        """The Lease as a leader leaves it behind, so that a standby need not wait; None when it does not lead."""
        if self.seen is None or self.seen.holder != self.identity:
            return None
        return replace(self.seen, holder="", duration_s=1, renewed=instant)
