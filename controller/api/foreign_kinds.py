"""Kinds of other projects whose pods start together: where the API server serves them.

They are read where they are served and may be listed; a cluster has few of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForeignKind:
    """Kind of another project, or of Kubernetes, that says how many pods start together."""

    name: str
    """`kind` of its objects."""
    group: str
    versions: tuple[str, ...]
    """Versions that state the size alike; the first that is served is read."""
    plural: str
    word: str = ""
    """Name in gangs and logs, where several projects have a kind of that name; empty: `name`."""

    @property
    def called(self) -> str:
        return self.word or self.name

    @property
    def api_versions(self) -> tuple[str, ...]:
        return tuple(f"{self.group}/{version}" for version in self.versions)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the collection in all namespaces, by version."""
        return tuple(f"/apis/{version}/{self.plural}" for version in self.api_versions)


KUBEFLOW_JOBS = tuple(
    ForeignKind(f"{framework}Job", "kubeflow.org", versions, f"{framework.lower()}jobs")
    for framework, versions in (
        ("JAX", ("v1",)),
        ("MPI", ("v1", "v2beta1")),
        ("Paddle", ("v1",)),
        ("PyTorch", ("v1",)),
        ("TF", ("v1",)),
        ("XGBoost", ("v1",)),
    )
)
"""Kinds of the Kubeflow training operator v1, and of the MPI operator."""

JOB = ForeignKind("Job", "batch", ("v1",), "jobs")
JOB_SET = ForeignKind("JobSet", "jobset.x-k8s.io", ("v1alpha2",), "jobsets")
LEADER_WORKER_SET = ForeignKind("LeaderWorkerSet", "leaderworkerset.x-k8s.io", ("v1",), "leaderworkersets")
RAY_CLUSTER = ForeignKind("RayCluster", "ray.io", ("v1",), "rayclusters")
POD_GROUP = ForeignKind("PodGroup", "scheduling.k8s.io", ("v1beta1", "v1alpha3", "v1alpha2"), "podgroups")
COMPOSITE_POD_GROUP = ForeignKind("CompositePodGroup", "scheduling.k8s.io", ("v1alpha3",), "compositepodgroups")
WORKLOAD = ForeignKind("Workload", "scheduling.k8s.io", ("v1alpha1",), "workloads")
COSCHEDULING = ForeignKind("PodGroup", "scheduling.x-k8s.io", ("v1alpha1",), "podgroups", "CoschedulingPodGroup")
KAI = ForeignKind("PodGroup", "scheduling.run.ai", ("v2alpha2",), "podgroups", "KaiPodGroup")
GROVE = ForeignKind("PodGang", "scheduler.grove.io", ("v1alpha1",), "podgangs")
VOLCANO = ForeignKind("PodGroup", "scheduling.volcano.sh", ("v1beta1",), "podgroups", "VolcanoPodGroup")

FOREIGN_KINDS = (
    JOB,
    JOB_SET,
    LEADER_WORKER_SET,
    RAY_CLUSTER,
    *KUBEFLOW_JOBS,
    POD_GROUP,
    COMPOSITE_POD_GROUP,
    WORKLOAD,
    COSCHEDULING,
    KAI,
    GROVE,
    VOLCANO,
)


def foreign_kind_of(api_version: str, name: str) -> ForeignKind | None:
    return next((kind for kind in FOREIGN_KINDS if kind.name == name and api_version in kind.api_versions), None)


FOREIGN_GANG = ":"
"""Separates, in the name of a gang that is no Gang object, the kind and the name that it is of: `default/Job:train`.
No name of a Kubernetes object has one."""


def gang_object(gang: str) -> tuple[str, str]:
    """(kind, name) of the object that a gang is of: its Gang, or the object of another project."""
    namespace, _, name = gang.rpartition("/")
    word, is_foreign, rest = name.partition(FOREIGN_GANG)
    return (word, f"{namespace}/{rest.partition(FOREIGN_GANG)[0]}") if is_foreign else ("Gang", gang)
