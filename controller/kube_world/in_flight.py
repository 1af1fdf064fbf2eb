"""The cluster as the loop should plan on it: what the watches saw, less what is not ours, plus what is under way."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from cluster.actions import Bind, Evict
from cluster.plans import Phase, Plan, Reason, Step, Unplaced
from cluster.snapshot import Snapshot, without_pods
from controller.brain.inline import Brain
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


@dataclass(frozen=True, slots=True)
class AwaitsPods:
    """A brain whose plans act only on pods that exist."""

    brain: Brain

    def plan(self, snapshot: Snapshot, deadline_s: float) -> Plan:
        return without_pods_to_come(snapshot, self.brain.plan(snapshot, deadline_s))


def without_pods_to_come(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan without binds of pods that do not exist yet: whoever owns them has to make them first.

    Deciders plan on instances as soon as a Scale asks for them, under names that they make up. Nothing is stopped for
    them either: which eviction makes room for whom is not told, so all of them wait for the next cycle.
    """

    def is_to_come(step: Step) -> bool:
        return isinstance(step.action, Bind) and step.action.pod not in snapshot.pods.names

    waiting = [step.action.pod for step in plan.steps() if is_to_come(step) and isinstance(step.action, Bind)]
    if not waiting:
        return plan
    phases = []
    for phase in plan.phases:
        kept = tuple(step for step in phase.steps if not is_to_come(step) and not isinstance(step.action, Evict))
        if kept:
            phases.append(Phase(phase.name, kept, phase.whole))
    why = Reason("AwaitsPod", "it was asked for in this cycle; it is placed as soon as its owner has made it")
    unplaced = tuple(Unplaced(f"Pod/{pod}", why) for pod in waiting)
    return replace(plan, phases=tuple(phases), unplaced=plan.unplaced + unplaced)
