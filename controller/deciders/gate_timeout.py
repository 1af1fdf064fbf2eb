"""Eviction of pods that were released towards a node and that kube-scheduler does not bind there within a deadline.

A node selector cannot be changed once the scheduling gates are gone, so such a pod never runs anywhere else. Until it
is deleted, it holds a place in which it will not start. Only pods that their owner creates again are evicted: any other
would be lost, and is told of instead.
"""

from cluster.actions import Evict
from cluster.plans import Phase, Plan, Reason, Step, Unplaced
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.deadlines import late
from controller.deciders.decider import Turn


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Evicts pods that are released but unbound past the deadline and that this plan leaves where they are."""
    pods, deadline_s, recreated = snapshot.pods, turn.decisions.release_deadline_s, set(snapshot.recreated)
    on_their_way = {
        name: int(row)
        for name in snapshot.released_at_s
        if (row := pods.names.row(name)) is not None and pods.node[row] != PENDING
    }
    pods_late = late(on_their_way, snapshot.released_at_s, at_s=snapshot.at_s, after_s=deadline_s)
    nodes = snapshot.nodes.names
    steps, stuck = [], []
    for name in pods_late:
        row = on_their_way[name]
        node = nodes[int(pods.node[row])]
        words = f"kube-scheduler has not bound it to {node} for {deadline_s:g} s; see its PodScheduled condition"
        if pods.movable[row] or name in recreated:
            steps.append(Step(Evict(name, node), Reason("NotBound", words)))
        else:
            held = f"{words}. It holds its devices there until it is deleted: no owner would create it anew"
            stuck.append(Unplaced(f"Pod/{name}", Reason("NotBound", held)))
    phases = (Phase("take back releases", tuple(steps)),) if steps else ()
    return Plan(phases=phases, unplaced=tuple(stuck))
