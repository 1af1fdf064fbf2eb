"""Pods of other projects' kinds as gangs: which pods are members of which, and how many start together."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.workloads import Gang
from controller.api import foreign_kinds
from controller.api.structs import Pod

MOST_MEMBERS = 1_000_000
"""Largest size that is believed, as of a Gang's minMembers; also of products of several such numbers."""
KUEUE = "KueuePodGroup"
"""Word of Kueue's groups of plain pods, which have no object."""
_GROUPED = (
    foreign_kinds.POD_GROUP,
    foreign_kinds.WORKLOAD,
    foreign_kinds.COSCHEDULING,
    foreign_kinds.VOLCANO,
    foreign_kinds.KAI,
    foreign_kinds.LEADER_WORKER_SET,
    foreign_kinds.JOB_SET,
    foreign_kinds.RAY_CLUSTER,
    foreign_kinds.JOB,
)
# Words of these kinds, looked up once: every pod is compared with all of them.
_POD_GROUP, _WORKLOAD, _COSCHEDULING, _VOLCANO, _KAI, _LEADER_WORKER_SET, _JOB_SET, _RAY_CLUSTER, _JOB = (
    kind.called for kind in _GROUPED
)


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
        return f"{namespace}/{foreign_kinds.FOREIGN_GANG.join(filter(None, (self.word, name, self.part)))}"


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """Object that states the size of a group, as plain data without nulls. Anything may stand in it."""

    spec: Mapping[str, Any]
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """Part of a group's object that starts together."""

    size: int
    """Number of pods; those that ended count no more."""
    part: str = ""


def group_of(pod: Pod) -> GroupRef | None:
    """Group of a pod by the first kind that applies; None for a pod of none. Those that somebody wrote down go first.

    A launcher of MPI is not counted: it is made with its workers or after them, and asks for no GPU.
    """
    spec, labels, annotations = pod.spec, pod.metadata.labels, pod.metadata.annotations
    owners = [each.kind for each in pod.metadata.owner_references if each.controller]
    scheduling, workload = spec.scheduling_group, spec.workload_ref
    lws_part = labels.get("leaderworkerset.sigs.k8s.io/group-index") or "0"
    replicated_job = labels.get("jobset.sigs.k8s.io/replicatedjob-name") or ""
    role = "leader" if labels.get("leaderworkerset.sigs.k8s.io/worker-index") == "0" else "workers"
    replica = (
        foreign_kinds.FOREIGN_GANG.join(filter(None, (workload.pod_group, workload.pod_group_replica_key)))
        if workload
        else ""
    )
    is_launcher = (labels.get("training.kubeflow.org/replica-type") or "").lower() == "launcher"
    named = [
        (KUEUE, labels.get("kueue.x-k8s.io/pod-group-name"), ""),
        (_POD_GROUP, scheduling.pod_group_name if scheduling else None, ""),
        (_WORKLOAD, workload.name if workload else None, replica),
        (_COSCHEDULING, labels.get("scheduling.x-k8s.io/pod-group"), ""),
        (_VOLCANO, annotations.volcano_group, ""),
        (_KAI, annotations.kai_group, ""),
        (
            _LEADER_WORKER_SET,
            labels.get("leaderworkerset.sigs.k8s.io/name"),
            lws_part + foreign_kinds.FOREIGN_GANG + role,
        ),
        (
            _JOB_SET,
            labels.get("jobset.sigs.k8s.io/jobset-name"),
            replicated_job,
        ),
        (_RAY_CLUSTER, labels.get("ray.io/cluster") if foreign_kinds.RAY_CLUSTER.name in owners else None, ""),
        *(
            (kind.called, labels.get("training.kubeflow.org/job-name"), "")
            for kind in foreign_kinds.KUBEFLOW_JOBS
            if kind.name in owners and not is_launcher
        ),
        (_JOB, labels.get("batch.kubernetes.io/job-name") if foreign_kinds.JOB.name in owners else None, ""),
    ]
    for word, name, part in named:
        if name:
            stated = {KUEUE: annotations.kueue_count, _LEADER_WORKER_SET: annotations.lws_size}.get(word)
            return GroupRef(word, f"{pod.metadata.namespace}/{name}", part, _written_count(stated))
    return None


