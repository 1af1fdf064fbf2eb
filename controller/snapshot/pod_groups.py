"""Rules by which pods of other projects' kinds are gangs: how a pod names its group, and who states the size.

One rule for each kind; the first that applies to a pod counts, groups that somebody wrote down before those of owners.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.api.foreign_kinds import (
    COSCHEDULING,
    FOREIGN_GANG,
    JOB,
    JOB_SET,
    KAI,
    KUBEFLOW_JOBS,
    LEADER_WORKER_SET,
    POD_GROUP,
    RAY_CLUSTER,
    VOLCANO,
    WORKLOAD,
    ForeignKind,
)
from controller.api.structs import Pod

MOST_MEMBERS = 1_000_000
"""Largest size that is believed, as of a Gang's minMembers; also of products of several such numbers."""


@dataclass(frozen=True, slots=True)
class GroupRef:
    """Group that a pod names."""

    word: str
    """Rule by which it is one."""
    name: str
    """`namespace/name` of its object."""
    part: str = ""
    """Part of the object that starts together, where it has several."""
    size: int = 0
    """Number of members that the pod itself states; 0: its object states it."""

    @property
    def text(self) -> str:
        """Name that no Gang has: `default/JobSet:train:workers`."""
        namespace, _, name = self.name.rpartition("/")
        return f"{namespace}/{FOREIGN_GANG.join(filter(None, (self.word, name, self.part)))}"


@dataclass(frozen=True, slots=True)
class Owner:
    """Object that states the size of a group, as plain data without nulls. Anything may stand in it."""

    spec: Mapping[str, Any]
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """Part of a group's object that starts together."""

    size: int
    """Number of pods; those that ended count no more."""
    part: str = ""


Named = tuple[str, str]
"""Name of a group's object without its namespace, and part."""


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How pods of one kind are gangs."""

    word: str
    named: Callable[[Pod], Named | None]
    """Group that a pod names; None for a pod of none."""
    share: Callable[[Any, GroupRef], Share | None]
    """What starts together, by what was read of the object; None where each pod of it is placed by itself. Without an
    object: by the pod alone."""
    kind: ForeignKind | None = None
    """Kind of the object; None: the pods alone state the size."""
    read: Callable[[Owner], Any] = lambda owner: owner
    """What is read of the object, once for all groups in it: pods decide how many parts of it they name."""
    needs_object: bool = True
    stated: Callable[[Pod], str | None] = lambda _: None
    """Size that the pod states, as it is written."""


def group_of(pod: Pod) -> GroupRef | None:
    """Group of a pod by the first rule that applies; None for a pod of none."""
    for rule in RULES:
        if (named := rule.named(pod)) is not None and named[0]:
            name = f"{pod.metadata.namespace}/{named[0]}"
            return GroupRef(rule.word, name, named[1], _written_count(rule.stated(pod)))
    return None


def _written_count(written: str | None) -> int:
    is_number = written is not None and written.isascii() and written.isdigit() and len(written) < 10
    return _count(int(written)) if is_number and written else 0


def _count(value: object, otherwise: int = 0) -> int:
    """A number of pods of an object; `otherwise` where it is none."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), MOST_MEMBERS) if is_number and isinstance(value, int) else otherwise


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _at(value: object, *keys: str) -> Any:
    """Field of nested maps; None where any of them is missing."""
    for key in keys:
        value = _map(value).get(key)
    return value


