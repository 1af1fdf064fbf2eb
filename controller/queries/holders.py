"""Who holds devices, since when, and whether to any use: pods that do not run, that use nothing, or were forgotten."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import WHOLE_GPU_MILLI
from controller.api import notation, structs
from controller.objects.documents import at
from controller.objects.read import Read

LONG_S = 900.0
"""Seconds after which a pod that holds devices should run. Chosen: large images and models take some minutes."""
OLD_S = 7 * 86_400.0
"""Seconds after which a pod that nobody would start again is asked about. Chosen: a week's work is over."""
SLEEPS_S = 86_400.0
"""The same for a pod whose command only waits for somebody to use it."""
LEAST_USED_SHARE = 0.05
"""Mean utilisation over a day below which devices count as unused. Chosen: a loaded model that serves nothing has 0."""
RESTARTS = 10
"""Restarts after which a container that has just ended is in a loop. Chosen: kubelet's back-off is at its longest."""
NOTEBOOKS = ("notebook-name", "hub.jupyter.org/username", "app.kubernetes.io/component=singleuser-server")
"""Labels of pods that people work in: Kubeflow's, JupyterHub's of today and before."""

Use = Literal["works", "held", "unused", "aged"]
"""works: as far as is known. held: it does not run. unused: its devices are idle. aged: ask its owner."""


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """Pod that holds devices."""

    name: str
    """`namespace/name`."""
    node: str
    devices: float
    dollars_per_hour: float
    use: Use
    why: str
    owner: str
    """Object to change, `Deployment/web`; the pod itself where it has no controller."""
    team: str
    age_s: float | None

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    @property
    def said(self) -> str:
        age = "" if self.age_s is None else f", {lasting(self.age_s)}"
        return f"{self.name} on {self.node} ({self.why}{age}; {self.owner})"


def lasting(for_s: float) -> str:
    """Length of time in its largest unit: `21 d`."""
    for unit, length_s in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if for_s >= length_s:
            return f"{for_s / length_s:.0f} {unit}"
    return f"{for_s:.0f} s"


def holders(
    reads: Iterable[Read[structs.Pod]],
    now: Snapshot,
    at_s: float,
    used_share: Mapping[str, float] | None = None,
    team_label: str = "team",
) -> tuple[DeviceHolder, ...]:
    """Every pod that holds devices, the dearest first.

    now: the snapshot of these pods. at_s: when it was taken, seconds since the epoch. used_share: mean utilisation of a
    pod's devices over a day, 0..1, where it is known.
    """
    prices, pods = now.device_prices(), now.pods
    half = set[int]()
    """Gangs that run with too few members while others wait."""
    for number, gang in enumerate(now.gangs):
        mine = pods.node[pods.gang == number]
        if 0 < int((mine != PENDING).sum()) < gang.min_members and (mine == PENDING).any():
            half.add(number)
    found: list[DeviceHolder] = []
    for read in reads:
        row = pods.names.row(read.name)
        node = PENDING if row is None else int(pods.node[row])
        if row is None or node == PENDING or not (milli := pods.shapes[int(pods.shape[row])].total_gpu_milli):
            continue
        content = read.document.content if read.document is not None else {}
        created_s = notation.instant_or_none(at(content, "metadata", "creationTimestamp"))
        age_s = None if created_s is None else max(0.0, at_s - created_s)
        use, why = _use(read, content, at_s, age_s, (used_share or {}).get(read.name))
        if use == "works" and int(pods.gang[row]) in half and (age_s is None or age_s >= LONG_S):
            use, why = "held", "waits for the rest of its gang"
        found.append(
            DeviceHolder(
                read.name,
                now.nodes.names[node],
                milli / WHOLE_GPU_MILLI,
                milli / WHOLE_GPU_MILLI * float(prices[node]),
                use,
                why,
                _owner(read),
                read.object.metadata.labels.get(team_label, ""),
                age_s,
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.dollars_per_hour, each.name)))


def replaced_in(reads: Iterable[Read[structs.Pod]]) -> frozenset[str]:
    """Pods that their controllers make anew on another node, without loss but of requests: not those of Jobs."""
    return frozenset(
        read.name for read in reads if any(each.kind == "ReplicaSet" for each in read.object.metadata.owner_references)
    )


def _owner(read: Read[structs.Pod]) -> str:
    """Object to change; of a Deployment's pod, the Deployment."""
    for each in read.object.metadata.owner_references:
        if each.controller:
            is_deployment = each.kind == "ReplicaSet" and "pod-template-hash" in read.object.metadata.labels
            name = each.name.rpartition("-")[0] if is_deployment else each.name
            return f"{'Deployment' if is_deployment else each.kind}/{name}"
    return f"Pod/{read.object.metadata.name}"