def _written_count(written: str | None) -> int:
    if written is None or not (written.isascii() and written.isdigit()) or len(written) >= 10:
        return 0
    return _count(int(written))


def _count(value: object, otherwise: int = 0) -> int:
    """A number of pods of an object; `otherwise` where it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return otherwise
    return min(max(value, 0), MOST_MEMBERS)


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _at(value: object, *keys: str) -> Any:
    """Field of nested maps; None where any of them is missing."""
    for key in keys:
        value = _map(value).get(key)
    return value


def _maps(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


# What starts together, by what was read of a group's object; None where each pod of it is placed by itself.


def _stated_size(_: GroupOwner | None, ref: GroupRef) -> Share | None:
    return Share(ref.size) if ref.size else None


def _min_member(owner: GroupOwner | None, _: GroupRef) -> Share | None:
    return Share(_count(owner.spec.get("minMember"), 1) - _count(owner.status.get("succeeded"))) if owner else None


def _min_count(owner: GroupOwner | None, _: GroupRef) -> Share | None:
    size = _count(_at(owner.spec, "schedulingPolicy", "gang", "minCount")) if owner else 0
    return Share(size) if size else None


def _of_workload(owner: GroupOwner | None, ref: GroupRef) -> Share | None:
    group = ref.part.partition(foreign_kinds.FOREIGN_GANG)[0]
    found = (each for each in _maps(owner.spec.get("podGroups")) if each.get("name") == group) if owner else iter(())
    size = _count(_at(next(found, {}), "policy", "gang", "minCount"))
    return Share(size, ref.part) if size else None


def _of_leader(owner: GroupOwner | None, ref: GroupRef) -> Share | None:
    """A leader with its workers. Where the workers are made once the leader is ready, they start after it."""
    group, _, role = ref.part.partition(foreign_kinds.FOREIGN_GANG)
    if owner is None or owner.spec.get("startupPolicy") != "LeaderReady":
        return Share(ref.size, group)
    return None if role == "leader" else Share(ref.size - 1, ref.part)


@dataclass(frozen=True, slots=True)
class JobSetSizes:
    """Numbers of pods of a JobSet that start together."""

    is_ordered: bool
    """Whether one replicated job starts after the other."""
    of_job: Mapping[str, int]
    total: int


def job_set_sizes(owner: GroupOwner) -> JobSetSizes:
    """Pods of each replicated job of a JobSet that run at once, without those of jobs that succeeded."""
    jobs = list(_maps(owner.spec.get("replicatedJobs")))
    is_ordered = _at(owner.spec, "startupPolicy", "startupPolicyOrder") == "InOrder"
    statuses = _maps(owner.status.get("replicatedJobsStatus"))
    done = {str(each.get("name")): _count(each.get("succeeded")) for each in statuses}
    sizes: dict[str, int] = {}
    for job in jobs:
        name, spec = str(job.get("name")), _map(_at(job, "template", "spec"))
        parallelism = _count(spec.get("parallelism"), 1)
        at_once = min(parallelism, _count(spec.get("completions"), parallelism))
        sizes[name] = max(0, _count(job.get("replicas"), 1) - done.get(name, 0)) * at_once
    is_ordered = is_ordered or any(job.get("dependsOn") for job in jobs)
    return JobSetSizes(is_ordered, sizes, sum(sizes.values()))


def _of_job_set(sizes: JobSetSizes | None, ref: GroupRef) -> Share | None:
    """All pods of a JobSet; those of each replicated job where one is made after the other."""
    if sizes is None:
        return None
    return Share(sizes.of_job.get(ref.part, 0), ref.part) if sizes.is_ordered else Share(sizes.total)


def _of_job(owner: GroupOwner | None, _: GroupRef) -> Share | None:
    """Pods of an Indexed Job that has as many at once as in all. Others work through a queue, each pod by itself.

    Source: KEP-5547, the Jobs for which Kubernetes itself makes a Workload.
    """
    if owner is None or owner.spec.get("completionMode") != "Indexed":
        return None
    completions = _count(owner.spec.get("completions"))
    if completions != _count(owner.spec.get("parallelism"), 1):
        return None
    ended, failed = _count(owner.status.get("succeeded")), owner.status.get("failedIndexes")
    # A list such as `1,3-5`; indexes of another form count as none.
    for part in failed.split(",") if isinstance(failed, str) else ():
        first, _dash, last = part.partition("-")
        low, high = _written_count(first), _written_count(last or first)
        ended += high - low + 1 if first.isdigit() and high >= low else 0
    return Share(completions - ended)


def _of_ray_cluster(owner: GroupOwner | None, _: GroupRef) -> Share | None:
    """Head and workers at the first start; with an autoscaler the fewest workers. A cluster that ran goes on with the
    workers that it has, so that each later one is placed by itself."""
    if owner is None or owner.status.get("state") == "ready":
        return None
    for condition in _maps(owner.status.get("conditions")):
        if condition.get("type") == "RayClusterProvisioned" and condition.get("status") == "True":
            return None
    count = "minReplicas" if owner.spec.get("enableInTreeAutoscaling") is True else "replicas"
    size = 1
    for group in _maps(owner.spec.get("workerGroupSpecs")):
        if group.get("suspend") is not True:
            fewest = _count(group.get("minReplicas"))
            size += max(fewest, _count(group.get(count), fewest)) * _count(group.get("numOfHosts"), 1)
    return Share(size)


def _of_kubeflow_job(owner: GroupOwner | None, _: GroupRef) -> Share | None:
    """Pods of all roles but the launcher's, or as few of them as the job says."""
    if owner is None:
        return None
    statuses = _map(owner.status.get("replicaStatuses"))
    done = {str(role).lower(): _count(_at(each, "succeeded")) for role, each in statuses.items()}
    size = 0
    for key, roles in owner.spec.items():
        for role, each in _map(roles).items() if key.endswith("ReplicaSpecs") else ():
            name = str(role).lower()
            size += max(0, _count(_at(each, "replicas"), 1) - done.get(name, 0)) if name != "launcher" else 0
    fewest = _count(_at(owner.spec, "runPolicy", "schedulingPolicy", "minAvailable"))
    elastic = _count(_at(owner.spec, "elasticPolicy", "minReplicas"))
    return Share(min(size, fewest or elastic or size))


