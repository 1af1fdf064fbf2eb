"""Closing deciders of a plan: they end conditions that last too long, and report what the plan cannot change.

The start instants are data of the snapshot, stored on the cluster's objects themselves, so a restart or a new leader
loses nothing. Instants are seconds since the epoch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from cluster.actions import Evict, ReleaseClaim
from cluster.plans import Finding, Phase, Plan, Reason, Step, Unplaced
from cluster.snapshot import PENDING, Snapshot
from controller.deciders.decider import Turn

PODS_REFUSED = "PodsRefused"
"""Code of the finding on a node whose kubelet refused pods."""


def since(standing: Iterable[str], known: Mapping[str, float], at_s: float) -> dict[str, float]:
    """Start instant of each lasting condition: the known one, or else now. Conditions that have ended are forgotten.

    at_s: now. An instant in the future was written by a clock that runs ahead: it counts as now.
    """
    return {name: min(known.get(name, at_s), at_s) for name in standing}


def late(standing: Iterable[str], known: Mapping[str, float], *, at_s: float, after_s: float) -> list[str]:
    """Names of the conditions that have lasted for `after_s` or longer, in the order given."""
    return [name for name, since_s in since(standing, known, at_s).items() if at_s - since_s >= after_s]


def half_started(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """Rows of the running members, by gang, for gangs that run with fewer members than they need and have pending ones.

    A gang without pending members is ending: its members finish one after another.
    """
    pods, count = snapshot.pods, len(snapshot.gangs)
    member = np.flatnonzero(pods.gang >= 0)
    runs = member[pods.node[member] != PENDING]
    members, running = np.bincount(pods.gang[member], minlength=count), np.bincount(pods.gang[runs], minlength=count)
    few = np.array([gang.min_members for gang in snapshot.gangs]) > running
    for number, gang in enumerate(snapshot.gangs):
        if gang.groups and not few[number]:
            few[number] = gang.lacks([pods.names[row] for row in runs[pods.gang[runs] == number].tolist()]) > 0
    return {
        snapshot.gangs[number].name: tuple(runs[pods.gang[runs] == number].tolist())
        for number in np.flatnonzero((running > 0) & few & (running < members)).tolist()
    }


def with_half_started_noted(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the instant since when each gang is partly started: now, where it was not known."""
    noted = since(half_started(snapshot), snapshot.half_started_since_s, snapshot.at_s)
    return snapshot if noted == snapshot.half_started_since_s else replace(snapshot, half_started_since_s=noted)


def roll_back_gangs(snapshot: Snapshot, turn: Turn) -> Plan:
    """Stops whole the gangs that have been partly started past the deadline and that this plan does not complete, and
    those that restart because they lost a member.

    A leader that died in the middle of starting a gang leaves it partly started; its successor's plan completes it
    where there is room. Where there is none, the members that run hold devices for nothing.
    """
    half, deadline_s = half_started(snapshot), turn.decisions.gang_deadline_s
    stopped: dict[str, Reason] = {}
    for gang in late(half, snapshot.half_started_since_s, at_s=snapshot.at_s, after_s=deadline_s):
        words = f"{gang} ran with {len(half[gang])} members, too few, for {deadline_s:g} s and nothing completes it"
        stopped[gang] = Reason("GangTakenBack", words, {"running": len(half[gang])})
    for gang in (each.name for each in snapshot.gangs if each.must_restart and each.name in half):
        count = len(half[gang])
        words = f"{gang} lost a member and restarts whole with the {count} that run, as its onMemberLoss says"
        stopped[gang] = Reason("MemberLost", words, {"running": count})
    pods, nodes = snapshot.pods, snapshot.nodes.names
    phases = []
    for gang, why in stopped.items():
        steps = tuple(Step(Evict(pods.names[row], nodes[int(pods.node[row])]), why) for row in half[gang])
        phases.append(Phase(f"take back {gang}", steps, whole=True))
    return Plan(phases=tuple(phases))


REFUSED_S = 5.0
"""Seconds after which a pod that kube-scheduler refuses counts as overdue. Chosen: kube-scheduler tries again within a
second or two of a change that may help, such as the end of the pod whose place this one gets."""


