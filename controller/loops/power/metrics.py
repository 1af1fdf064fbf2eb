"""Metrics of power: gauges of each domain, and the health of the fast loop."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controller.loops.power.domain_facts import DomainFacts
from controller.loops.power.loop import PowerLoop
from controller.metrics.registry import Meter, Sample

REFUSALS = ("Forged", "UnknownKey", "Unreadable", "OtherNode", "OtherLife", "Replayed")
"""Codes of refused agent messages, whose counters start at 0."""


def samples_of(facts: Mapping[str, DomainFacts]) -> Iterator[Sample]:
    """Gauges of every domain."""
    for name, each in facts.items():
        yield Sample("tonnage_power_draw_watts", (name,), each.draw_w)
        yield Sample("tonnage_power_worst_watts", (name,), each.worst_w)
        if each.headroom_w is not None:
            yield Sample("tonnage_power_headroom_watts", (name,), each.headroom_w)
        if each.budget_w is not None:
            yield Sample("tonnage_power_budget_watts", (name,), each.budget_w)
        yield Sample("tonnage_power_brake", (name,), each.is_braked)
        states = {"stale": each.stale, "disobedient": each.suspects, "held_back": each.held}
        states["free"] = each.devices - sum(states.values())
        for state, count in states.items():
            yield Sample("tonnage_power_devices", (name, state), count)
        for power_class, watts in each.short_w.items():
            yield Sample("tonnage_power_short_watts", (name, power_class), watts)


@dataclass(slots=True)
class PowerLoopMetrics:
    """Exporter of the loop's counters. Called in the loop's thread after each update."""

    meter: Meter
    boot_to_epoch_s: float
    """Offset that converts instants of the loop's clock to seconds since the epoch."""
    exported: dict[str, Counter[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.meter.foresee("tonnage_power_messages_refused_total", REFUSALS)
        for name in ("reports", "leases", "failed_turns"):
            self.meter.count(f"tonnage_power_{name}_total", by=0)

    def publish(self, loop: PowerLoop) -> None:
        meter, counts = self.meter, loop.counts
        self._rise("tonnage_power_reports_total", Counter({"": counts.reports}))
        self._rise("tonnage_power_leases_total", Counter({"": counts.leases}))
        self._rise("tonnage_power_failed_turns_total", Counter({"": counts.failures}))
        self._rise("tonnage_power_messages_refused_total", Counter(counts.refused))
        for took_s in counts.reaction_s:
            meter.observe("tonnage_power_reaction_seconds", took_s)
        counts.reaction_s.clear()
        meter.set("tonnage_power_agents", loop.agents)
        meter.set("tonnage_power_turn_seconds", counts.turn_s)
        turned_at_s = counts.turned_at_s + self.boot_to_epoch_s if counts.turned_at_s and loop.loop_state else 0.0
        meter.set("tonnage_power_last_turn_timestamp_seconds", turned_at_s)

    def _rise(self, name: str, now: Counter[str]) -> None:
        for label, count in (now - self.exported.get(name, Counter())).items():
            self.meter.count(name, *([label] if label else []), by=count)
        self.exported[name] = Counter(now)
