"""Situation: what remediation needs to know about jobs, nodes and limits, from objects and the stream."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from cluster.power import PowerTable
from cluster.snapshot import PENDING, Snapshot
from controller.api.health_policy import Detector, HealthPolicySpec, RemediationOwner
from controller.api.notation import instant_or_none
from controller.api.structs import Node
from controller.deciders.remediation import HealthRules, our_taint
from controller.dra.objects import ResourceSlice
from controller.loops.health.members import allowed_disruptions
from controller.loops.health.stream import HealthStream, OwnLimit
from health.remediation import facts
from health.remediation.incidents import Incident
from placement.packing.draft import effective_priority, gang_priorities
from power.control.admission import speed_at

OWNERS = (
    RemediationOwner(name="nvsentinel", label="dgxc.nvidia.com/nvsentinel-state"),
    RemediationOwner(name="cluster-autoscaler", taint="ToBeDeletedByClusterAutoscaler"),
    RemediationOwner(name="karpenter", taint="karpenter.sh/disrupted"),
)
"""Known remediations. Source: NVSentinel, "Node states"; Karpenter and cluster autoscaler, documentation of taints."""
_CONDITIONS = {
    "node-problem-detector": "KernelDeadlock ReadonlyFilesystem XfsShutdown CperHardwareErrorFatal",
    "nvsentinel": "GpuDriverWatch GpuInforomWatch GpuMcuWatch GpuMemWatch GpuNvlinkWatch GpuNvswitchFatalWatch "
    "GpuPcieWatch GpuSmWatch NCCLLoopbackTest SysLogsGPUFallenOff SysLogsSXIDError SysLogsXIDError",
}
"""Conditions of known detectors. Source: node-problem-detector, config/*.json; NVSentinel, names of its checks: fatal
ones alone become conditions. A test of a whole gang, NCCLAllReduceTest, accuses no single node."""
DETECTORS = tuple(
    Detector(name=name, condition=condition) for name, words in _CONDITIONS.items() for condition in words.split()
)


def owner_of(node: Node, spec: HealthPolicySpec) -> str:
    """Name of another remediation that owns the node; empty for none."""
    taints = {taint.key for taint in node.spec.taints}
    for owner in (*OWNERS, *spec.owners):
        if (owner.label and owner.label in node.metadata.labels) or (owner.taint and owner.taint in taints):
            return owner.name
    return ""


def tainted_devices(slices: Iterable[ResourceSlice]) -> dict[str, dict[str, list[str]]]:
    """Devices that DRA drivers have tainted in their ResourceSlices: by node, and by the taint's key."""
    found: dict[str, dict[str, list[str]]] = {}
    for each in slices:
        for device in each.spec.devices:
            for taint in device.taints:
                by_key = found.setdefault(each.spec.node_name, {})
                by_key.setdefault(taint.key, []).append(f"{each.spec.driver}/{device.name}")
    return found


def evidence_of(
    node: Node, spec: HealthPolicySpec, now_s: float, devices: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterator[facts.FaultEvidence]:
    """What other detectors say about the node, while they say it. devices: its tainted ones, by the taint's key."""
    taints = {taint.key for taint in node.spec.taints}
    conditions = {condition.type for condition in node.status.conditions if condition.status == "True"}
    for detector in (*DETECTORS, *spec.detectors):
        says = detector.condition if detector.condition in conditions else detector.taint
        if says is None or says not in conditions | taints | devices.keys():
            continue
        on = f" on {', '.join(sorted(devices[says])[:4])}" if says in devices else ""
        key = facts.NodeKey(node.metadata.name, node.metadata.uid)
        yield facts.node_fault(key, facts.Origin.NEIGHBOUR, 0.8, now_s, now_s, f"{detector.name}: {says}{on}")


def rules_from(specs: Mapping[str, HealthPolicySpec], nodes: Mapping[str, Node]) -> tuple[HealthRules, ...]:
    """Limits by policy, each with the nodes that it governs: the first by name whose selector fits."""
    left, made = dict(nodes), []
    for name, spec in sorted(specs.items()):
        governed = frozenset(
            node
            for node, obj in left.items()
            if spec.nodes is None
            or (
                (value := obj.metadata.labels.get(spec.nodes.key)) is not None
                and (not spec.nodes.values or value in spec.nodes.values)
            )
        )
        left = {node: obj for node, obj in left.items() if node not in governed}
        if spec.mode == "Off":
            continue
        budget, breakers = spec.budget, spec.breakers
        policy = facts.RemedyPolicy(
            job_quarantines=budget.per_job,
            job_window_s=budget.per_job_window,
            cluster_share=budget.recent_share,
            cluster_window_s=budget.recent_window,
            out_share=budget.total_share,
            domain_share=budget.domain_share,
            domain_suspects=breakers.domain_suspects,
            domain_window_s=breakers.domain_window,
            restarts=breakers.restarts,
            restart_window_s=breakers.restart_window,
            heard_share=breakers.heard_share,
            probation_s=spec.probation.lasts,
            remediate=spec.mode == "Act",
        )
        made.append(HealthRules(name, policy, governed))
    return tuple(made)


def situation_of(
    snapshot: Snapshot,
    nodes: Mapping[str, Node],
    specs: Mapping[str, HealthPolicySpec],
    rules: Iterable[HealthRules],
    stream: HealthStream,
    restarted_s: Mapping[str, tuple[float, ...]],
    now_s: float,
) -> facts.Situation:
    """The situation now. specs: by the policy's name; rules: made of them. restarted_s: instants of each job's restarts
    in the last day, where there were any."""
    spec_of = {node: specs[each.name] for each in rules for node in each.nodes}
    pods, names = snapshot.pods, snapshot.nodes.names
    holds = np.array([shape.gpus > 0 or shape.gpu_milli > 0 for shape in pods.shapes], dtype=np.bool_)
    on: dict[str, set[int]] = {}
    for row in np.flatnonzero((pods.node != PENDING) & (holds[pods.shape] if len(holds) else False)).tolist():
        on.setdefault(names[int(pods.node[row])], set()).add(int(pods.gang[row]))
    # Jobs that hold GPUs of each node; pods of none are counted as one.
    jobs_on = {node: len(gangs) + (-1 in gangs) for node, gangs in on.items()}
    gpus = {names[row]: int(snapshot.nodes.gpus[row]) for row in range(len(snapshot.nodes))}
    known = {
        name: _node(node, spec_of.get(name, HealthPolicySpec()), stream, jobs_on.get(name, 0), gpus.get(name, 0), now_s)
        for name, node in nodes.items()
    }

    def gpus_of(pod: str) -> int:
        row = pods.names.row(pod)
        # At least one: without a price, nothing would be cheaper than anything else.
        return 1 if row is None else max(pods.shapes[int(pods.shape[row])].gpus, 1)

    gangs = {gang.name: (number, gang.min_members) for number, gang in enumerate(snapshot.gangs)}
    priorities, top = gang_priorities(snapshot), highest_on(snapshot)
    lent = [
        top[row]
        for name, row in zip(names, range(len(snapshot.nodes)), strict=True)
        if (node := known.get(name)) is not None and node.gpus and node.ready and node.taint is None and not node.owner
    ]
    allowed = allowed_disruptions(snapshot, stream.members)
    jobs = {}
    for job, members in stream.members.jobs.items():
        spec = next((spec_of[each.node] for each in members if each.node in spec_of), HealthPolicySpec())
        number, least = gangs.get(job, (-1, 1))
        found = _job(job, stream, gpus_of, least, spec, allowed.get(job), restarted_s.get(job, ()))
        below = priorities[number] if number >= 0 else -math.inf
        jobs[job] = replace(found, borrowable=sum(-math.inf < each < below for each in lent))
    # Nodes with GPUs on which nothing runs and that speak for themselves.
    spares = tuple(
        name
        for name, node in sorted(known.items())
        if node.gpus and node.ready and node.taint is None and not node.owner and not jobs_on.get(name)
    )
    return facts.Situation(now_s, jobs, known, spares, stream.heard_share(now_s))


def highest_on(snapshot: Snapshot) -> list[float]:
    """Highest priority of the pods with GPUs on each node; inf where one may not be stopped, -inf where none runs."""
    pods, highest = snapshot.pods, np.full(len(snapshot.nodes), -math.inf)
    holds = np.array([shape.gpus > 0 for shape in pods.shapes], dtype=np.bool_)
    rows = np.flatnonzero((pods.node != PENDING) & (holds[pods.shape] if len(holds) else False))
    stays = np.where(pods.may_be_stopped[rows], effective_priority(snapshot)[rows].astype(np.float64), math.inf)
    np.maximum.at(highest, pods.node[rows], stays)
    found: list[float] = highest.tolist()
    return found


def _node(
    node: Node, spec: HealthPolicySpec, stream: HealthStream, jobs: int, gpus: int, now_s: float
) -> facts.NodeFacts:
    meta = node.metadata
    limit = stream.limits.get(meta.name, OwnLimit(1.0, math.inf))
    taints = (our_taint(each.key, each.value, instant_or_none(each.time_added) or now_s) for each in node.spec.taints)
    taint = next((each for each in taints if each is not None), None)
    released_s = instant_or_none(meta.annotations.released)
    tested = taint is not None and now_s - taint.at_s >= spec.probation.test and stream.is_clean(meta.name, now_s)
    return facts.NodeFacts(
        key=facts.NodeKey(meta.name, meta.uid),
        gpus=gpus,
        domains=tuple(f"{key}={meta.labels[key]}" for key in spec.failure_domains if key in meta.labels),
        taint=taint,
        owner=owner_of(node, spec),
        ready=node.is_ready,
        tested_s=now_s if tested else -math.inf,
        released_s=-math.inf if released_s is None else released_s,
        shared=jobs > 1,
        own_speed_share=limit.speed_share,
        limited_since_s=limit.since_s,
    )


def _job(
    job: str,
    stream: HealthStream,
    gpus_of: Callable[[str], int],
    min_members: int,
    spec: HealthPolicySpec,
    allowed: int | None,
    restarted_s: tuple[float, ...],
) -> facts.JobFacts:
    """gpus_of: of a pod by its name. allowed: pods that its budgets allow to be evicted; None without a budget."""
    members, seen = stream.members.jobs[job], stream.jobs.get(job)
    # A restart in place evicts as well, so that what blocks one blocks the other.
    is_blocked = allowed is not None and allowed < len(members)
    return facts.JobFacts(
        name=job,
        incarnation=stream.members.incarnation(job),
        started_s=max(member.created_s for member in members),
        pods=tuple(facts.PodFacts(each.uid, each.node, each.created_s, gpus_of(each.name)) for each in members),
        min_available=min_members,
        restart_s=spec.jobs.restart,
        in_place_restart_s=math.inf if is_blocked else spec.jobs.restart_in_place,
        checkpoint_at_s=seen.checkpoint_s if seen is not None else -math.inf,
        checkpoint_interval_s=(seen.save_every_s if seen is not None else None) or spec.jobs.checkpoint_interval,
        checkpoint_save_s=seen.save_s if seen is not None else 0.0,
        saves_when_stopped=all(each.saves_when_stopped for each in members),
        restarted_s=restarted_s,
        progressed_s=seen.progressed_s if seen is not None else -math.inf,
        disruptions_allowed=allowed,
    )


def controls_among(
    governed: Iterable[str], situation: facts.Situation, incidents: Iterable[Incident]
) -> frozenset[str]:
    """Nodes that may serve as healthy controls: ready, no taint of anybody, and no open incident that names them."""
    suspected = {key.name for each in incidents if each.is_open for key in each.nodes}
    return frozenset(
        name
        for name in governed
        if (node := situation.nodes.get(name)) is not None
        and node.ready
        and node.taint is None
        and not node.owner
        and name not in suspected
    )


def own_limits(power: PowerTable, before: Mapping[str, OwnLimit], now_s: float) -> dict[str, OwnLimit]:
    """Speed that power caps leave each node: that of its slowest device, while it is below full speed."""
    devices, leases = power.devices, power.leases
    found: dict[str, float] = {}
    for row in np.flatnonzero(devices.managed & (leases.cap_w > 0) & (leases.cap_w < devices.max_w)).tolist():
        product, phase = power.gpu_types[int(devices.gpu_type[row])], int(power.readings.phase[row])
        share = speed_at(product, phase, float(leases.cap_w[row] / devices.max_w[row]))
        node = power.domains.names[int(devices.domain[row])]
        if share < 1.0:
            found[node] = min(found.get(node, 1.0), share)
    return {node: OwnLimit(share, before[node].since_s if node in before else now_s) for node, share in found.items()}
