"""Which pods are members of which gang, and how many start together: one rule for each kind that says so."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.workloads import MemberGroup
from controller.api import foreign_kinds, labels as api_labels
from controller.api.structs import Pod
from controller.objects.documents import at, map_of
from controller.objects.read import GroupOwner

MOST_MEMBERS = 1_000_000
"""Largest size that is believed, as of a Gang's minMembers; also of products of several such numbers."""
GANG = "Gang"
"""Word of our own kind."""
KUEUE = "KueuePodGroup"
"""Word of Kueue's groups of plain pods, which have no object."""
RAY_HEAD = "headgroup"
"""Group of a Ray cluster's head in the label ray.io/group. Source: KubeRay, HeadNodeGroup."""
LAUNCHER, WORKER, LEADER = "launcher", "worker", "leader"
SIGN = foreign_kinds.FOREIGN_GANG
"""Separates the parts of a part."""
COMPOSITE = foreign_kinds.COMPOSITE_POD_GROUP.called
# Words of these kinds, looked up once: every pod is compared with all of them.
POD_GROUP, _WORKLOAD, _COSCHEDULING = (
    kind.called for kind in (foreign_kinds.POD_GROUP, foreign_kinds.WORKLOAD, foreign_kinds.COSCHEDULING)
)
_VOLCANO, _KAI, _GROVE = (kind.called for kind in (foreign_kinds.VOLCANO, foreign_kinds.KAI, foreign_kinds.GROVE))
_LEADER_WORKER_SET, _JOB_SET = foreign_kinds.LEADER_WORKER_SET.called, foreign_kinds.JOB_SET.called
_RAY_CLUSTER, _MPI_JOB, _JOB = foreign_kinds.RAY_CLUSTER.called, "MPIJob", foreign_kinds.JOB.called


@dataclass(frozen=True, slots=True)
class GroupRef:
    """Group that a pod names, with what the pod itself states of it."""

    word: str
    """Rule by which it is one."""
    name: str
    """`namespace/name` of its object."""
    part: str = ""
    """Part of the object that starts together, or role in it, where it has several."""
    size: int = 0
    """Number of members; 0: its object states it."""
    within: str = ""
    """Node label that the members of the part must share; empty: none."""
    prefer_within: str = ""
    follows: bool = False
    """Whether its controller makes the other members once the leader has its node, so that they start after it."""

    @property
    def key(self) -> tuple[str, str]:
        return self.word, self.name

    @property
    def text(self) -> str:
        """Name that nothing else has: `default/JobSet:train:workers`; a Gang's own is that of its object."""
        if self.word == GANG and not self.part:
            return self.name
        namespace, _, name = self.name.rpartition("/")
        return f"{namespace}/{SIGN.join(filter(None, (self.word, name, self.part)))}"


@dataclass(frozen=True, slots=True)
class Share:
    """Part of a group's object that starts together."""

    size: int
    """Number of pods, without those that ended by what the object says."""
    part: str = ""
    done: Mapping[str, int] = field(default_factory=dict)
    """How many of these are done all the same, by the part that pods name."""
    groups: tuple[MemberGroup, ...] = ()
    """How few of them must be of each role, without members: pods name an innermost group as their part. One without a
    name stands for each of the groups whose names begin with that of the group around it (`workers:3`)."""
    least_groups: int | None = None
    most: int = 0
    within: str | None = None
    prefer_within: str | None = None


def group_of(pod: Pod) -> GroupRef | None:
    """Group of a pod by the first kind that applies; None for a pod of none. Those that somebody wrote down go first,
    and ours before all; an empty label of ours says that the pod is of none."""
    if pod.metadata.gang == "":
        return None
    word, name = next(((word, name) for word, name in _names(pod) if name), ("", ""))
    if not name:
        return None
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    exclusive = {_JOB_SET: annotations.job_set_topology, _LEADER_WORKER_SET: annotations.lws_topology}.get(word)
    follows = exclusive is not None and annotations.job_set_by_selector != "true"
    stated = {KUEUE: annotations.kueue_count, _LEADER_WORKER_SET: annotations.lws_size}.get(word)
    return GroupRef(
        word,
        f"{pod.metadata.namespace}/{name}",
        _part(pod, word, labels, follows=follows),
        _written_count(stated),
        annotations.kueue_within or "",
        annotations.kueue_prefer_within or "",
        follows,
    )


