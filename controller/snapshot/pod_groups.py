"""Pods of other projects' kinds as gangs: which pods are members of which, and how many start together."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cluster.workloads import Gang, MemberGroup
from controller.api import foreign_kinds
from controller.api.structs import Pod
from controller.objects.read import put

MOST_MEMBERS = 1_000_000
"""Largest size that is believed, as of a Gang's minMembers; also of products of several such numbers."""
KUEUE = "KueuePodGroup"
"""Word of Kueue's groups of plain pods, which have no object."""
RAY_HEAD = "headgroup"
"""Group of a Ray cluster's head in the label ray.io/group. Source: KubeRay, HeadNodeGroup."""
LAUNCHER = "launcher"
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


REPLACE_WHAT_SUCCEEDED = frozenset(
    {"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet", foreign_kinds.RAY_CLUSTER.name}
)
"""Kinds that make a new pod for one that succeeded; all others count it as done. Source: their documentation, "Pod
lifetime" of Kubernetes' workloads; KubeRay deletes and makes anew the pods of a cluster that ended."""
Life = Literal["waiting", "running", "ending", "done", "gone"]


def life_of(pod: Pod) -> Life:
    """State of a pod as a member of its gang, the same for every kind.

    waiting: it has no node. running: it is bound. ending: it is being deleted, is no member any more, and holds its
    devices until it is gone. done: it succeeded and no other takes its place, so one fewer must start. gone: it holds
    nothing, and if it is missing, another comes: it failed, or was deleted before it was bound.
    """
    is_deleted, phase = pod.metadata.deletion_timestamp is not None, pod.status.phase
    if phase == "Succeeded" and not is_deleted:
        is_replaced = any(o.controller and o.kind in REPLACE_WHAT_SUCCEEDED for o in pod.metadata.owner_references)
        return "gone" if is_replaced else "done"
    if pod.holds_nothing:
        return "gone"
    if is_deleted:
        return "ending"
    return "running" if pod.spec.node_name else "waiting"


