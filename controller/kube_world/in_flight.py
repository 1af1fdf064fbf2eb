"""Adjustments of the observed snapshot before planning: foreign pods removed, changes in flight added."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cluster.actions import Bind
from cluster.changes import resized, without_pods
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType
from controller.kube.cluster_view import SeenDeployment, SeenPod
from controller.kube.sender import REQUEST_TIMEOUT_S


def with_issued_binds(
    snapshot: Snapshot,
    seen: Callable[[str], SeenPod | None],
    issued: Iterable[Bind],
    ours: Callable[[SeenPod], bool],
    promised: Callable[[SeenPod], Bind | None],
) -> Snapshot:
    """The snapshot with sent binds counted as done, and without pending pods of other schedulers.

    A pod whose gate was removed counts as running on its chosen node until kube-scheduler decides otherwise; this is
    read from the pod, so it survives a restart of this process.
    promised: what such a pod holds; None where that is not believed.
    """
    binds = {bind.pod: bind for bind in issued}
    foreign = []
    for row in snapshot.pods.pending:
        name = snapshot.pods.names[int(row)]
        pod = seen(name)
        if name in binds:
            continue
        if pod and pod.node:
            binds[name] = Bind(name, pod.node, pod.devices)  # bound since the snapshot was taken
        elif pod and (bind := promised(pod)):
            binds[name] = bind  # about to be: its devices are in use
        elif pod is None or not ours(pod):
            foreign.append(int(row))
    kept = replace(snapshot, pods=without_pods(snapshot.pods, foreign)) if foreign else snapshot
    pods, nodes = kept.pods.names, kept.nodes.names
    return kept.after(b for b in binds.values() if pods.row(b.pod) is not None and nodes.row(b.node) is not None)


def with_deployed(
    snapshot: Snapshot,
    deployments: Iterable[SeenDeployment],
    content: Callable[[str, InstanceType], str | None],
    scaled_at_s: Callable[[str], float | None],
) -> Snapshot:
    """The snapshot with each service's replicas read from its Deployments.

    A Deployment that is missing, or whose content differs from its service's present specification, counts as 0
    replicas, so that the plan writes it again; except where no profile has its width any more, so that the plan scales
    it to 0. A service that is only planned has no Deployments: it keeps the mix that was planned last.
    content: hash that the Deployment of (service, instance type) should have; None if the service has no template.
    scaled_at_s: when a service's replicas last changed, seconds since the epoch.
    """
    replicas: dict[str, dict[InstanceType, int]] = {}
    models = {service.name: service.model for service in snapshot.services}
    profiled = {(each.model, each.gpu_type, each.gpus_per_instance) for each in snapshot.profiles}
    for each in deployments:
        width = models.get(each.service, ""), each.instance_type.gpu_type, each.instance_type.gpus
        if width not in profiled or each.content == content(each.service, each.instance_type):
            replicas.setdefault(each.service, {})[each.instance_type] = each.replicas
    services = tuple(
        replace(
            s,
            replicas=s.replicas if s.is_planned_only else _sorted(replicas.get(s.name)),
            scaled_at_s=scaled_at_s(s.name),
        )
        for s in snapshot.services
    )
    return replace(snapshot, services=services)


def with_resized(snapshot: Snapshot, resized_to: Mapping[str, tuple[float, int]]) -> Snapshot:
    """The snapshot with replicas that were set since they were last read.

    resized_to: instant of the snapshot that the write was made from, and the replicas written, by policy.
    """
    for scaler in snapshot.scalers:
        at_s, replicas = resized_to.get(scaler.name, (-math.inf, 0))
        if scaler.replicas is not None and scaler.replicas.observed_at_s <= at_s + REQUEST_TIMEOUT_S:
            snapshot = resized(snapshot, scaler.name, replicas, at_s)
    return snapshot


def _sorted(replicas: Mapping[InstanceType, int] | None) -> dict[InstanceType, int] | None:
    return dict(sorted(replicas.items())) if replicas else None
