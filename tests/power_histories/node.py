"""Nodes of the histories: an agent's rules for its lease, record and clock, without its threads and files."""

from dataclasses import replace

from nodeagent.agent import device_reports, inventory_of
from nodeagent.recovery import AgentRules, Session, record_at_start
from nodeagent.state_file import Record
from power.devices.backend import DeviceReading
from power.leases.holder import Bursting, Holder, accepted, is_in_force, limits, orders
from power.leases.messages import Lease, Refusal, Report, decoded, encoded
from tests.power_histories.hardware import Gpu, facts_of, readings_of

FOUND_AGAIN_S = 10.0
"""Shortest interval between discoveries; an agent waits a minute."""


class Node:
    """One machine with its GPUs and its agent. `lives` and `boots` number the agent's sessions and the machine's."""

    def __init__(
        self, name: str, gpus: int, start_s: float, rate: float, actuation_s: float, floor_share: float
    ) -> None:
        """start_s, rate: the agent's clock, which starts again with the machine. actuation_s: delay of limits.
        floor_share: the agent's own floor, as a fraction of the highest limit.
        """
        self.name, self.actuation_s, self._rate = name, actuation_s, rate
        self._rules = AgentRules(floor_share=floor_share)
        self._start_s, self.boots, self.lives = start_s, 0, 0
        self.gpus = {f"{name}-{n}": Gpu(f"{name}-{n}") for n in range(gpus)}
        self.record = Record()
        self.runs = False
        """Whether the agent runs; it starts at `starts_s`, and acts from `paused_until_s` on."""
        self.starts_s = self.paused_until_s = 0.0
        self.readings: dict[str, DeviceReading] = {}

    def clock(self, now_s: float) -> float:
        return self._start_s + self._rate * now_s

    @property
    def holder(self) -> Holder:
        assert self.record.holder is not None
        return self.record.holder

    def end(self, starts_s: float, *, keeps_record: bool) -> None:
        """The agent's process ends, and starts again later."""
        self.runs, self.starts_s = False, starts_s
        if not keeps_record:
            self.record = Record()

    def reboot(self, now_s: float, starts_s: float) -> None:
        """Limits and the clock start again; the lease of before belongs to another boot."""
        self.boots += 1
        self._start_s = -self._rate * now_s
        self.end(starts_s, keeps_record=True)
        for gpu in self.gpus.values():
            gpu.reset()

    def jump(self, by_s: float) -> None:
        """The clock goes forward, as after a suspension that it counted."""
        self._start_s += by_s

    def turn(self, now_s: float) -> bytes | None:
        """Reads, keeps the devices within the lease, and reports; None while the agent does not run."""
        if now_s < max(self.starts_s, self.paused_until_s):
            return None
        if not self.runs:
            self._start(now_s)
        self._look(now_s)
        self._act(now_s)
        return self._report(now_s)

    def inventory(self) -> bytes:
        facts = {each.uuid: each for each in self.facts}
        return encoded(inventory_of(self.holder, facts, self.record.previous))

    def hear(self, travelled: bytes, now_s: float) -> Refusal | None:
        """A lease for this node; refused by the rules of `Holder`, or lost while the agent does not run."""
        if not self.runs or now_s < self.paused_until_s:
            return None
        lease = decoded(Lease, travelled, self.name)
        if isinstance(lease, Refusal):
            return lease
        holder, refusal = accepted(self.holder, lease, self.clock(now_s))
        if refusal is None:
            self.record = replace(self.record, holder=holder)
            self._answered = (holder.epoch, holder.issued_s, self.clock(now_s))
        return refusal

    def _start(self, now_s: float) -> None:
        self.facts, self._found_s = facts_of(self.gpus), now_s
        self._resume(now_s)
        self.runs = True

    def _resume(self, now_s: float) -> None:
        self.lives += 1
        self.record = record_at_start(
            self.record,
            self.facts,
            readings_of(self.gpus, now_s),
            self._rules,
            Session(self.name, f"{self.name}-{self.lives}", str(self.boots)),
        )
        self._in_force, self._answered = (-1, -1), (-1, -1e15, self.clock(now_s))

    def _look(self, now_s: float) -> None:
        for gpu in self.gpus.values():
            gpu.settle(now_s)
        found = readings_of(self.gpus, self.clock(now_s))
        if found.keys() - {each.uuid for each in self.facts} and now_s >= self._found_s + FOUND_AGAIN_S:
            self.facts, self._found_s = facts_of(self.gpus), now_s
            self._resume(now_s)
        self.readings = dict(found)

    def _act(self, now_s: float) -> None:
        """As the agent does: what has to fall is lowered first, and nothing rises before that was read back."""
        wanted_w = limits(self.holder, self.clock(now_s))
        enforced_w = {u: r.limit_w for u, r in self.readings.items() if r.limit_w is not None}
        asked_w = {u: r.requested_w for u, r in self.readings.items() if r.requested_w is not None}
        lower, higher = orders(wanted_w, enforced_w, asked_w)
        reached = all(each.uuid in self.readings for each in lower)
        for each in (*lower, *(higher if reached else ())):
            if each.uuid in self.readings:
                self.gpus[each.uuid].order(each.limit_w, now_s + self.actuation_s)
                self.gpus[each.uuid].settle(now_s)
        still_due = any(self.gpus[uuid].due for uuid in wanted_w)
        now_w = {uuid: self.gpus[uuid].limit_w for uuid in self.readings}
        if not still_due and self.holder.sequence >= 0 and is_in_force(wanted_w, now_w):
            self._in_force = (self.holder.epoch, self.holder.sequence)

    def _report(self, now_s: float) -> bytes:
        clock_s, (epoch, answered_s, at_s) = self.clock(now_s), self._answered
        known = {each.uuid for each in self.facts}
        read = {u: replace(r, limit_w=self.gpus[u].limit_w) for u, r in self.readings.items() if u in known}
        draws_w = {uuid: each.draw_w or 0.0 for uuid, each in read.items()}
        devices = dict(device_reports(read, draws_w, limits(self.holder, clock_s), Bursting(), clock_s))
        since_s = max(0.0, clock_s - at_s)
        said = Report(self.name, self.holder.life, clock_s, *self._in_force, devices, epoch, answered_s, since_s)
        return encoded(said)