def overdue(
    released_at_s: Mapping[str, float], says: Mapping[str, str], *, at_s: float, deadline_s: float
) -> list[str]:
    """Released pods that kube-scheduler has not bound in time. says: its words for those that it refuses."""
    refused = late(says, released_at_s, at_s=at_s, after_s=min(REFUSED_S, deadline_s))
    return list(dict.fromkeys((*refused, *late(released_at_s, released_at_s, at_s=at_s, after_s=deadline_s))))


def not_bound(node: str, says: str, deadline_s: float) -> str:
    """Why a released pod is no longer waited for, in words."""
    return f"not bound to {node}: {says}" if says else f"kube-scheduler has not bound it to {node} for {deadline_s:g} s"


def end_releases(snapshot: Snapshot, turn: Turn) -> Plan:
    """Evicts pods that are released towards a node and overdue, where this plan leaves them.

    Node affinity cannot be changed once the scheduling gates are gone, so such a pod never runs anywhere else. Until
    it is deleted, it holds a place in which it will not start. Only pods that their owner creates again are evicted:
    any other would be lost, and is reported instead.
    """
    pods, deadline_s, nodes = snapshot.pods, turn.decisions.release_deadline_s, snapshot.nodes.names
    steps, stuck = [], []
    for name in overdue(snapshot.released_at_s, snapshot.scheduler_says, at_s=snapshot.at_s, deadline_s=deadline_s):
        row = pods.names.row(name)
        if row is None or pods.node[row] == PENDING:
            continue
        node = nodes[int(pods.node[row])]
        words = not_bound(node, snapshot.scheduler_says.get(name, ""), deadline_s)
        if pods.movable[row] or name in snapshot.recreated:
            steps.append(Step(Evict(name, node), Reason("NotBound", words)))
        else:
            held = f"{words}. It holds its devices there until it is deleted: no owner would create it anew"
            stuck.append(Unplaced(f"Pod/{name}", Reason("NotBound", held)))
    phases = (Phase("take back releases", tuple(steps)),) if steps else ()
    return Plan(phases=phases, unplaced=tuple(stuck))


def release_claims(snapshot: Snapshot, turn: Turn) -> Plan:
    """Releases claims that have been idle past the deadline and whose pods this plan does not start.

    Such a claim is left by a leader that died between writing claim and pod, and by a refused Binding. The plan places
    the pod on the node of its claims; where that node has no room any more, the devices would be held for nothing.
    """
    pods, deadline_s = snapshot.pods, turn.decisions.release_deadline_s
    since_s = {}
    for claim in snapshot.idle_claims:
        rows = [row for pod in claim.pods if (row := pods.names.row(pod)) is not None]
        if all(pods.node[row] == PENDING for row in rows):
            since_s[claim.name] = claim.allocated_at_s
    why = Reason("ClaimIdle", f"it was allocated {deadline_s:g} s ago, and no pod of it has got a node")
    names = late(since_s, since_s, at_s=snapshot.at_s, after_s=deadline_s)
    steps = tuple(Step(ReleaseClaim(name), why) for name in names)
    return Plan(phases=(Phase("release claims", steps),)) if steps else Plan()


def report_held_back(snapshot: Snapshot, turn: Turn) -> Plan:  # noqa: ARG001 - every decider's
    """Findings on nodes that take no new pods for now, because their kubelet refused some."""
    findings = []
    for each in snapshot.held_back:
        words = (
            f"its kubelet refused {each.refusals} pods that were placed on it, the last with {each.why}; it takes "
            f"no new pods for now, each time twice as long"
        )
        figures = {"refusals": float(each.refusals), "left_s": round(each.until_s - snapshot.at_s)}
        findings.append(Finding(f"Node/{each.node}", Reason(PODS_REFUSED, words, figures)))
    return Plan(findings=tuple(findings))


def report_left_out(snapshot: Snapshot, turn: Turn) -> Plan:  # noqa: ARG001 - every decider's
    """Pods that ask for Tonnage but that no decider sees, with the reason, such as claims that cannot be allocated."""
    return Plan(
        unplaced=tuple(Unplaced(f"{each.kind}/{each.pod}", Reason(each.code, each.words)) for each in snapshot.left_out)
    )
