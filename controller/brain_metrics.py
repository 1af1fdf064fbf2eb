"""What the metrics say of the brain: counted where it happens, told here after each cycle."""

from collections import Counter
from dataclasses import dataclass, field

from controller.meter import Meter
from controller.ray_brain import RayBrain


@dataclass(slots=True)
class BrainTeller:
    """Remembers what it has told, for counters only rise by what is new."""

    meter: Meter
    told: dict[str, Counter[str]] = field(default_factory=dict)

    def tell(self, brain: RayBrain) -> None:
        meter, counts, standing = self.meter, brain.counts, brain.standing
        self._rise("tonnage_brain_plans_total", counts.plans)
        self._rise("tonnage_brain_fallbacks_total", counts.fallbacks)
        self._rise("tonnage_brain_restarts_total", standing.losses)
        self._rise("tonnage_brain_late_answers_total", Counter({"": standing.late}))
        meter.set("tonnage_brain_up", int(standing.state == "up" and standing.trusted))
        meter.set("tonnage_brain_planners", standing.planners_up)
        meter.set("tonnage_brain_planner_restarts", standing.planner_restarts)
        meter.set("tonnage_brain_handover_seconds", counts.handover_s)

    def _rise(self, name: str, now: Counter[str]) -> None:
        before = self.told.get(name, Counter())
        for label, count in (now - before).items():
            self.meter.count(name, *([label] if label else []), by=count)
        self.told[name] = Counter(now)