def _names(pod: Pod) -> Iterator[tuple[str, str | None]]:
    """Groups that a pod may be in, by word and name, in the order in which they count."""
    spec, labels, annotations = pod.spec, pod.metadata.labels, pod.metadata.annotations
    yield GANG, pod.metadata.gang
    yield KUEUE, labels.get("kueue.x-k8s.io/pod-group-name")
    yield POD_GROUP, spec.scheduling_group.pod_group_name if spec.scheduling_group else None
    yield _WORKLOAD, spec.workload_ref.name if spec.workload_ref else None
    yield _COSCHEDULING, labels.get("scheduling.x-k8s.io/pod-group")
    yield _VOLCANO, annotations.volcano_group
    yield _KAI, annotations.kai_group
    yield _GROVE, labels.get("grove.io/podgang")
    yield _LEADER_WORKER_SET, labels.get("leaderworkerset.sigs.k8s.io/name")
    yield _JOB_SET, labels.get("jobset.sigs.k8s.io/jobset-name")
    owners = [each.kind for each in pod.metadata.owner_references if each.controller]
    if foreign_kinds.RAY_CLUSTER.name in owners:
        yield _RAY_CLUSTER, labels.get("ray.io/cluster")
    job = labels.get("training.kubeflow.org/job-name")
    for kind in foreign_kinds.KUBEFLOW_JOBS if job else ():
        if kind.name in owners:
            yield kind.called, job
    if labels.get("training.kubeflow.org/operator-name") == "mpi-operator":  # a Job owns its launcher
        yield _MPI_JOB, job
    if foreign_kinds.JOB.name in owners:
        yield _JOB, labels.get("batch.kubernetes.io/job-name")


def _part(pod: Pod, word: str, labels: Mapping[str, str], *, follows: bool) -> str:
    """Part of its group's object that a pod names."""
    if word == GANG:
        return labels.get(api_labels.GANG_GROUP_LABEL) or ""
    if word == _WORKLOAD and pod.spec.workload_ref:
        workload = pod.spec.workload_ref
        return SIGN.join(filter(None, (workload.pod_group, workload.pod_group_replica_key)))
    if word == _VOLCANO:
        return pod.metadata.annotations.volcano_task or ""
    if word == _LEADER_WORKER_SET:
        role = LEADER if labels.get("leaderworkerset.sigs.k8s.io/worker-index") == "0" else "workers"
        return (labels.get("leaderworkerset.sigs.k8s.io/group-index") or "0") + SIGN + role
    if word == _JOB_SET:
        role = labels.get("jobset.sigs.k8s.io/replicatedjob-name") or ""
        first = LEADER if labels.get("batch.kubernetes.io/job-completion-index") == "0" else "workers"
        return SIGN.join((role, labels.get("jobset.sigs.k8s.io/job-index") or "0", first)) if follows else role
    if word == _RAY_CLUSTER:
        replica = labels.get("ray.io/worker-group-replica-name")
        return SIGN.join(filter(None, (labels.get("ray.io/group"), replica)))
    if word in _KUBEFLOW:
        of_type = labels.get("training.kubeflow.org/replica-type") or labels.get("training.kubeflow.org/job-role")
        return (of_type or "").lower()
    key = {_KAI: "kai.scheduler/subgroup-name", _GROVE: "grove.io/podclique"}.get(word)
    return (labels.get(key) or "") if key else ""


_KUBEFLOW = frozenset(kind.called for kind in foreign_kinds.KUBEFLOW_JOBS)


def _written_count(written: str | None) -> int:
    if written is None or not (written.isascii() and written.isdigit()) or len(written) >= 10:
        return 0
    return _count(int(written))


