"""Members of jobs: which pods a training job consists of, on which nodes, and which may not begin."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from types import MappingProxyType

import numpy as np

from cluster.nodes import NodeFilter
from cluster.snapshot import PENDING, Snapshot
from controller.api.foreign_kinds import FOREIGN_GANG
from controller.api.notation import instant_or_none
from controller.api.structs import Node, Pod
from controller.deciders.remediation import HealthRules, incarnation_of
from controller.snapshot.namespace_bounds import leaving_out


@dataclass(frozen=True, slots=True)
class JobMember:
    """One running pod of a gang."""

    uid: str
    name: str
    """`namespace/name`."""
    job: str
    """Its gang, `namespace/name`."""
    node: str
    created_s: float
    saves_when_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """All members of all gangs at one instant."""

    by_uid: Mapping[str, JobMember] = field(default_factory=dict)
    jobs: Mapping[str, tuple[JobMember, ...]] = field(default_factory=dict)
    """Members of each gang, by the pods' names."""

    def incarnation(self, job: str) -> str:
        """Name of the job's present run: another one once any pod was replaced."""
        return incarnation_of(member.uid for member in self.jobs.get(job, ()))


def members_from(
    pods: Mapping[str, Pod], nodes: Mapping[str, Node], gang_of: Mapping[str, str] = MappingProxyType({})
) -> Members:
    """Members among these pods: bound, not ended, and not being deleted.

    gang_of: gang of pods of other projects' kinds, by the pods' names, as the operator recognises them.
    """
    by_uid: dict[str, JobMember] = {}
    jobs: dict[str, list[JobMember]] = {}
    for name, pod in sorted(pods.items()):
        meta, node = pod.metadata, nodes.get(pod.spec.node_name)
        job = f"{meta.namespace}/{meta.gang}" if meta.gang else gang_of.get(name, "")
        if not job or node is None or meta.deletion_timestamp or pod.holds_nothing:
            continue
        created_s = instant_or_none(meta.creation_timestamp) or 0.0
        saves = meta.annotations.saves_when_stopped == "true"
        member = JobMember(meta.uid, name, job, node.metadata.name, created_s, saves)
        by_uid[meta.uid] = member
        jobs.setdefault(job, []).append(member)
    return Members(by_uid, {job: tuple(each) for job, each in jobs.items()})


def gangs_of_others(snapshot: Snapshot) -> dict[str, str]:
    """Gang of each bound pod whose gang is of another project's kind, such as a Job or a JobSet, by the pod's name."""
    pods = snapshot.pods
    is_others = np.array([FOREIGN_GANG in gang.name for gang in snapshot.gangs], dtype=np.bool_)
    if not is_others.any():
        return {}
    rows = np.flatnonzero((pods.gang >= 0) & (pods.node != PENDING))
    rows = rows[is_others[pods.gang[rows]]]
    return {pods.names[row]: snapshot.gangs[int(pods.gang[row])].name for row in rows.tolist()}


def allowed_disruptions(snapshot: Snapshot, members: Members) -> dict[str, int]:
    """Pods of each job that its budgets allow to be evicted together; jobs without a budget are left out."""
    job_of = {member.name: member.job for member in members.by_uid.values()}
    allowed: dict[str, int] = {}
    for budget in snapshot.budgets:
        for job, mine in Counter(job_of[pod] for pod in budget.pods if pod in job_of).items():
            pods = len(members.jobs[job])
            allowed[job] = min(allowed.get(job, pods), budget.allowed + pods - mine)
    return allowed


PREFLIGHT, PREFLIGHT_MISSING = "preflight", "PreflightMissing"


def tried_only(snapshot: Snapshot, pods: Mapping[str, Pod], asked: Iterable[tuple[HealthRules, float]]) -> Snapshot:
    """The snapshot without gangs that would begin untried on nodes whose policy asks for a preflight, with the reason.

    asked: policies that ask, with their time limits. A gang of which a member has a node has begun.
    """
    table, gangs, left_out = snapshot.pods, defaultdict[int, list[int]](list), list[tuple[int, str, str]]()
    begun, places = set(table.gang[table.node != PENDING].tolist()), NodeFilter(snapshot.nodes, snapshot.gpu_type_names)

    @cache
    def nodes_for(shape: int) -> frozenset[str]:
        rows = np.flatnonzero(places.eligible(table.shapes[shape])).tolist()
        return frozenset(snapshot.nodes.names[row] for row in rows)

    for row in table.pending.tolist():
        gangs[int(table.gang[row])].append(row)
    for gang, rows in gangs.items():
        if gang < 0 or gang in begun or len(rows) < 2:
            continue
        objects = [(int(table.shape[row]), pods[name]) for row in rows if (name := table.names[row]) in pods]
        lacking = {n for n, pod in objects if all(each.name != PREFLIGHT for each in pod.spec.init_containers)}
        untried = [nodes_for(shape) for shape in lacking if table.shapes[shape].gpus]
        for rule, within_s in islice((each for each in asked if any(each[0].nodes & on for on in untried)), 1):
            # Of several Jobs in a gang the pods of each meet.
            jobs = Counter(o.name for _, pod in objects for o in pod.metadata.owner_references if o.kind == "Job")
            ranks = max(jobs.values(), default=snapshot.gangs[gang].min_members)
            words = (
                f"HealthPolicy {rule.name} asks for a preflight: add to its pods' initContainers {{name: {PREFLIGHT}, "
                f"image: IMAGE, resources: RESOURCES, command: [python, -m, tonnage.preflight, --ranks={ranks}, "
                f"--within={within_s:g}]}} with those of the training container; see docs/health.md, Before it begins"
            )
            left_out += [(row, PREFLIGHT_MISSING, words) for row in rows]
    return leaving_out(snapshot, left_out)