def _use(
    read: Read[structs.Pod], content: Any, at_s: float, age_s: float | None, used_share: float | None
) -> tuple[Use, str]:
    why, since = _not_running(read, content)
    since_s = notation.instant_or_none(since)
    if why and (since_s is None or at_s - since_s >= LONG_S):
        return "held", why
    if why or read.object.belongs_to_its_node:
        return "works", ""
    if used_share is not None:
        # Younger than what the mean is over, it may just have begun.
        is_unused = used_share < LEAST_USED_SHARE and (age_s is None or age_s >= SLEEPS_S)
        return ("unused", f"{100 * used_share:.0f} % used") if is_unused else ("works", "")
    if age_s is not None and age_s >= SLEEPS_S and _only_sleeps(content):
        return "aged", "its command only waits"
    labels = {each for pair in read.object.metadata.labels.items() for each in (pair[0], "=".join(pair))}
    if age_s is not None and age_s >= OLD_S:
        if not labels.isdisjoint(NOTEBOOKS):
            return "aged", "notebook"
        if not any(each.controller for each in read.object.metadata.owner_references):
            return "aged", "no controller"
    return "works", ""


def _only_sleeps(content: Any) -> bool:
    """Whether the containers with devices run nothing but a wait, as pods for a shell do."""
    asking = [each for each in at(content, "spec", "containers") or () if _asks(each)]
    words = [" ".join(map(str, (*(each.get("command") or ()), *(each.get("args") or ())))) for each in asking]
    ends = ("sleep infinity", "sleep inf", "tail -f /dev/null", "sleep 1d", "while true; do sleep 30; done")
    return bool(words) and all(each.strip().rstrip(";").endswith(ends) for each in words)


def _asks(container: Mapping[str, Any]) -> bool:
    limits = at(container, "resources", "limits") or {}
    return any("/" in name and not name.startswith("hugepages") for name in limits)


def _not_running(read: Read[structs.Pod], content: Any) -> tuple[str, str | None]:
    """Why a bound pod does not run, and since when; ("", None) for one that does."""
    # Times and what containers wait for are read here alone, so that they cost nothing where pods are watched.
    status: Any = at(content, "status") or {}
    created = at(content, "metadata", "creationTimestamp")
    if (deleted := read.object.metadata.deletion_timestamp) is not None:
        return "being deleted", deleted
    all_of = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waits = [str(at(each, "state", "waiting", "reason") or "") for each in all_of]
    if reason := next((each for each in waits if each not in ("", "ContainerCreating", "PodInitializing")), ""):
        return reason, created
    asking = {each.get("name") for each in at(content, "spec", "containers") or () if _asks(each)}
    ended = {each.get("name"): at(each, "state", "terminated", "finishedAt") for each in all_of
             if at(each, "state", "terminated") and each.get("name") in asking}  # fmt: skip
    if asking and ended.keys() == asking:
        loops = max(int(each.get("restartCount") or 0) for each in all_of if each.get("name") in ended) >= RESTARTS
        return "CrashLoopBackOff" if loops else "its container has ended", created if loops else max(
            map(str, ended.values())
        )
    if created is not None and status.get("phase") != "Running":  # of unknown age, it may just have been bound
        return f"phase {status.get('phase')}", created
    since = {each["type"]: each.get("lastTransitionTime") for each in status.get("conditions") or ()
             if each.get("status") == "False"}  # fmt: skip
    return ("not ready", since["Ready"] or created) if "Ready" in since else ("", None)


PERCENT = (
    "DCGM_FI_DEV_GPU_UTIL",
    "gpu_gfx_activity",
    "habanalabs_utilization",
    "npu_chip_info_utilization",
    "container_accelerator_duty_cycle",
    "kubernetes_io:container_accelerator_duty_cycle",
)
"""Series of NVIDIA's, AMD's, Intel's (Gaudi), Huawei's and Google's exporters that count to 100."""
RATIO = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "neuroncore_utilization_ratio")
"""Series that count to 1: NVIDIA's for slices of a device, and Amazon's."""
WINDOW = "1d"
QUERY = (
    "max by (__name__, namespace, pod, exported_namespace, exported_pod, namespace_name, pod_name) (avg_over_time("
    f'{{__name__=~"{"|".join((*PERCENT, *RATIO))}"}}[{WINDOW}]))'
)
"""Mean of a day; of a pod's devices, the busiest."""


def used_share_by_pod(answer: Iterable[tuple[Mapping[str, str], float]]) -> dict[str, float]:
    """Mean utilisation by pod, `namespace/name`, 0..1; of several devices, and several series of one, the greatest.

    answer: labels and value of each series.

    An exporter's own pod is in `pod` where Prometheus keeps what it scraped in `exported_pod`. Devices without a pod
    are in no figure.
    """
    found: dict[str, float] = {}
    for labels, value in answer:
        name = labels.get("__name__", PERCENT[0])
        pod = labels.get("exported_pod") or labels.get("pod") or labels.get("pod_name")
        namespace = labels.get("exported_namespace") or labels.get("namespace") or labels.get("namespace_name")
        if pod and namespace:
            share = value / (1.0 if name in RATIO else 100.0)
            found[f"{namespace}/{pod}"] = max(share, found.get(f"{namespace}/{pod}", 0.0))
    return found