def _unchanged(owner: GroupOwner) -> GroupOwner:
    return owner


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How pods of one kind are gangs."""

    share: Callable[[Any, GroupRef], Share | None]
    read: Callable[[GroupOwner], Any] = _unchanged
    """What is read of the object, once for all groups in it: pods decide how many parts of it they name."""
    needs_object: bool = True
    """Whether a group without its object waits; else the pods alone state the size."""


RULE: Mapping[str, GroupRule] = {
    KUEUE: GroupRule(_stated_size, needs_object=False),
    foreign_kinds.POD_GROUP.called: GroupRule(_min_count),
    foreign_kinds.WORKLOAD.called: GroupRule(_of_workload),
    foreign_kinds.COSCHEDULING.called: GroupRule(_min_member),
    foreign_kinds.VOLCANO.called: GroupRule(_min_member),
    foreign_kinds.KAI.called: GroupRule(_min_member),
    foreign_kinds.LEADER_WORKER_SET.called: GroupRule(_of_leader, needs_object=False),
    foreign_kinds.JOB_SET.called: GroupRule(_of_job_set, read=job_set_sizes),
    foreign_kinds.RAY_CLUSTER.called: GroupRule(_of_ray_cluster),
    **{kind.called: GroupRule(_of_kubeflow_job) for kind in foreign_kinds.KUBEFLOW_JOBS},
    foreign_kinds.JOB.called: GroupRule(_of_job),
}
"""Rule of each kind, by its word."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownGroups:
    """Gangs of other projects' pods at one instant."""

    gangs: tuple[Gang, ...] = ()
    """Sorted by name, without priorities."""
    gang_of: Mapping[str, str] = field(default_factory=dict)
    """Gang by the name under which pods refer to it; empty: each pod is placed by itself. A group whose object is
    missing is not in it: its pods wait."""
    unread: tuple[tuple[str, str], ...] = ()
    """(kind, pod) of groups whose size is not known, because their kind is not read."""
    unreadable: frozenset[str] = frozenset()
    """Names under which pods refer to a group whose object cannot be read; they wait, too."""


