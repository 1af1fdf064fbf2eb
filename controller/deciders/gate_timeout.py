"""Pods that were released towards a node and that kube-scheduler does not bind there: made anew, after a while."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cluster.actions import Evict
from cluster.plans import Phase, Plan, Reason, Step
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.ports import Brain

OnItsWay = Callable[[str], bool]
"""Whether a pod (`namespace/name`) has lost its gate and is not bound yet."""


@dataclass(frozen=True, slots=True)
class TakesReleasesBack:
    """A brain that also evicts released pods which kube-scheduler has left pending for too long.

    A node selector cannot be changed once the gates are gone, so such a pod will never run anywhere else; until it is
    deleted, it holds a place in which it will not start. Only pods that somebody makes anew are evicted (`movable`):
    any other would be lost.
    """

    brain: Brain
    is_on_its_way: OnItsWay
    deadline_s: float
    clock: Callable[[], float]
    since_s: dict[str, float] = field(default_factory=dict)
    """By pod, since when this process has seen it on its way; monotonic."""

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        plan = self.brain.plan(snapshot, deadline_s)
        now_s, pods = self.clock(), snapshot.pods
        under_way = {
            name: row
            for row, name in enumerate(pods.names)
            if pods.node[row] != PENDING and pods.movable[row] and self.is_on_its_way(name)
        }
        for settled in self.since_s.keys() - under_way.keys():
            del self.since_s[settled]
        seats = (seat for action in plan.actions for seat in action.seat_changes)
        stopped = {seat.pod for seat in seats if seat.node_before is not None}
        late = [name for name in under_way if now_s - self.since_s.setdefault(name, now_s) >= self.deadline_s]
        steps = tuple(
            self._back(name, snapshot.nodes.names[int(pods.node[under_way[name]])])
            for name in late
            if name not in stopped
        )
        return replace(plan, phases=(*plan.phases, Phase("take back releases", steps))) if steps else plan

    def _back(self, pod: str, node: str) -> Step:
        words = f"kube-scheduler has not bound it to {node} for {self.deadline_s:g} s; see its PodScheduled condition"
        return Step(Evict(pod, node), Reason("NotBound", words))
