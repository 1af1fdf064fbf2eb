"""Planner memory, kept from one plan to the next.

The facts that decisions depend on are in the snapshot. The memory holds what makes plans quick, and what the packing
policy learned of the pods that arrive; it lives and ends with its process. Two planners that received the same
snapshots from the same start make the same plans, and one that starts later learns first from the pods that it finds.
"""

from dataclasses import dataclass, field
from functools import partial
from threading import Thread

from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions
from placement.engine.live_packer import LivePacker
from placement.engine.packer import Packer
from placement.engine.policy import Adopt, SlowWork
from placement.mix.memory import SearchMemory
from placement.policies import policy_named


@dataclass(slots=True)
class Task:
    """Work in a thread of its own, with its result or its error."""

    work: SlowWork
    adopt: Adopt | None = None
    error: BaseException | None = None
    thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        # One thread for each: it is due once in many plans, and a pool would be one more thing to close.
        self.thread = Thread(target=self._run, name="packing prices")
        self.thread.start()

    def _run(self) -> None:
        try:
            self.adopt = self.work()
        except BaseException as error:  # noqa: BLE001 - raised by `result` in the planner's thread
            self.error = error


@dataclass(slots=True)
class SlowWorker:
    """At most one piece of slow work at a time."""

    task: Task | None = None

    def finish(self, within_s: float) -> bool:
        """Adopts the result, waiting for it. False when it is not ready in time; it is then kept for the next call.

        The work counts steps, not seconds, so only a machine that is very busy is late. Raises the work's error, once:
        the policy goes on with what it had.
        """
        task = self.task
        if task is None:
            return True
        task.thread.join(None if within_s == float("inf") else max(0.0, within_s))
        if task.thread.is_alive():
            return False
        self.task = None
        if task.error is not None:
            raise task.error
        if task.adopt is not None:
            task.adopt()
        return True


WAIT_SHARE = 0.5
"""Largest fraction of the remaining time for which a plan waits for new prices: the rest is for packing."""


@dataclass(slots=True)
class PackingMemory:
    """Packing policy, with the thread that makes its prices."""

    packer: LivePacker
    worker: SlowWorker = field(default_factory=SlowWorker)
    is_late: bool = False
    """Whether the prices that the last packing engine should use were not ready in time."""
    tried: frozenset[str] = frozenset()
    """Units that the last plan tried in vain, where its work did not suffice for all (`tried_in_vain`)."""

    @classmethod
    def under(cls, decisions: Decisions) -> "PackingMemory":
        """Empty memory for the packing policy of these decisions."""
        policy_of = partial(policy_named, decisions.policy)
        return cls(LivePacker(policy_of, decisions.seed, returns_idle_nodes=decisions.returns_idle_nodes))

    def packer_for(self, snapshot: Snapshot, left_s: float) -> Packer:
        """The packing engine for a snapshot. left_s: time until the deadline."""
        self.is_late = not self.worker.finish(WAIT_SHARE * left_s)
        return self.packer.packer(snapshot)

    def rest(self) -> None:
        """Starts the slow work that is due, after a plan."""
        if self.worker.task is None and (work := self.packer.slow_work()):
            self.worker.task = Task(work)


@dataclass(slots=True)
class PlannerMemory:
    """All that a planner keeps."""

    packing: PackingMemory | None = None
    mix: SearchMemory = field(default_factory=SearchMemory)
    """Searches of the mix, which the next plan goes on with."""

    def packing_under(self, decisions: Decisions) -> PackingMemory:
        """Memory of the packing policy, empty at first. A memory belongs to one planner, and so to one policy."""
        if self.packing is None:
            self.packing = PackingMemory.under(decisions)
        return self.packing

    def rest(self) -> None:
        """Uses the time between two plans."""
        if self.packing is not None:
            self.packing.rest()