def still_needed(asked: int, done: int, alive: int) -> int:
    """Members that start together of a gang that asks for so many, some of which have finished.

    A member that is done counts where another is missing, and not where there is one in its place: a Job that works
    through a queue goes on with as many pods at once, and one that is started again keeps pods of its last run.
    """
    return min(asked, max(asked - done, alive))


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
    """Number of pods, without those that ended by what the object says."""
    part: str = ""
    done: Mapping[str, int] = field(default_factory=dict)
    """How many of these are done all the same, by the part that pods name."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """How many of them must be of each role, by the part that pods name; empty: any will do."""


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
    replica_type = (labels.get("training.kubeflow.org/replica-type") or "").lower()
    named = [
        (KUEUE, labels.get("kueue.x-k8s.io/pod-group-name"), ""),
        (_POD_GROUP, scheduling.pod_group_name if scheduling else None, ""),
        (_WORKLOAD, workload.name if workload else None, replica),
        (_COSCHEDULING, labels.get("scheduling.x-k8s.io/pod-group"), ""),
        (_VOLCANO, annotations.volcano_group, annotations.volcano_task or ""),
        (_KAI, annotations.kai_group, labels.get("kai.scheduler/subgroup-name") or ""),
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
        (
            _RAY_CLUSTER,
            labels.get("ray.io/cluster") if foreign_kinds.RAY_CLUSTER.name in owners else None,
            labels.get("ray.io/group") or "",
        ),
        *(
            (kind.called, labels.get("training.kubeflow.org/job-name"), replica_type)
            for kind in foreign_kinds.KUBEFLOW_JOBS
            if kind.name in owners and replica_type != LAUNCHER
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


Done = Mapping[str, int]
"""Members that are done, by part."""


def _stated_size(_: GroupOwner | None, ref: GroupRef, done: Done) -> Share | None:
    return Share(ref.size, done=done) if ref.size else None


def _of_pod_group(owner: GroupOwner, _: GroupRef, done: Done) -> Share:
    """As many as a group of coscheduling, Volcano or KAI says, and of each task or innermost subgroup as it says
    Done are as many as its status says where it says more than the pods that are left."""
    groups = list(_maps(owner.spec.get("subGroups")))
    inner = {each.get("parent") for each in groups}
    least = {str(task): _count(count) for task, count in _map(owner.spec.get("minTaskMember")).items()}
    least |= {str(e.get("name")): _count(e.get("minMember"), 1) for e in groups if e.get("name") not in inner}
    more = _count(owner.status.get("succeeded")) - sum(done.values())
    ended = {**done, "": done.get("", 0) + max(0, more)}
    return Share(max(_count(owner.spec.get("minMember"), 1), sum(least.values())), done=ended, roles=least)


def _min_count(owner: GroupOwner, _: GroupRef, done: Done) -> Share | None:
    size = _count(_at(owner.spec, "schedulingPolicy", "gang", "minCount"))
    return Share(size, done=done) if size else None


def _of_workload(owner: GroupOwner, ref: GroupRef, done: Done) -> Share | None:
    group = ref.part.partition(foreign_kinds.FOREIGN_GANG)[0]
    found = (each for each in _maps(owner.spec.get("podGroups")) if each.get("name") == group)
    size = _count(_at(next(found, {}), "policy", "gang", "minCount"))
    return Share(size, ref.part, {ref.part: done.get(ref.part, 0)}) if size else None


def _of_leader(owner: GroupOwner | None, ref: GroupRef, _: Done) -> Share | None:
    """A leader with its workers. Where the workers are made once the leader is ready, they start after it."""
    group, _sign, role = ref.part.partition(foreign_kinds.FOREIGN_GANG)
    if owner is None or owner.spec.get("startupPolicy") != "LeaderReady":
        return Share(ref.size, group)
    return None if role == "leader" else Share(ref.size - 1, ref.part)


@dataclass(frozen=True, slots=True)
class JobSetSizes:
    """Numbers of pods of a JobSet that start together."""

    is_ordered: bool
    """Whether one replicated job starts after the other."""
    of_job: Mapping[str, int]
    left: Mapping[str, int]
    """Pods that each replicated job has in all; more than run at once, where it works through a queue."""


def job_set_sizes(owner: GroupOwner) -> JobSetSizes:
    """Pods of each replicated job of a JobSet that run at once, without those of jobs that succeeded."""
    jobs = list(_maps(owner.spec.get("replicatedJobs")))
    is_ordered = _at(owner.spec, "startupPolicy", "startupPolicyOrder") == "InOrder"
    statuses = _maps(owner.status.get("replicatedJobsStatus"))
    done = {str(each.get("name")): _count(each.get("succeeded")) for each in statuses}
    sizes, total = dict[str, int](), dict[str, int]()
    for job in jobs:
        name, spec = str(job.get("name")), _map(_at(job, "template", "spec"))
        parallelism = _count(spec.get("parallelism"), 1)
        completions = _count(spec.get("completions"), parallelism)
        replicas = _count(job.get("replicas"), 1)
        sizes[name] = max(0, replicas - done.get(name, 0)) * min(parallelism, completions)
        total[name] = replicas * completions
    is_ordered = is_ordered or any(job.get("dependsOn") for job in jobs)
    return JobSetSizes(is_ordered, sizes, total)


def _of_job_set(sizes: JobSetSizes, ref: GroupRef, done: Done) -> Share:
    """All pods of a JobSet; those of each replicated job where one is made after the other."""
    of = sizes.of_job
    ended = {name: max(0, size - max(0, sizes.left[name] - done.get(name, 0))) for name, size in of.items()}
    if sizes.is_ordered:
        return Share(of.get(ref.part, 0), ref.part, {ref.part: ended.get(ref.part, 0)})
    return Share(sum(of.values()), done=ended, roles=of)


def _of_job(owner: GroupOwner, _: GroupRef, done: Done) -> Share | None:
    """Pods of an Indexed Job that has as many at once as in all. Others work through a queue, each pod by itself.

    Source: KEP-5547, the Jobs for which Kubernetes itself makes a Workload.
    """
    if owner.spec.get("completionMode") != "Indexed":
        return None
    completions = _count(owner.spec.get("completions"))
    if completions != _count(owner.spec.get("parallelism"), 1):
        return None
    ended, failed = _count(owner.status.get("succeeded")), owner.status.get("failedIndexes")
    also = max(0, sum(done.values()) - ended)
    # A list such as `1,3-5`; indexes of another form count as none.
    for part in failed.split(",") if isinstance(failed, str) else ():
        first, _dash, last = part.partition("-")
        low, high = _written_count(first), _written_count(last or first)
        ended += high - low + 1 if first.isdigit() and high >= low else 0
    return Share(completions - ended, done={"": also})


def _of_ray_cluster(owner: GroupOwner, _: GroupRef, __: Done) -> Share | None:
    """Head and workers of each group at the first start; with an autoscaler the fewest workers. A cluster that ran goes
    on with the workers that it has, so that each later one is placed by itself."""
    if owner.status.get("state") == "ready":
        return None
    for condition in _maps(owner.status.get("conditions")):
        if condition.get("type") == "RayClusterProvisioned" and condition.get("status") == "True":
            return None
    count = "minReplicas" if owner.spec.get("enableInTreeAutoscaling") is True else "replicas"
    roles = {RAY_HEAD: 1}
    for group in _maps(owner.spec.get("workerGroupSpecs")):
        if group.get("suspend") is not True:
            fewest = _count(group.get("minReplicas"))
            workers = max(fewest, _count(group.get(count), fewest)) * _count(group.get("numOfHosts"), 1)
            roles[str(group.get("groupName"))] = roles.get(str(group.get("groupName")), 0) + workers
    return Share(sum(roles.values()), roles=roles)


def _of_kubeflow_job(owner: GroupOwner, _: GroupRef, done: Done) -> Share:
    """Pods of all roles but the launcher's, or as few of them as the job says; of an elastic one as few,
    with all roles but some of the workers."""
    statuses = _map(owner.status.get("replicaStatuses"))
    roles, also = dict[str, int](), dict[str, int]()
    for key, written in owner.spec.items():
        for role, each in _map(written).items() if key.endswith("ReplicaSpecs") else ():
            name = str(role).lower()
            ended = _count(_at(statuses.get(role), "succeeded"))
            if name != LAUNCHER:
                roles[name] = max(0, _count(_at(each, "replicas"), 1) - ended)
                also[name] = max(0, done.get(name, 0) - ended)
    size, elastic = sum(roles.values()), _count(_at(owner.spec, "elasticPolicy", "minReplicas"))
    if fewest := _count(_at(owner.spec, "runPolicy", "schedulingPolicy", "minAvailable")):
        return Share(min(size, fewest), done={"": max(0, min(size, fewest) - size + sum(also.values()))})
    if elastic and "worker" in roles:
        fewest = min(roles["worker"], max(0, elastic - size + roles["worker"]))
        also["worker"] = max(0, also["worker"] - roles["worker"] + fewest)
        roles["worker"] = fewest
    return Share(sum(roles.values()), done=also, roles=roles)


def _unchanged(owner: GroupOwner) -> GroupOwner:
    return owner


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How pods of one kind are gangs."""

    share: Callable[[Any, GroupRef, Done], Share | None]
    read: Callable[[GroupOwner], Any] = _unchanged
    """What is read of the object, once for all groups in it: pods decide how many parts of it they name."""
    needs_object: bool = True
    """Whether a group without its object waits; else the pods alone state the size, and `share` may get no object."""