def _count(value: object, otherwise: int = 0) -> int:
    """A number of pods of an object; `otherwise` where it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return otherwise
    return min(max(value, 0), MOST_MEMBERS)


def _maps(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


# What starts together, by what was read of a group's object; None where each pod of it is placed by itself.


Done = Mapping[str, int]
"""Members that are done, by part."""


def _stated_size(_: GroupOwner | None, ref: GroupRef, done: Done) -> Share | None:
    return Share(ref.size, done=done) if ref.size else None


def fewest(least: int, groups: Iterable[MemberGroup], least_groups: int | None) -> int:
    """Fewest members with which a group is whole that has this minimum and these groups."""
    inner = sorted(fewest(each.least, each.groups, each.least_groups) for each in groups)
    return max(least, sum(inner[:least_groups]))


def _tree(listed: object, read: Callable[[Mapping[str, Any]], MemberGroup]) -> tuple[MemberGroup, ...]:
    """Groups of a list, in which each may name the one around it as its parent."""
    around = defaultdict[str, list[Mapping[str, Any]]](list)
    names = {each.get("name") for each in _maps(listed)}
    for each in _maps(listed):
        around[str(each.get("parent")) if each.get("parent") in names else ""].append(each)

    def below(parent: str) -> tuple[MemberGroup, ...]:
        return tuple(replace(read(each), groups=below(str(each.get("name")))) for each in around[parent])

    return below("")


Fields = tuple[tuple[str, ...], str, str]
"""Where an object states levels: the map, and in it the level that members must share, and that they should."""
_OUR_LEVELS: Fields = (("topology",), "within", "preferWithin")
_KAI_LEVELS: Fields = (("topologyConstraint",), "requiredTopologyLevel", "preferredTopologyLevel")
_GROVE_LEVELS: Fields = (("topologyConstraint", "packConstraint"), "required", "preferred")


def _levels(of: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """Node labels that the members of a group must and should share."""
    path, required, preferred = fields
    found = {"within": at(of, *path, required), "prefer_within": at(of, *path, preferred)}
    return {key: level for key, level in found.items() if isinstance(level, str) and level}


def _count_or_all(value: object) -> int | None:
    return None if value is None else _count(value)


def _of_gang(owner: GroupOwner, _: GroupRef, done: Done) -> Share:
    """As many as a Gang says, and of each group as it says."""
    spec = owner.spec

    def group(each: Mapping[str, Any]) -> MemberGroup:
        return MemberGroup(
            str(each.get("name")),
            _count(each.get("minMembers")),
            least_groups=_count_or_all(each.get("minGroups")),
            most=_count(each.get("maxMembers")),
            **_levels(each, _OUR_LEVELS),
        )

    groups, least_groups = _tree(spec.get("groups"), group), _count_or_all(spec.get("minGroups"))
    return Share(
        fewest(_count(spec.get("minMembers")), groups, least_groups),
        done=done,
        groups=groups,
        least_groups=least_groups,
        most=_count(spec.get("maxMembers")),
        **_levels(spec, _OUR_LEVELS),
    )


def _of_pod_group(owner: GroupOwner, _: GroupRef, done: Done) -> Share:
    """As many as a group of coscheduling, Volcano or KAI says, and of each task or subgroup as it says.

    Done are as many as its status says where it says more than the pods that are left.
    """
    spec = owner.spec
    outer = {each.get("parent") for each in _maps(spec.get("subGroups"))}

    def subgroup(each: Mapping[str, Any]) -> MemberGroup:
        return MemberGroup(
            str(each.get("name")),
            _count(each.get("minMember"), 0 if each.get("name") in outer else 1),
            least_groups=_count_or_all(each.get("minSubGroup")),
            **_levels(each, _KAI_LEVELS),
        )

    tasks = (MemberGroup(str(task), _count(count)) for task, count in map_of(spec.get("minTaskMember")).items())
    groups = (*_tree(spec.get("subGroups"), subgroup), *tasks)
    more = _count(owner.status.get("succeeded")) - sum(done.values())
    ended = {**done, "": done.get("", 0) + max(0, more)}
    least_groups = _count_or_all(spec.get("minSubGroup"))
    size = fewest(_count(spec.get("minMember"), 1), groups, least_groups)
    return Share(size, done=ended, groups=groups, least_groups=least_groups, **_levels(spec, _KAI_LEVELS))


def _of_pod_gang(owner: GroupOwner, _: GroupRef, done: Done) -> Share:
    """Each clique with as many as Grove's PodGang says. Cliques that share a level are a group of their own."""
    spec = owner.spec
    cliques = {
        str(each.get("name")): MemberGroup(
            str(each.get("name")), _count(each.get("minReplicas"), 1), **_levels(each, _GROVE_LEVELS)
        )
        for each in _maps(spec.get("podgroups"))
    }
    groups = []
    for each in _maps(spec.get("topologyConstraintGroupConfigs")):
        named = each.get("podGroupNames")
        inner = [cliques.pop(str(name)) for name in named if str(name) in cliques] if isinstance(named, list) else []
        groups.append(MemberGroup(str(each.get("name")), 0, groups=tuple(inner), **_levels(each, _GROVE_LEVELS)))
    groups += cliques.values()
    return Share(fewest(0, groups, None), done=done, groups=tuple(groups), **_levels(spec, _GROVE_LEVELS))