def _maps(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _whole(name: str | None) -> Named | None:
    return None if name is None else (name, "")


# Groups that somebody wrote down.


def _stated_size(_: Owner | None, ref: GroupRef) -> Share | None:
    return Share(ref.size) if ref.size else None


def _min_member(owner: Owner | None, _: GroupRef) -> Share | None:
    return Share(_count(owner.spec.get("minMember"), 1)) if owner else None


def _scheduling_policy(owner: Owner | None, _: GroupRef) -> Share | None:
    size = _count(_at(owner.spec, "schedulingPolicy", "gang", "minCount")) if owner else 0
    return Share(size) if size else None


def _workload_ref(pod: Pod) -> Named | None:
    ref = pod.spec.workload_ref
    if ref is None:
        return None
    return ref.name, FOREIGN_GANG.join(filter(None, (ref.pod_group, ref.pod_group_replica_key)))


def _of_workload(owner: Owner | None, ref: GroupRef) -> Share | None:
    group = ref.part.partition(FOREIGN_GANG)[0]
    found = (each for each in _maps(owner.spec.get("podGroups")) if each.get("name") == group) if owner else iter(())
    size = _count(_at(next(found, {}), "policy", "gang", "minCount"))
    return Share(size, ref.part) if size else None


# Groups by their owners.


def _of_leader_worker_set(pod: Pod) -> Named | None:
    labels = pod.metadata.labels
    if labels.lws is None:
        return None
    role = "leader" if labels.lws_worker == "0" else "workers"
    return labels.lws, f"{labels.lws_group or '0'}{FOREIGN_GANG}{role}"


def _group_of_leader(owner: Owner | None, ref: GroupRef) -> Share | None:
    """A leader with its workers. Where the workers are made once the leader is ready, they start after it."""
    group, _, role = ref.part.partition(FOREIGN_GANG)
    if owner is None or owner.spec.get("startupPolicy") != "LeaderReady":
        return Share(ref.size, group)
    return None if role == "leader" else Share(ref.size - 1, ref.part)


def _job_set(pod: Pod) -> Named | None:
    labels = pod.metadata.labels
    return None if labels.job_set is None else (labels.job_set, labels.replicated_job or "")


@dataclass(frozen=True, slots=True)
class JobSetSizes:
    """Numbers of pods of a JobSet that start together."""

    is_ordered: bool
    """Whether one replicated job starts after the other."""
    of_job: Mapping[str, int]
    total: int


def _job_set_sizes(owner: Owner) -> JobSetSizes:
    jobs = list(_maps(owner.spec.get("replicatedJobs")))
    is_ordered = _at(owner.spec, "startupPolicy", "startupPolicyOrder") == "InOrder"
    is_ordered = is_ordered or any(job.get("dependsOn") for job in jobs)
    done = {
        str(each.get("name")): _count(each.get("succeeded")) for each in _maps(owner.status.get("replicatedJobsStatus"))
    }
    sizes = {
        str(job.get("name")): max(0, _count(job.get("replicas"), 1) - done.get(str(job.get("name")), 0))
        * pods_at_once(_map(_at(job, "template", "spec")))
        for job in jobs
    }
    return JobSetSizes(is_ordered, sizes, sum(sizes.values()))


def _of_job_set(sizes: JobSetSizes | None, ref: GroupRef) -> Share | None:
    """All pods of a JobSet; those of each replicated job where one is made after the other."""
    if sizes is None:
        return None
    return Share(sizes.of_job.get(ref.part, 0), ref.part) if sizes.is_ordered else Share(sizes.total)


def pods_at_once(job_spec: Mapping[str, Any]) -> int:
    """Number of pods that a Job runs at the same time."""
    parallelism = _count(job_spec.get("parallelism"), 1)
    return min(parallelism, _count(job_spec.get("completions"), parallelism))


def _job(pod: Pod) -> Named | None:
    return _whole(pod.metadata.labels.job) if _is_owned_by(pod, JOB.name) else None


def _of_job(owner: Owner | None, _: GroupRef) -> Share | None:
    """Pods of an Indexed Job that has as many at once as in all. Others work through a queue, each pod by itself.

    Source: KEP-5547, the Jobs for which Kubernetes itself makes a Workload.
    """
    if owner is None or owner.spec.get("completionMode") != "Indexed":
        return None
    completions = _count(owner.spec.get("completions"))
    if completions != _count(owner.spec.get("parallelism"), 1):
        return None
    ended = _count(owner.status.get("succeeded")) + _indexes(owner.status.get("failedIndexes"))
    return Share(completions - ended)


def _indexes(written: object) -> int:
    """Number of indexes in a list such as `1,3-5`; those of another form count as none."""
    count = 0
    for part in written.split(",") if isinstance(written, str) else ():
        first, _, last = part.partition("-")
        ends = [_written_count(each) for each in (first, last or first)]
        count += ends[1] - ends[0] + 1 if first.isdigit() and ends[1] >= ends[0] else 0
    return count


def _is_owned_by(pod: Pod, kind: str) -> bool:
    return any(each.controller and each.kind == kind for each in pod.metadata.owner_references)


def _ray_cluster(pod: Pod) -> Named | None:
    return _whole(pod.metadata.labels.ray_cluster) if _is_owned_by(pod, RAY_CLUSTER.name) else None


def _of_ray_cluster(owner: Owner | None, _: GroupRef) -> Share | None:
    """Head and workers at the first start; with an autoscaler the fewest workers. A cluster that ran goes on with the
    workers that it has, so that each later one is placed by itself."""
    if owner is None or _has_run(owner.status):
        return None
    count = "minReplicas" if owner.spec.get("enableInTreeAutoscaling") is True else "replicas"
    groups = (each for each in _maps(owner.spec.get("workerGroupSpecs")) if each.get("suspend") is not True)
    return Share(1 + sum(_ray_workers(group, count) for group in groups))


def _has_run(status: Mapping[str, Any]) -> bool:
    provisioned = (each.get("status") for each in _maps(status.get("conditions"))
                   if each.get("type") == "RayClusterProvisioned")  # fmt: skip
    return status.get("state") == "ready" or "True" in provisioned


def _ray_workers(group: Mapping[str, Any], count: str = "replicas") -> int:
    fewest = _count(group.get("minReplicas"))
    return max(fewest, _count(group.get(count), fewest)) * _count(group.get("numOfHosts"), 1)


def _kubeflow_job(kind: ForeignKind) -> Callable[[Pod], Named | None]:
    """A launcher of MPI is not counted: it is made with its workers or after them, and asks for no GPU."""

    def named(pod: Pod) -> Named | None:
        labels = pod.metadata.labels
        is_member = _is_owned_by(pod, kind.name) and (labels.kubeflow_replica or "").lower() != "launcher"
        return _whole(labels.kubeflow_job) if is_member else None

    return named


def _of_kubeflow_job(owner: Owner | None, _: GroupRef) -> Share | None:
    if owner is None:
        return None
    done = {str(role).lower(): _count(_at(each, "succeeded")) for role, each in
            _map(owner.status.get("replicaStatuses")).items()}  # fmt: skip
    size = sum(max(0, count - done.get(role.lower(), 0)) for role, count, _ in kubeflow_replicas(owner.spec)
               if role.lower() != "launcher")  # fmt: skip
    fewest = _count(_at(owner.spec, "runPolicy", "schedulingPolicy", "minAvailable"))
    elastic = _count(_at(owner.spec, "elasticPolicy", "minReplicas"))
    return Share(min(size, fewest or elastic or size))


def kubeflow_replicas(spec: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """(role, number of pods, field of the spec) of each role of a Kubeflow job."""
    for field, roles in spec.items():
        if field.endswith("ReplicaSpecs"):
            yield from ((str(role), _count(_at(each, "replicas"), 1), field) for role, each in _map(roles).items())


RULES = (
    GroupRule(
        "KueuePodGroup",
        lambda pod: _whole(pod.metadata.labels.kueue_group),
        _stated_size,
        needs_object=False,
        stated=lambda pod: pod.metadata.annotations.kueue_count,
    ),
    GroupRule(
        POD_GROUP.called,
        lambda pod: _whole(pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else None),
        _scheduling_policy,
        POD_GROUP,
    ),
    GroupRule(WORKLOAD.called, _workload_ref, _of_workload, WORKLOAD),
    GroupRule(
        COSCHEDULING.called, lambda pod: _whole(pod.metadata.labels.coscheduling_group), _min_member, COSCHEDULING
    ),
    GroupRule(VOLCANO.called, lambda pod: _whole(pod.metadata.annotations.volcano_group), _min_member, VOLCANO),
    GroupRule(KAI.called, lambda pod: _whole(pod.metadata.annotations.kai_group), _min_member, KAI),
    GroupRule(
        LEADER_WORKER_SET.called,
        _of_leader_worker_set,
        _group_of_leader,
        LEADER_WORKER_SET,
        needs_object=False,
        stated=lambda pod: pod.metadata.annotations.lws_size,
    ),
    GroupRule(JOB_SET.called, _job_set, _of_job_set, JOB_SET, read=_job_set_sizes),
    GroupRule(RAY_CLUSTER.called, _ray_cluster, _of_ray_cluster, RAY_CLUSTER),
    *(GroupRule(kind.called, _kubeflow_job(kind), _of_kubeflow_job, kind) for kind in KUBEFLOW_JOBS),
    GroupRule(JOB.called, _job, _of_job, JOB),
)

RULE: Mapping[str, GroupRule] = {rule.word: rule for rule in RULES}
"""Rule by its word."""
