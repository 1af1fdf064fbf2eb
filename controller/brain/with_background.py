"""A brain that thinks beside its plans: what came out of slots is taken up with the next plan.

On Ray the slots are actors and nobody waits for them. While there is no Ray, or a slot has been silent for a few plans,
its occupant thinks here, after the plan and where its deadline leaves time for it: less far, from the same memory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from cluster.clock import Clock
from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from controller.brain.background_frames import Idea, thought_from_frame
from controller.brain.frames import FrameError
from controller.deciders.background import Occupant, Thought
from controller.deciders.decider import BackgroundDecider
from controller.deciders.pipeline import Adopt
from placement.budget import stopped

log = structlog.get_logger(__name__)

HERE_S = 0.2
"""For all occupants together, when they think in this process: a tenth of the shortest deadline that is usual."""
OUT_OF_TIME = Reason("BackgroundOutOfTime", "no time was left for what is decided beside the plan")
PATIENCE = 3
"""Plans without a thought of a slot before its occupant thinks here. Chosen: a lost actor is back within two."""


@dataclass(slots=True)
class SlotCounts:
    """What became of slots since the start, by slot and word; for the metrics."""

    thoughts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By who thought: `ray`, `local`."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By why there was no thought."""
    actions: Counter[str] = field(default_factory=Counter)
    """Actions of thoughts that plans took up."""


def no_ideas() -> list[Idea]:
    """Of slots that are nowhere but here."""
    return []


def forget(slot: str, memory: bytes) -> None:
    """For brains that nobody else thinks for."""


@dataclass(slots=True)
class Background:
    """The background deciders of a brain: what they found elsewhere, or what they find here instead."""

    occupants: Sequence[Occupant]
    clock: Clock
    ideas: Callable[[], Iterable[Idea]] = no_ideas
    """What has come out of slots elsewhere since the last call."""
    remember: Callable[[str, bytes], None] = forget
    """Told what an occupant remembers, for whoever thinks next."""
    is_up: Callable[[], bool] = lambda: False
    """Whether slots elsewhere are worth waiting for."""
    counts: SlotCounts = field(default_factory=SlotCounts)
    memories: dict[str, bytes] = field(default_factory=dict)
    _silent: Counter[str] = field(default_factory=Counter)
    """Plans since the last thought, by slot."""

    def beside(self, over_at_s: float) -> Adopt:
        """How the plan that is due at this instant adopts what was found."""
        came: dict[str, Idea] | None = None
        by_name = {occupant.name: occupant for occupant in self.occupants}

        def adopt(decider: BackgroundDecider, snapshot: Snapshot, plan: Plan) -> Plan:
            nonlocal came
            occupant = by_name.get(decider.name)
            if occupant is None:
                return Plan()
            if came is None:  # as late as can be: what comes while planners plan is in time
                came = {idea.slot: idea for idea in self.ideas()}
            after = _what_stays(snapshot, plan)
            thought = self._read(came.get(occupant.name)) or self._thought_here(occupant, after, over_at_s)
            return Plan() if thought is None else self._adopted(occupant, after, thought)

        return adopt

    def _read(self, idea: Idea | None) -> Thought | None:
        if idea is None:
            return None
        if idea.reason:
            self._failed(idea)
            return None
        try:
            thought = thought_from_frame(idea.frame)
        except FrameError as error:
            self._failed(replace(idea, reason="garbled", words=str(error)))
            return None
        self.counts.thoughts[idea.slot, "ray"] += 1
        return thought

    def _thought_here(self, occupant: Occupant, snapshot: Snapshot, over_at_s: float) -> Thought | None:
        """What its occupant thinks in this process, where the slot is away or silent and there is time."""
        self._silent[occupant.name] += 1
        if self.is_up() and self._silent[occupant.name] < PATIENCE:
            return None
        memory, within_s = self.memories.get(occupant.name, b""), HERE_S / len(self.occupants)
        if over_at_s - self.clock() < within_s:
            return Thought(Plan(cut_short=(OUT_OF_TIME,)), memory)
        try:
            thought = occupant.think(snapshot, memory, within_s)
        except Exception as error:
            log.exception("a slot's occupant failed", slot=occupant.name)
            self._failed(Idea(occupant.name, reason="error", words=str(error)))
            return None
        self.counts.thoughts[occupant.name, "local"] += 1
        self.remember(occupant.name, thought.memory)
        return thought

    def _adopted(self, occupant: Occupant, snapshot: Snapshot, thought: Thought) -> Plan:
        self._silent[occupant.name] = 0
        self.memories[occupant.name] = thought.memory
        try:
            adopted = occupant.adopt(snapshot, thought.plan)
        except Exception as error:
            log.exception("a slot's proposal could not be weighed", slot=occupant.name)
            self._failed(Idea(occupant.name, reason="error", words=str(error)))
            return Plan()
        self.counts.actions[occupant.name] += len(adopted.actions)
        return adopted

    def _failed(self, idea: Idea) -> None:
        self.counts.failures[idea.slot, idea.reason] += 1
        log.warning("a slot gave no thought", slot=idea.slot, reason=idea.reason, why=idea.words)


def no_background() -> Background:
    """Where nothing is decided beside plans."""
    return Background((), stopped)


def _what_stays(before: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot after the plan, in which what it starts or stops is not to be moved as well."""
    after = before.after(plan.actions)
    where = dict(zip(before.pods.names, before.pods.node.tolist(), strict=True))
    stays = [where.get(name) == node for name, node in zip(after.pods.names, after.pods.node.tolist(), strict=True)]
    return replace(after, pods=replace(after.pods, movable=after.pods.movable & stays))