def _min_count(owner: GroupOwner, _: GroupRef, done: Done) -> Share | None:
    size = _count(at(owner.spec, "schedulingPolicy", "gang", "minCount"))
    return Share(size, done=done, within=_key_of(owner)) if size else None


def _key_of(owner: GroupOwner) -> str | None:
    """Node label that the pods of one of Kubernetes' groups must share; it allows one."""
    topology = next(_maps(at(owner.spec, "schedulingConstraints", "topology")), {})
    return topology["key"] if isinstance(topology.get("key"), str) else None


Owners = Mapping[tuple[str, str], GroupOwner]
"""Objects by word and name."""


def parent_of(word: str, name: str, owners: Owners) -> str:
    """Composite group that one of Kubernetes' groups starts together with; empty: none. It may not be there yet."""
    parent = at(owners[word, name].spec, "parentCompositePodGroupName") if (word, name) in owners else None
    if not isinstance(parent, str) or not parent:
        return ""
    full = f"{name.rpartition('/')[0]}/{parent}"
    found = owners.get((COMPOSITE, full))
    return "" if found and at(found.spec, "schedulingPolicy", "gang") is None else full


DEEPEST = 4
"""Most groups around a pod. Source: scheduling.k8s.io/v1alpha3, WorkloadMaxTreeDepth."""


def root_of(key: tuple[str, str], owners: Owners) -> str:
    """Outermost composite group of Kubernetes that a group starts together with; empty: none."""
    (word, name), root = key, ""
    for _ in range(DEEPEST if word == POD_GROUP else 0):
        if not (parent := parent_of(word, name, owners)):
            break
        word, name, root = COMPOSITE, parent, parent
    return root


def composites(owners: Owners) -> Mapping[str, Share]:
    """What starts together of each composite group of Kubernetes that is in no other, by name.

    Source: KEP-6012 and scheduling.k8s.io/v1alpha3: a group with the basic policy schedules those in it by themselves.
    """
    inside = defaultdict[str, list[tuple[str, str]]](list)
    for word, name in owners:
        if word in (POD_GROUP, COMPOSITE) and (parent := parent_of(word, name, owners)):
            inside[parent].append((word, name))

    def group(word: str, name: str) -> MemberGroup:
        owner = owners[word, name]
        if word == POD_GROUP:
            least = _count(at(owner.spec, "schedulingPolicy", "gang", "minCount"), 1)
            return MemberGroup(name, least, within=_key_of(owner))
        inner = tuple(group(*each) for each in sorted(inside[name]))
        least_groups = _count(at(owner.spec, "schedulingPolicy", "gang", "minGroupCount"), 1)
        # Of groups that do not exist yet, so many members are missing at least.
        least = max(0, least_groups - len(inner)) + fewest(0, inner, least_groups)
        return MemberGroup(name, least, groups=inner, least_groups=least_groups, within=_key_of(owner))

    roots = (name for word, name in owners if word == COMPOSITE and not parent_of(word, name, owners))
    made = (group(COMPOSITE, name) for name in roots)
    return {
        each.name: Share(each.least, groups=each.groups, least_groups=each.least_groups, within=each.within)
        for each in made
    }


def _of_workload(owner: GroupOwner, ref: GroupRef, done: Done) -> Share | None:
    group = ref.part.partition(SIGN)[0]
    found = (each for each in _maps(owner.spec.get("podGroups")) if each.get("name") == group)
    size = _count(at(next(found, {}), "policy", "gang", "minCount"))
    return Share(size, ref.part, {ref.part: done.get(ref.part, 0)}) if size else None


