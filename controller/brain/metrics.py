"""Metrics of the brain: counted where events happen, published after each cycle."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.brain.remote import RayBrain
from controller.brain.with_background import SlotCounts
from controller.metrics.registry import Meter

Labels = tuple[str, ...]


@dataclass(slots=True)
class BrainMetrics:
    """Publisher of the brain's metrics. It remembers published counts, because counters rise only by the difference."""

    meter: Meter
    told: dict[str, Counter[Labels]] = field(default_factory=dict)

    def tell(self, brain: RayBrain, slots: SlotCounts) -> None:
        meter, counts, standing = self.meter, brain.counts, brain.standing
        self._rise("tonnage_brain_plans_total", counts.plans)
        self._rise("tonnage_brain_fallbacks_total", counts.fallbacks)
        self._rise("tonnage_brain_restarts_total", standing.losses)
        self._rise("tonnage_brain_late_answers_total", Counter({"": standing.late}))
        self._rise("tonnage_brain_slot_thoughts_total", slots.thoughts)
        self._rise("tonnage_brain_slot_failures_total", slots.failures)
        self._rise("tonnage_brain_slot_actions_total", slots.actions)
        for slot in {name for name, _ in (*slots.thoughts, *slots.failures)} | set(standing.slots_up):
            meter.set("tonnage_brain_slot_up", int(slot in standing.slots_up), slot)
        meter.set("tonnage_brain_up", int(standing.state == "up" and standing.trusted))
        meter.set("tonnage_brain_planners", standing.planners_up)
        meter.set("tonnage_brain_planner_restarts", standing.planner_restarts)
        meter.set("tonnage_brain_handover_seconds", counts.handover_s)

    def _rise(self, name: str, now: Mapping[str, int] | Mapping[tuple[str, str], int]) -> None:
        """Raises a counter to the counts `now`: by label, by labels, or by "" where there is none."""
        counted: Counter[Labels] = Counter()
        for label, count in now.items():
            counted[(label,) if isinstance(label, str) else label] = count
        for labels, count in (counted - self.told.get(name, Counter())).items():
            self.meter.count(name, *filter(None, labels), by=count)
        self.told[name] = counted
