"""Deadlines: since when a condition lasts that should end on its own, and whether that is too long.

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
    needed = np.minimum([gang.min_members for gang in snapshot.gangs], members)
    return {
        snapshot.gangs[number].name: tuple(runs[pods.gang[runs] == number].tolist())
        for number in np.flatnonzero((running > 0) & (running < needed)).tolist()
    }


def with_half_started_noted(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the instant since when each gang is partly started: now, where it was not known."""
    noted = since(half_started(snapshot), snapshot.half_started_since_s, snapshot.at_s)
    return snapshot if noted == snapshot.half_started_since_s else replace(snapshot, half_started_since_s=noted)


def roll_back_gangs(snapshot: Snapshot, turn: Turn) -> Plan:
    """Stops whole the gangs that have been partly started past the deadline and that this plan does not complete, and
    those that restart because they lost a member."""
    half, deadline_s = half_started(snapshot), turn.decisions.gang_deadline_s
    restarts = [gang.name for gang in snapshot.gangs if gang.must_restart and gang.name in half]
    gangs = late(half, snapshot.half_started_since_s, at_s=snapshot.at_s, after_s=deadline_s)
    stopped = {gang: _taken_back(gang, len(half[gang]), deadline_s) for gang in gangs}
    stopped |= {gang: _member_lost(gang, len(half[gang])) for gang in restarts}
    return Plan(phases=tuple(_rolled_back(snapshot, gang, half[gang], why) for gang, why in stopped.items()))


def _taken_back(gang: str, running: int, deadline_s: float) -> Reason:
    words = f"{gang} ran with {running} members, too few, for {deadline_s:g} s and nothing completes it"
    return Reason("GangTakenBack", words, {"running": running})


def _member_lost(gang: str, running: int) -> Reason:
    words = f"{gang} lost a member and restarts whole with the {running} that run, as its onMemberLoss says"
    return Reason("MemberLost", words, {"running": running})


def _rolled_back(snapshot: Snapshot, gang: str, rows: tuple[int, ...], why: Reason) -> Phase:
    nodes = snapshot.nodes.names
    steps = (Evict(snapshot.pods.names[row], nodes[int(snapshot.pods.node[row])]) for row in rows)
    return Phase(f"take back {gang}", tuple(Step(action, why) for action in steps), whole=False)


def end_releases(snapshot: Snapshot, turn: Turn) -> Plan:
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


def release_claims(snapshot: Snapshot, turn: Turn) -> Plan:
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


PODS_REFUSED = "PodsRefused"


def report_held_back(snapshot: Snapshot, turn: Turn) -> Plan:  # noqa: ARG001 - every decider's
    findings = (
        Finding(
            f"Node/{each.node}",
            Reason(
                PODS_REFUSED,
                f"its kubelet refused {each.refusals} pods that were placed on it, the last with {each.why}; it takes "
                f"no new pods for now, each time twice as long",
                {"refusals": float(each.refusals), "left_s": round(each.until_s - snapshot.at_s)},
            ),
        )
        for each in snapshot.held_back
    )
    return Plan(findings=tuple(findings))


def report_left_out(snapshot: Snapshot, turn: Turn) -> Plan:  # noqa: ARG001 - every decider's
    waiting = (Unplaced(f"Pod/{each.pod}", Reason(each.code, each.words)) for each in snapshot.left_out)
    return Plan(unplaced=tuple(waiting))