def _of_leader(owner: GroupOwner | None, ref: GroupRef, _: Done) -> Share | None:
    """A leader with its workers. Where the workers are made once the leader is ready or placed, they start after it."""
    group, _sign, role = ref.part.partition(SIGN)
    if not ref.follows and (owner is None or owner.spec.get("startupPolicy") != "LeaderReady"):
        return Share(ref.size, group)
    return None if role == LEADER else Share(ref.size - 1, ref.part)


@dataclass(frozen=True, slots=True)
class JobSetSizes:
    """Numbers of pods of a JobSet that start together."""

    first: Mapping[str, str]
    """First of the replicated jobs that are made at once, by each of them."""
    of_job: Mapping[str, int]
    of_each: Mapping[str, int]
    """Of one job of it."""
    left: Mapping[str, int]
    """Pods that each replicated job has in all; more than run at once, where it works through a queue."""


def job_set_sizes(owner: GroupOwner) -> JobSetSizes:
    """Pods of each replicated job of a JobSet that run at once, without those of jobs that succeeded."""
    jobs = list(_maps(owner.spec.get("replicatedJobs")))
    is_ordered = at(owner.spec, "startupPolicy", "startupPolicyOrder") == "InOrder"
    first, made_at_once = dict[str, str](), dict[str, str]()
    statuses = _maps(owner.status.get("replicatedJobsStatus"))
    done = {str(each.get("name")): _count(each.get("succeeded")) for each in statuses}
    sizes, total, each_job = dict[str, int](), dict[str, int](), dict[str, int]()
    for job in jobs:
        name, spec = str(job.get("name")), map_of(at(job, "template", "spec"))
        first[name] = made_at_once.setdefault(name if is_ordered else str(job.get("dependsOn")), name)
        parallelism = _count(spec.get("parallelism"), 1)
        completions = _count(spec.get("completions"), parallelism)
        replicas = _count(job.get("replicas"), 1)
        each_job[name] = min(parallelism, completions)
        sizes[name] = max(0, replicas - done.get(name, 0)) * each_job[name]
        total[name] = replicas * completions
    return JobSetSizes(first, sizes, each_job, total)


def _of_job_set(sizes: JobSetSizes, ref: GroupRef, done: Done) -> Share | None:
    """All pods of a JobSet; those of the replicated jobs that are made at once where one is made after the other; those
    of each job but its first where its admission refuses them until that one has a node."""
    of = sizes.of_job
    if ref.follows:
        role, _sign, place = ref.part.partition(SIGN)
        size = sizes.of_each.get(role, 0) - 1
        return None if place.endswith(LEADER) else Share(size, ref.part, {ref.part: done.get(ref.part, 0)})
    ended = {name: max(0, size - max(0, sizes.left[name] - done.get(name, 0))) for name, size in of.items()}
    part = sizes.first.get(ref.part, "") if len(set(sizes.first.values())) > 1 else ""
    of = {name: size for name, size in of.items() if not part or sizes.first[name] == part}
    return Share(sum(of.values()), part, {name: ended[name] for name in of}, _flat(of))


def _flat(roles: Mapping[str, int], most: Mapping[str, int] | None = None) -> tuple[MemberGroup, ...]:
    return tuple(MemberGroup(role, count, most=(most or {}).get(role, 0)) for role, count in sorted(roles.items()))


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


def _of_ray_cluster(owner: GroupOwner, ref: GroupRef, _: Done) -> Share | None:
    """Head and workers of each group at the first start; with an autoscaler the fewest workers. A cluster that ran goes
    on with the workers that it has, so that each later replica is placed by itself, with all of its hosts."""
    specs = [each for each in _maps(owner.spec.get("workerGroupSpecs")) if each.get("suspend") is not True]
    ran = owner.status.get("state") == "ready" or any(
        condition.get("type") == "RayClusterProvisioned" and condition.get("status") == "True"
        for condition in _maps(owner.status.get("conditions"))
    )
    if ran:
        group, _sign, replica = ref.part.partition(SIGN)
        hosts = next((_count(each.get("numOfHosts"), 1) for each in specs if each.get("groupName") == group), 1)
        return Share(hosts, ref.part) if replica and hosts > 1 else None
    count = "minReplicas" if owner.spec.get("enableInTreeAutoscaling") is True else "replicas"
    groups = [MemberGroup(RAY_HEAD, 1)]
    for each in specs:
        least, hosts = _count(each.get("minReplicas")), _count(each.get("numOfHosts"), 1)
        replicas = max(least, _count(each.get(count), least))
        # A replica of several hosts is of no use without one of them.
        inner = (MemberGroup("", hosts),) if hosts > 1 else ()
        most = _count(each.get("maxReplicas")) * hosts
        name = str(each.get("groupName"))
        groups.append(MemberGroup(name, replicas * hosts, groups=inner, least_groups=replicas, most=most))
    return Share(fewest(0, groups, None), groups=tuple(groups))