class Groups:
    """Objects of other projects and the pods that refer to them. Not thread-safe."""

    def __init__(self, rules: Mapping[str, GroupRule] = RULE) -> None:
        """rules: by their words."""
        self._rules = rules
        self._owners: defaultdict[str, dict[str, GroupOwner]] = defaultdict(dict)
        self._read: frozenset[str] = frozenset()
        self._members: dict[str, tuple[GroupRef, dict[str, bool]]] = {}
        """(group, whether it is for Tonnage by pod) by name."""
        self._of_pod: dict[str, str] = {}
        self._known: KnownGroups | None = None

    def put_pod(self, pod: str, ref: GroupRef | None, *, is_ours: bool) -> None:
        """A pod that is not ours is no member of the gang, and counts as one that is there."""
        text = ref.text if ref else None
        if text is not None and self._of_pod.get(pod) == text:
            known, members = self._members[text]
            if known == ref and members[pod] == is_ours:
                return
        self.remove_pod(pod)
        if ref is not None and text is not None:
            _, members = self._members.get(text, (ref, {}))
            members[pod] = is_ours
            self._members[text] = (ref, members)
            self._of_pod[pod], self._known = text, None

    def remove_pod(self, pod: str) -> None:
        text = self._of_pod.pop(pod, None)
        if text is None:
            return
        self._known = None
        del self._members[text][1][pod]
        if not self._members[text][1]:
            del self._members[text]

    def put_owner(self, word: str, name: str, owner: GroupOwner) -> None:
        if self._owners[word].get(name) != owner:
            self._owners[word][name], self._known = owner, None

    def remove_owner(self, word: str, name: str) -> None:
        if self._owners[word].pop(name, None) is not None:
            self._known = None

    def read(self, words: Iterable[str]) -> None:
        """Kinds whose objects are all known. A group of another kind has no size."""
        if (now := frozenset(words)) != self._read:
            self._read, self._known = now, None

    def known(self) -> KnownGroups:
        """Gangs of these pods; the same object while nothing changed."""
        if self._known is not None:
            return self._known
        sizes: dict[str, int] = {}
        others: defaultdict[str, int] = defaultdict(int)
        gang_of, unread, unreadable = {}, [], set()
        read: dict[tuple[str, str], Any] = {}
        for text, (ref, members) in self._members.items():
            rule, owner = self._rules[ref.word], self._owners[ref.word].get(ref.name)
            if owner is None and rule.needs_object:
                if ref.word not in self._read:
                    gang_of[text] = ""
                    unread += [(ref.word, pod) for pod in members]
                continue
            try:
                if owner is not None and (ref.word, ref.name) not in read:
                    read[ref.word, ref.name] = rule.read(owner)
                share = rule.share(read.get((ref.word, ref.name)), ref)
            except Exception:  # noqa: BLE001 - one object must not stop the others
                unreadable.add(text)
                continue
            if share is None or share.size <= 1:
                gang_of[text] = ""
                continue
            gang = GroupRef(ref.word, ref.name, share.part).text
            gang_of[text] = gang
            sizes[gang] = max(sizes.get(gang, 0), min(share.size, MOST_MEMBERS))
            others[gang] += sum(not is_ours for is_ours in members.values())
        gangs = (Gang(gang, max(1, size - others[gang])) for gang, size in sorted(sizes.items()))
        self._known = KnownGroups(tuple(gangs), gang_of, tuple(sorted(unread)), frozenset(unreadable))
        return self._known
