"""Eviction of pods that were released towards a node and that kube-scheduler does not bind there within a deadline.

A node selector cannot be changed once the scheduling gates are gone, so such a pod never runs anywhere else. Until it
is deleted, it holds a place in which it will not start. Only pods that their owner creates again are evicted
(`movable`): any other would be lost.
"""

from cluster.actions import Evict
from cluster.plans import Phase, Plan, Reason, Step
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.deadlines import late
from controller.deciders.decider import Turn


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Evicts pods that are released but unbound past the deadline and that this plan leaves where they are."""
    pods, deadline_s = snapshot.pods, turn.decisions.release_deadline_s
    on_their_way = {
        name: int(row)
        for name in snapshot.released_at_s
        if (row := pods.names.row(name)) is not None and pods.node[row] != PENDING and pods.movable[row]
    }
    pods_late = late(on_their_way, snapshot.released_at_s, at_s=snapshot.at_s, after_s=deadline_s)
    nodes = snapshot.nodes.names
    steps = tuple(_evicted(name, nodes[int(pods.node[on_their_way[name]])], deadline_s) for name in pods_late)
    return Plan(phases=(Phase("take back releases", steps),)) if steps else Plan()


def _evicted(pod: str, node: str, deadline_s: float) -> Step:
    words = f"kube-scheduler has not bound it to {node} for {deadline_s:g} s; see its PodScheduled condition"
    return Step(Evict(pod, node), Reason("NotBound", words))
