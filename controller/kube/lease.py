"""Leader election by a coordination Lease, as a state machine without clock or I/O.

The algorithm is that of Kubernetes' own leader election: a Lease is free when it has not changed for its duration, by
the observer's own monotonic clock. Clocks of different machines are never compared.
"""

from dataclasses import dataclass, replace

KEPT = 16
"""Number of own renewals that are remembered. Each round writes one, and without an answer no more than five of them
fit into the time for which a Lease is held."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations of leader election. The defaults are those of Kubernetes' own controllers."""

    duration_s: int = 15
    """Time without a change after which a standby takes the Lease."""
    renew_deadline_s: float = 10.0
    """Time without a successful renewal after which a leader stops writing. The difference to `duration_s` is the time
    that a request in flight may take."""
    retry_s: float = 2.0
    """Interval of renewing or reading the Lease."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Content of the Lease in the API."""

    holder: str = ""
    """Identity of the leader; empty after a release."""
    duration_s: int = 15
    acquired: str = ""
    """RFC 3339 instant for human readers, as `renewed`; here only a change of it matters."""
    renewed: str = ""
    transitions: int = 0
    """Number of changes of the holder: the epoch with which a leader stamps its writes."""
    version: str = ""
    """resourceVersion, the precondition of replacing the Lease; empty when it does not exist yet."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """State of one candidate for leadership. Instants are of its own monotonic clock, seconds."""

    identity: str
    """Identity that people read; two candidates may have the same, as from one settings file."""
    times: LeaseTimes = LeaseTimes()
    seen: LeaseRecord | None = None
    """Lease as last read; None before the first read."""
    seen_at_s: float = 0.0
    """Time at which `seen` was first read with this content."""
    renewed_at_s: float | None = None
    """Time at which the last successful renewal was sent (not answered); None while the candidate does not lead."""
    sent: tuple[str, ...] = ()
    """Renewals of the last writes, by which a Lease under this identity is known as this candidate's own: another
    process may have the same identity, and would write beside it."""

    @property
    def epoch(self) -> int:
        return self.seen.transitions if self.seen else 0

    def write_until_s(self) -> float | None:
        """Time until which this candidate may start a write; None when it does not lead."""
        return None if self.renewed_at_s is None else self.renewed_at_s + self.times.renew_deadline_s

    def may_write(self, now_s: float) -> bool:
        until_s = self.write_until_s()
        return until_s is not None and now_s < until_s

    def watched(self, record: LeaseRecord, now_s: float) -> "Candidate":
        """State after a read of the Lease. When another candidate holds it, this one's leadership ends at once."""
        changed = self.seen is None or record != self.seen
        renewed_at_s = self.renewed_at_s if self._wrote(record) else None
        return replace(self, seen=record, seen_at_s=now_s if changed else self.seen_at_s, renewed_at_s=renewed_at_s)

    def wanted(self, now_s: float, instant: str) -> LeaseRecord | None:
        """Lease that this candidate should try to write now; None while another candidate holds it.

        instant: RFC 3339 with microseconds. The Lease must have been read before (`LeaseRecord()` when there is none).
        """
        assert self.seen is not None, "the Lease is read before it is wanted"  # noqa: S101 - an error of the caller
        seen = self.seen
        if self._wrote(seen):
            return replace(seen, renewed=instant, duration_s=self.times.duration_s)
        if seen.holder and now_s < self.seen_at_s + seen.duration_s:
            return None
        # The first holder of a new Lease makes no transition; every later holder begins a new epoch.
        transitions = seen.transitions + 1 if seen.version else 0
        return LeaseRecord(self.identity, self.times.duration_s, instant, instant, transitions, seen.version)

    def sending(self, record: LeaseRecord) -> "Candidate":
        """State before a write, which may take effect without an answer."""
        return replace(self, sent=(*self.sent, record.renewed)[-KEPT:])

    def written(self, record: LeaseRecord, sent_at_s: float) -> "Candidate":
        """State after the API accepted `record`, in a request that was sent at `sent_at_s`."""
        return replace(self.sending(record), seen=record, seen_at_s=sent_at_s, renewed_at_s=sent_at_s)

    def _wrote(self, record: LeaseRecord) -> bool:
        return record.holder == self.identity and record.renewed in self.sent

    def released(self, instant: str) -> LeaseRecord | None:
        """Lease that a leader writes when it ends, so that a standby need not wait; None when it does not lead."""
        if self.seen is None or not self._wrote(self.seen):
            return None
        return replace(self.seen, holder="", duration_s=1, renewed=instant)
