"""The cluster as the loop should plan on it: what the watches saw, less what is not ours, plus what is under way."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cluster.actions import Bind
from cluster.scaling import without_pods
from cluster.snapshot import Snapshot
from controller.kube.cluster_view import SeenDeployment, SeenPod


def with_what_is_under_way(
    snapshot: Snapshot, seen: Callable[[str], SeenPod | None], issued: Iterable[Bind], ours: Callable[[SeenPod], bool]
) -> Snapshot:
    """The snapshot in which binds that were issued count as true, and pending pods of other schedulers are absent.

    A pod that was released towards a node by removing its gate counts as running there until kube-scheduler says
    otherwise; that is read from the pod, so it outlives this process.
    """
    binds = {bind.pod: bind for bind in issued}
    foreign = []
    for row in snapshot.pods.pending:
        name = snapshot.pods.names[int(row)]
        pod = seen(name)
        if name in binds:
            continue
        where = (pod.node or pod.chosen_node) if pod else ""
        if pod and where:
            # Bound since the snapshot was taken, or on its way: in both cases its devices are taken.
            binds[name] = Bind(name, where, pod.devices)
        elif pod is None or not ours(pod):
            foreign.append(int(row))
    kept = replace(snapshot, pods=without_pods(snapshot.pods, foreign)) if foreign else snapshot
    pods, nodes = kept.pods.names, kept.nodes.names
    return kept.after(b for b in binds.values() if pods.row(b.pod) is not None and nodes.row(b.node) is not None)


def with_deployed(
    snapshot: Snapshot,
    deployments: Iterable[SeenDeployment],
    content: Callable[[str, str], str | None],
    scaled_at_s: Callable[[str], float | None],
) -> Snapshot:
    """The snapshot in which a service asks for what its Deployments ask for.

    A Deployment that is missing, or whose content is not what its service now says, asks for nothing: so the plan
    writes it anew, whatever became of it.
    content: what the Deployment of (service, GPU type) should be; None where the service has no template.
    scaled_at_s: when a service's replicas last changed.
    """
    replicas: dict[str, dict[str, int]] = {}
    for each in deployments:
        if each.content == content(each.service, each.gpu_type):
            replicas.setdefault(each.service, {})[each.gpu_type] = each.replicas
    services = tuple(
        replace(s, replicas=_sorted(replicas.get(s.name)), scaled_at_s=scaled_at_s(s.name)) for s in snapshot.services
    )
    return replace(snapshot, services=services)


def _sorted(replicas: Mapping[str, int] | None) -> dict[str, int] | None:
    return dict(sorted(replicas.items())) if replicas else None