def _of_kubeflow_job(owner: GroupOwner, ref: GroupRef, done: Done) -> Share | None:
    """Pods of all roles, or as few of them as the job says but one of each; of an elastic one as few, with all roles
    but some of the workers.

    A launcher of MPI starts by itself where it is made after its workers, and else not before them. Source: MPI
    operator, launcherCreationPolicy; without that field, it is made with or after them, and nothing waits for it.
    """
    launched = owner.spec.get("launcherCreationPolicy")
    if ref.part == LAUNCHER and launched == "WaitForWorkersReady":
        return None
    statuses = map_of(owner.status.get("replicaStatuses"))
    roles, also = dict[str, int](), dict[str, int]()
    for key, written in owner.spec.items():
        for role, each in map_of(written).items() if key.endswith("ReplicaSpecs") else ():
            name = str(role).lower()
            ended = _count(at(statuses.get(role), "succeeded"))
            if name != LAUNCHER or launched == "AtStartup":
                roles[name] = max(0, _count(at(each, "replicas"), 1) - ended)
                also[name] = max(0, done.get(name, 0) - ended)
    size, elastic = sum(roles.values()), _count(at(owner.spec, "elasticPolicy", "minReplicas"))
    if least := _count(at(owner.spec, "runPolicy", "schedulingPolicy", "minAvailable")):
        spared = {"": max(0, min(size, least) - size + sum(also.values()))}
        return Share(min(size, least), done=spared, groups=_flat({role: min(1, roles[role]) for role in roles}))
    if elastic and WORKER in roles:
        least = min(roles[WORKER], max(0, elastic - size + roles[WORKER]))
        also[WORKER] = max(0, also[WORKER] - roles[WORKER] + least)
        roles[WORKER] = least
    most = {WORKER: _count(at(owner.spec, "elasticPolicy", "maxReplicas"))}
    return Share(sum(roles.values()), done=also, groups=_flat(roles, most))


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How pods of one kind are gangs."""

    share: Callable[[Any, GroupRef, Done], Share | None]
    read: Callable[[GroupOwner], Any] | None = None
    """What is read of the object, once for all groups in it: pods decide how many parts of it they name. None: it is
    taken as it is."""
    needs_object: bool = True
    """Whether a group without its object waits; else the pods alone state the size, and `share` may get no object."""


RULE: Mapping[str, GroupRule] = {
    GANG: GroupRule(_of_gang),
    KUEUE: GroupRule(_stated_size, needs_object=False),
    foreign_kinds.POD_GROUP.called: GroupRule(_min_count),
    foreign_kinds.WORKLOAD.called: GroupRule(_of_workload),
    foreign_kinds.COSCHEDULING.called: GroupRule(_of_pod_group),
    foreign_kinds.VOLCANO.called: GroupRule(_of_pod_group),
    foreign_kinds.KAI.called: GroupRule(_of_pod_group),
    foreign_kinds.GROVE.called: GroupRule(_of_pod_gang),
    foreign_kinds.LEADER_WORKER_SET.called: GroupRule(_of_leader, needs_object=False),
    foreign_kinds.JOB_SET.called: GroupRule(_of_job_set, read=job_set_sizes),
    foreign_kinds.RAY_CLUSTER.called: GroupRule(_of_ray_cluster),
    **{kind.called: GroupRule(_of_kubeflow_job) for kind in foreign_kinds.KUBEFLOW_JOBS},
    foreign_kinds.JOB.called: GroupRule(_of_job),
}
"""Rule of each kind, by its word."""
