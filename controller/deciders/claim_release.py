"""Release of ResourceClaims that were allocated for pods which get no node, so that their devices become free.

Such a claim is left by a leader that died between writing claim and pod, and by a refused Binding. The plan places the
pod on the node of its claims; where that node has no room any more, the devices would be held for nothing.
"""

from cluster.actions import ReleaseClaim
from cluster.plans import Phase, Plan, Reason, Step
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.deciders.deadlines import late
from controller.deciders.decider import Turn


def decide(snapshot: Snapshot, turn: Turn) -> Plan:
    """Releases claims that have been idle past the deadline and whose pods this plan does not start."""
    deadline_s = turn.decisions.release_deadline_s
    since_s = {claim.name: claim.allocated_at_s for claim in snapshot.idle_claims if not _starts(snapshot, claim.pods)}
    words = f"it was allocated {deadline_s:g} s ago, and no pod of it has got a node"
    steps = tuple(
        Step(ReleaseClaim(name), Reason("ClaimIdle", words))
        for name in late(since_s, since_s, at_s=snapshot.at_s, after_s=deadline_s)
    )
    return Plan(phases=(Phase("release claims", steps),)) if steps else Plan()


def _starts(snapshot: Snapshot, pods: tuple[str, ...]) -> bool:
    rows = (snapshot.pods.names.row(pod) for pod in pods)
    return any(snapshot.pods.node[row] != PENDING for row in rows if row is not None)