RULE: Mapping[str, GroupRule] = {
    KUEUE: GroupRule(_stated_size, needs_object=False),
    foreign_kinds.POD_GROUP.called: GroupRule(_min_count),
    foreign_kinds.WORKLOAD.called: GroupRule(_of_workload),
    foreign_kinds.COSCHEDULING.called: GroupRule(_of_pod_group),
    foreign_kinds.VOLCANO.called: GroupRule(_of_pod_group),
    foreign_kinds.KAI.called: GroupRule(_of_pod_group),
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
    done: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    """Members that are done by part, by word and name of their group's object."""


class Groups:
    """Objects of other projects and the pods that refer to them. Not thread-safe."""

    def __init__(self, rules: Mapping[str, GroupRule] = RULE) -> None:
        """rules: by their words."""
        self._rules = rules
        self._owners: dict[tuple[str, str], GroupOwner] = {}
        self._read: frozenset[str] = frozenset()
        self._members: dict[str, tuple[GroupRef, dict[str, bool]]] = {}
        """(group, whether it is for Tonnage by pod) by name."""
        self._of_pod: dict[str, str] = {}
        self._done: dict[str, GroupRef] = {}
        """Group of each pod that is done."""
        self._known: KnownGroups | None = None

    def put_done(self, pod: str, ref: GroupRef | None) -> None:
        """A member that is done; None: it is not, or not any more."""
        if (ref is not None or pod in self._done) and put(self._done, pod, ref):
            self._known = None

    def put_pod(self, pod: str, ref: GroupRef | None, *, is_ours: bool = True) -> None:
        """A pod that is not ours is no member of the gang, and counts as one that is there. None: of no group."""
        text, before = ref.text if ref else None, self._of_pod.get(pod)
        if ref is not None and text is not None and before == text:
            known, members = self._members[text]
            if known == ref and members[pod] == is_ours:
                return
        if before is not None:
            self._known = None
            del self._of_pod[pod], self._members[before][1][pod]
            if not self._members[before][1]:
                del self._members[before]
        if ref is not None and text is not None:
            _, members = self._members.get(text, (ref, {}))
            members[pod] = is_ours
            self._members[text] = (ref, members)
            self._of_pod[pod], self._known = text, None

    def put_owner(self, word: str, name: str, owner: GroupOwner | None) -> None:
        if put(self._owners, (word, name), owner):
            self._known = None

    def read(self, words: Iterable[str]) -> None:
        """Kinds whose objects are all known. A group of another kind has no size."""
        if (now := frozenset(words)) != self._read:
            self._read, self._known = now, None

    def known(self) -> KnownGroups:
        """Gangs of these pods; the same object while nothing changed."""
        if self._known is not None:
            return self._known
        found: dict[str, _Found] = {}
        gang_of, unread, unreadable = {}, [], set()
        read: dict[tuple[str, str], Any] = {}
        ended: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for ref in self._done.values():
            ended[ref.word, ref.name][ref.part] += 1
        for text, (ref, members) in self._members.items():
            rule, owner = self._rules[ref.word], self._owners.get((ref.word, ref.name))
            if owner is None and rule.needs_object:
                if ref.word not in self._read:
                    gang_of[text] = ""
                    unread += [(ref.word, pod) for pod in members]
                continue
            done = ended.get((ref.word, ref.name), Counter())
            try:
                if owner is not None and (ref.word, ref.name) not in read:
                    read[ref.word, ref.name] = rule.read(owner)
                share = rule.share(read.get((ref.word, ref.name)), ref, done)
            except Exception:  # noqa: BLE001 - one object must not stop the others
                unreadable.add(text)
                continue
            if share is None or share.size <= 1:
                gang_of[text] = ""
                continue
            gang = GroupRef(ref.word, ref.name, share.part).text
            gang_of[text] = gang
            found.setdefault(gang, _Found()).put(share, ref.part, members)
        gangs = (each.gang(name) for name, each in sorted(found.items()))
        self._known = KnownGroups(tuple(gangs), gang_of, tuple(sorted(unread)), frozenset(unreadable), ended)
        return self._known


class _Found:
    """What is found of one gang, part by part."""

    def __init__(self) -> None:
        self._share = Share(0)
        self._members: defaultdict[str, dict[str, bool]] = defaultdict(dict)
        """Whether each member is ours, by pod, by the part that it names."""

    def put(self, share: Share, part: str, members: Mapping[str, bool]) -> None:
        self._share = share if share.size > self._share.size else self._share
        self._members[part].update(members)

    def gang(self, name: str) -> Gang:
        """A member that is not ours counts as one that is there."""
        share, alive = self._share, sum(map(len, self._members.values()))
        others = {part: sum(not is_ours for is_ours in each.values()) for part, each in self._members.items()}
        size = min(share.size, MOST_MEMBERS)
        least = max(1, still_needed(size, sum(share.done.values()), alive) - sum(others.values()))
        roles = []
        for role, count in sorted(share.roles.items()):
            members = self._members.get(role, {})
            left = still_needed(count, share.done.get(role, 0), len(members)) - others.get(role, 0)
            if left > 0:
                roles.append(MemberGroup(role, left, tuple(sorted(pod for pod, is_ours in members.items() if is_ours))))
        # Without a member to spare, all of them start, of whatever role. Of members without one, nothing is known.
        are_known = all(self._members) and alive - sum(others.values()) > least
        return Gang(name, least, groups=tuple(roles) if are_known else ())
