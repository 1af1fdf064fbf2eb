"""Claims of pods beyond placing them: why pods wait for theirs, and allocations that came to nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from cluster.errors import Mistake
from cluster.plans import Plan
from controller.dra.allocation import deallocation_writes
from controller.dra.objects import ResourceClaim
from controller.kube.cluster_view import SeenPod
from controller.kube.sender import Job

log = structlog.get_logger("devices")


@dataclass(frozen=True, slots=True)
class TakesAllocationsBack:
    """Deallocates claims that Tonnage allocated for a pod that has no node after a while.

    A leader that died between claim and pod leaves such, and so does a Binding that was refused. The next plan places
    the pod on the node of its claims; where that has no room any more, the devices would be held for nothing. Since
    when a claim stands so is counted by this process alone: a new leader gives it the whole time again.
    """

    half_made: Callable[[], Mapping[str, ResourceClaim]]
    """Claims (`namespace/name`) that Tonnage allocated and whose pods have no node."""
    users: Callable[[str], tuple[SeenPod, ...]]
    """The pods of a claim."""
    deadline_s: float
    clock: Callable[[], float]
    epoch: Callable[[], int]
    """Of the Lease, stamped on the claims."""
    since_s: dict[str, float] = field(default_factory=dict)
    """By claim and uid, since when this process has seen it so; monotonic."""

    def jobs(self, plan: Plan) -> Iterator[Job]:
        """What is to be written after a plan. Claims of pods that the plan bound are left alone, and those of pods
        that were released: kube-scheduler may bind them at any moment."""
        now_s, found = self.clock(), self.half_made()
        bound = {seat.pod for action in plan.actions for seat in action.seat_changes if seat.node_after is not None}
        late: list[ResourceClaim] = []
        standing: set[str] = set()
        for name, claim in found.items():
            users = self.users(name)
            if any(pod.name in bound or pod.node or pod.chosen_node for pod in users):
                continue
            key = f"{name} {claim.metadata.uid}"
            standing.add(key)
            if now_s - self.since_s.setdefault(key, now_s) >= self.deadline_s:
                late.append(claim)
        for gone in self.since_s.keys() - standing:
            del self.since_s[gone]
        for claim in late:
            for write in deallocation_writes(claim, self.epoch()):
                yield Job(f"ResourceClaim/{claim.name}", write)


@dataclass(slots=True)
class DeviceTroubles:
    """Logs what is wrong with the devices of nodes when it is new, and when it is over."""

    known: frozenset[Mistake] = frozenset()

    def tell(self, found: Iterable[Mistake]) -> None:
        now = frozenset(found)
        for each in sorted(now - self.known, key=str):
            log.warning("devices of a node cannot be used", node=each.place, why=each.problem, remedy=each.remedy)
        for each in sorted(self.known - now, key=str):
            log.info("devices of a node can be used again", node=each.place, was=each.problem)
        self.known = now
