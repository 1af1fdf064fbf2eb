"""Kubernetes as a World: snapshots from watches, and actions as writes to the API server."""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import structlog

from cluster import actions as cluster_actions, changes, plans
from cluster.errors import ActionError
from cluster.held_seats import text_of
from cluster.occupancy import Occupancy
from cluster.snapshot import HeldSeats, Snapshot
from controller.api.labels import EPOCH_ANNOTATION, EPOCH_MANAGER, HELD_SEATS_ANNOTATION
from controller.api.notation import rfc3339
from controller.kube.request import JSON_PATCH, MERGE_PATCH, KubeWriteError
from controller.kube.sender import Applier, Stamp, Write, WriteJob, may_have_happened
from controller.kube_world.cached_view import CachedView
from controller.kube_world.deployments import deployment_writes
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.stops import Pauses, words_of
from controller.placers import NO_CLAIMS, ClaimAllocator, placing_writes
from controller.ports import Outcome

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pause after a first refusal of a service's Deployments, and the longest; each further one doubles it. Chosen: a quota
or a webhook that was in the way is seldom gone sooner, and who waits for it waits for a minute at most."""
REFUSED = (400, 403, 404, 422)
"""HTTP statuses of a write that fails again as long as neither it nor what is in its way changes."""


class Reporter(Protocol):
    """Leader that reports on its plans."""

    def epoch(self) -> int:
        """Epoch of the Lease, stamped on every write."""
        ...

    def report(self, snapshot: Snapshot, plan: plans.Plan, outcome: Outcome, generations: Mapping[str, int]) -> None:
        """Reports what a plan did, in the loop's thread.

        snapshot: after the plan. generations: of each service when the plan was made.
        """
        ...


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Data that writes are made from, and the records of their outcome."""

    planning: PlanningView
    claims: ClaimAllocator
    term: Reporter
    refused: Pauses = field(default_factory=lambda: Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    """Services whose Deployments the API server refuses, as for a template that no pod can have. Every plan decides the
    same again, and whoever creates services decides how many there are. One that was changed is tried at once."""

    @property
    def view(self) -> CachedView:
        return self.planning.view

    def note_refused(self, pods: Iterable[str], error: ActionError) -> None:
        """Notes that a stop of these pods was refused, so that the next plans choose others."""
        for name in pods:
            if pod := self.view.pod(name):
                self.planning.stops.note_refused(name, pod.uid, error)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The server's answer to one write of an action."""

    failed: ActionError | None
    at_s: float
    """Instant of the snapshot that the write was made from."""
    has_begun: bool
    """Whether an earlier write of the action succeeded. A claim may then hold the devices, observed or not."""


class Handler:
    """How one type of action is carried out on Kubernetes."""

    def check(self, seats: Occupancy, action: Any) -> None:
        """Raises ActionError if the action is impossible in the cluster's present state.

        The API server accepts any Binding, even of twelve GPUs to a node with eight. The guard checks a plan against
        the state that the plan expects; this checks each action, device by device, against the present one: a pod that
        is being stopped holds its devices until it is gone.
        """
        raise NotImplementedError

    def writes(self, context: WriteContext, action: Any, snapshot: Snapshot) -> list[Write]:
        """Writes to the API server, in order. Raises ActionError if the action cannot be written."""
        raise NotImplementedError

    def begin(self, context: WriteContext, seats: Occupancy, action: Any) -> None:
        """Records, before the first request is sent, what then counts as done."""

    def settle(self, context: WriteContext, action: Any, result: WriteResult) -> None:
        """Records the result of a write: devices are freed only if the write certainly failed."""


class _BindHandler(Handler):
    def check(self, seats: Occupancy, action: cluster_actions.Start) -> None:
        why = seats.objection_to_bind(action.pod, action.node, action.devices)
        _refuse(f"binding {action.pod} to {action.node}", why)

    def writes(self, context: WriteContext, action: cluster_actions.Start, snapshot: Snapshot) -> list[Write]:
        pod, row = context.view.pod(action.pod), snapshot.nodes.names.row(action.node)
        if pod is None or row is None:
            raise ActionError(f"binding {action.pod} to {action.node}: the pod or the node no longer exists")
        stamp = Stamp(context.term.epoch(), snapshot.at_s)
        return placing_writes(pod, action, snapshot.nodes.labels[row], context.planning.pools, stamp, context.claims)

    def begin(self, context: WriteContext, seats: Occupancy, action: cluster_actions.Start) -> None:
        seats.place(action.pod, action.node, action.devices)
        if pod := context.view.pod(action.pod):
            context.planning.assumed.add(action.pod, action, pod.uid, context.planning.clock())
            context.planning.reservations.add(pod.uid, action)

    def settle(self, context: WriteContext, action: cluster_actions.Start, result: WriteResult) -> None:
        if result.failed and not result.has_begun and not may_have_happened(result.failed):
            context.planning.assumed.drop([action.pod])


class _ReleaseHandler(_BindHandler):
    """Releases a pod as a bind does; the pods in its way are kube-scheduler's, which stops them."""

    def check(self, seats: Occupancy, action: cluster_actions.Start) -> None:
        why = seats.objection_to_leave(action.pod, action.node, action.devices)
        _refuse(f"releasing {action.pod} to {action.node}", why)


class _StopHandler(Handler):
    """Evicts a pod; of one that moves, the new one of its owner gets the seat that was held for it before."""

    def check(self, seats: Occupancy, action: cluster_actions.Evict | cluster_actions.Move) -> None:
        node = action.seat_changes[0].node_before or ""
        _refuse(f"stopping {action.pod} on {node}", seats.objection_to_stop(action.pod, node))

    def writes(
        self,
        context: WriteContext,
        action: cluster_actions.Evict | cluster_actions.Move,
        snapshot: Snapshot,  # noqa: ARG002
    ) -> list[Write]:
        doing, pod = f"{action.attempt.lower()} {action.pod}", context.view.pod(action.pod)
        if pod is None:
            raise ActionError(f"{doing}: the pod no longer exists")
        if isinstance(action, cluster_actions.Move) and not pod.controller:
            raise ActionError(f"{doing}: no owner would create it anew")
        return [] if pod.is_ending else [eviction(action.pod, pod.uid, context.term.epoch())]

    def settle(
        self, context: WriteContext, action: cluster_actions.Evict | cluster_actions.Move, result: WriteResult
    ) -> None:
        if result.failed:
            context.note_refused([action.pod], result.failed)
        else:
            if pod := context.view.pod(action.pod):
                context.planning.assumed.add(action.pod, action, pod.uid, context.planning.clock())
            if action.beneficiary:
                context.planning.stops.note_stopped(action.beneficiary)
            if isinstance(action, cluster_actions.Move):
                pods = context.planning.snapshot(anew=False).pods
                row = pods.names.row(action.pod)
                context.planning.stops.note_moved(action.pod, "" if row is None else pods.owner[row])


class _HoldSeatsHandler(Handler):
    """Writes the seats on the pod that they are held for."""

    def writes(self, context: WriteContext, action: cluster_actions.HoldSeats, snapshot: Snapshot) -> list[Write]:  # noqa: ARG002
        holder, pod = action.held.holder, context.view.pod(action.held.holder)
        if pod is None or pod.node or pod.is_ending:
            raise ActionError(f"holding seats for {holder}: it does not wait any more")
        held = _with_owners(context, action.held)
        for seat in held.seats:
            if seat.is_moved and not seat.owner:
                raise ActionError(f"holding seats for {holder}: no owner would create {seat.pod} anew")
        annotations = {HELD_SEATS_ANNOTATION: text_of(held), EPOCH_ANNOTATION: str(context.term.epoch())}
        namespace, _, name = holder.partition("/")
        body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        return [Write("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", body, MERGE_PATCH)]

    def check(self, seats: Occupancy, action: cluster_actions.HoldSeats) -> None:
        if any(seats.snapshot.nodes.names.row(seat.node) is None for seat in action.held.seats):
            raise ActionError(f"holding seats for {action.held.holder}: one of their nodes is gone")

    def begin(self, context: WriteContext, seats: Occupancy, action: cluster_actions.HoldSeats) -> None:  # noqa: ARG002
        if pod := context.view.pod(action.held.holder):
            whole = replace(action, held=_with_owners(context, action.held))
            context.planning.assumed.add(action.held.holder, whole, pod.uid, context.planning.clock())
            context.planning.reservations.hold(pod.uid)

    def settle(self, context: WriteContext, action: cluster_actions.HoldSeats, result: WriteResult) -> None:
        if result.failed and not may_have_happened(result.failed):
            context.planning.assumed.drop([action.held.holder])


def _with_owners(context: WriteContext, held: HeldSeats) -> HeldSeats:
    """The record with the controllers of the pods that move, as far as they are seen."""
    movers = ((seat, context.view.pod(seat.pod) if seat.is_moved else None) for seat in held.seats)
    return replace(held, seats=tuple(replace(seat, owner=seen.controller) if seen else seat for seat, seen in movers))


class _ReleaseClaimHandler(Handler):
    def check(self, seats: Occupancy, action: cluster_actions.ReleaseClaim) -> None:
        _refuse(f"releasing claim {action.claim}", seats.objection_to_release(action.claim))

    def writes(self, context: WriteContext, action: cluster_actions.ReleaseClaim, snapshot: Snapshot) -> list[Write]:  # noqa: ARG002
        return context.claims.deallocate(action.claim, context.term.epoch())


class _RestartGangHandler(Handler):
    def check(self, seats: Occupancy, action: cluster_actions.RestartGang) -> None:
        why = seats.objection_to_stops([(pod, node) for pod, _, node in action.pods])
        _refuse(f"restarting {action.gang}", why)

    def writes(self, context: WriteContext, action: cluster_actions.RestartGang, snapshot: Snapshot) -> list[Write]:  # noqa: ARG002
        writes = []
        for name, uid, _node in action.pods:
            pod = context.view.pod(name)
            if pod is None or pod.uid != uid:
                raise ActionError(f"restarting {action.gang}: {name} was replaced since it was decided; decide again")
            if not pod.is_ending:
                writes.append(eviction(name, uid, context.term.epoch()))
        return writes


class _ScaleHandler(Handler):
    def check(self, seats: Occupancy, action: cluster_actions.Scale) -> None:
        _refuse(f"scaling {action.service}", seats.objection_to_scale(action.service))

    def writes(self, context: WriteContext, action: cluster_actions.Scale, snapshot: Snapshot) -> list[Write]:
        doing = f"scaling {action.service}"
        seen = context.view.service(action.service)
        if seen is None:
            raise ActionError(f"{doing}: the service no longer exists")
        if seen.template is None:
            raise ActionError(f"{doing}: it has no spec.template to create pods from; it is only planned")
        words = context.refused.words_for(seen.name, (seen.uid, seen.generation), context.planning.clock())
        if words:
            raise ActionError(words)
        writes: list[Write] = []
        for instance_type, replicas in action.instances.items():
            instance = context.planning.instances.instance(snapshot, action.service, instance_type)
            if instance is None:
                raise ActionError(f"{doing}: GPU type {instance_type.gpu_type} is unknown")
            if instance.placer == "dra" and not instance.device_class:
                resource = instance.recognised.resource
                raise ActionError(f"{doing}: no driver in dra_drivers offers {resource} of {instance_type.gpu_type}")
            writes += deployment_writes(instance, replicas, context.term.epoch())
        return writes

    def settle(self, context: WriteContext, action: cluster_actions.Scale, result: WriteResult) -> None:
        is_refused = isinstance(result.failed, KubeWriteError) and result.failed.refusal.status in REFUSED
        if is_refused and (seen := context.view.service(action.service)):
            now_s = context.planning.clock()
            context.refused.note(seen.name, (seen.uid, seen.generation), str(result.failed), now_s)


class _SetReplicasHandler(Handler):
    def check(self, seats: Occupancy, action: cluster_actions.SetReplicas) -> None:
        scaler = next((each for each in seats.snapshot.scalers if each.name == action.policy), None)
        wanted = scaler.replicas.wanted if scaler and scaler.replicas else None
        if wanted != action.was:
            what = "was not observed" if wanted is None else f"asks for {wanted} replicas"
            raise ActionError(f"scaling {action.target}: it {what}, not for {action.was}")

    def writes(self, context: WriteContext, action: cluster_actions.SetReplicas, snapshot: Snapshot) -> list[Write]:  # noqa: ARG002
        return [resize(action, context.term.epoch())]

    def settle(self, context: WriteContext, action: cluster_actions.SetReplicas, result: WriteResult) -> None:
        if not result.failed or may_have_happened(result.failed):
            context.planning.resized[action.policy] = (result.at_s, action.replicas)


class _TaintHandler(Handler):
    """Replaces or removes one taint of ours on the node object that is meant, and changes no other."""

    def check(self, seats: Occupancy, action: cluster_actions.Taint | cluster_actions.Untaint) -> None:
        if seats.snapshot.nodes.names.row(action.node) is None:
            raise ActionError(f"tainting {action.node}: there is no such node")

    def writes(
        self, context: WriteContext, action: cluster_actions.Taint | cluster_actions.Untaint, snapshot: Snapshot
    ) -> list[Write]:
        node = context.view.node(action.node)
        if node is None or node.uid != action.uid or action.key not in changes.OUR_TAINTS:
            raise ActionError(f"tainting {action.node}: it was replaced since it was decided; decide again")
        # Quarantine and probation replace each other.
        gone = changes.OUR_TAINTS if isinstance(action, cluster_actions.Taint) else (action.key,)
        taints = [taint for taint in node.taints if taint["key"] not in gone]
        if isinstance(action, cluster_actions.Taint):
            added_at = rfc3339(snapshot.at_s)
            taints.append({"key": action.key, "value": action.value, "effect": "NoSchedule", "timeAdded": added_at})
        # The list is replaced as a whole, so the write has the version that it was read at as its precondition.
        metadata = {
            "uid": node.uid,
            "resourceVersion": node.version,
            "annotations": {EPOCH_ANNOTATION: str(context.term.epoch())},
        }
        body = {"metadata": metadata, "spec": {"taints": taints}}
        return [Write("PATCH", f"/api/v1/nodes/{action.node}", body, MERGE_PATCH)]


HANDLERS: Mapping[type[cluster_actions.Action], Handler] = {
    cluster_actions.Bind: _BindHandler(),
    cluster_actions.Evict: _StopHandler(),
    cluster_actions.HoldSeats: _HoldSeatsHandler(),
    cluster_actions.Move: _StopHandler(),
    cluster_actions.Release: _ReleaseHandler(),
    cluster_actions.ReleaseClaim: _ReleaseClaimHandler(),
    cluster_actions.RestartGang: _RestartGangHandler(),
    cluster_actions.Scale: _ScaleHandler(),
    cluster_actions.SetReplicas: _SetReplicasHandler(),
    cluster_actions.Taint: _TaintHandler(),
    cluster_actions.Untaint: _TaintHandler(),
}
"""Handler of each action. Actions without one are refused before anything is written."""


def _refuse(doing: str, why: plans.Reason | None) -> None:
    if why is not None:
        raise ActionError(f"{doing}: {why.words}")


def _stops(action: cluster_actions.Action) -> bool:
    return any(change.node_before is not None for change in action.seat_changes)


def eviction(name: str, uid: str, epoch: int) -> Write:
    """Eviction of a pod, as by `kubectl drain`: the API server answers 429 if a PodDisruptionBudget forbids it."""
    namespace, _, pod = name.partition("/")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace, "annotations": {EPOCH_ANNOTATION: str(epoch)}},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    return Write("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)


def resize(action: cluster_actions.SetReplicas, epoch: int) -> Write:
    """Change of the replicas through the scale subresource, if it still asks for the number decided on.

    The precondition is that number and not the resourceVersion, which each step of a rollout changes. A scale that asks
    for none has no field `replicas`. The epoch is part of the field manager, because a scale has no annotations.
    """
    target = action.target
    if not target.plural:
        raise ActionError(f"scaling {target}: its API server resource is not known yet")
    namespace, _, name = target.name.partition("/")
    root = "/apis" if "/" in target.api_version else "/api"
    test = ("/spec/replicas", action.was) if action.was else ("/spec", {})
    body = [
        {"op": "test", "path": test[0], "value": test[1]},
        {"op": "add", "path": "/spec/replicas", "value": action.replicas},
    ]
    path = f"{root}/{target.api_version}/namespaces/{namespace}/{target.plural}/{name}/scale"
    return Write("PATCH", path, body, JSON_PATCH, {"fieldManager": f"{EPOCH_MANAGER}{epoch}"})


T = TypeVar("T")

log = structlog.get_logger(__name__)


class Runner(Protocol):
    """Function that runs a coroutine in the connection's event loop and waits for it, from another thread."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class KubernetesWorld:
    """Cluster behind an API server.

    Kubernetes cannot move pods: one that moves is evicted, and its owner's new pod gets the seat that is held for it.
    """

    def __init__(
        self,
        planning: PlanningView,
        applier: Applier,
        run: Runner,
        reporter: Reporter,
        *,
        claims: ClaimAllocator = NO_CLAIMS,
        handlers: Mapping[type[cluster_actions.Action], Handler] = HANDLERS,
    ) -> None:
        """handlers: check and writes of each action."""
        self._planning = planning
        self._applier = applier
        self._run = run
        self._reporter = reporter
        self._handlers = handlers
        self._context = WriteContext(planning, claims, reporter)
        self._generations: Mapping[str, int] = {}

    def observe(self) -> Snapshot:
        """Snapshot for planning. Generations are read first: a status must not claim a later one."""
        self._generations = self._planning.view.generations()
        return self._planning.snapshot()

    def rehearse(self, actions: Sequence[cluster_actions.Action]) -> list[ActionError | None]:
        """Whether the API server would accept these evictions, by a dry run of each: disruption budgets answer. Of pods
        that are started, whether their seats are free at present.
        """
        snapshot, context = self._planning.snapshot(anew=False), self._context
        seats = Occupancy(snapshot)
        errors: list[ActionError | None] = [None] * len(actions)
        jobs: list[tuple[int, WriteJob]] = []
        for number, action in enumerate(actions):
            handler = self._handlers[type(action)]
            try:
                if isinstance(action, cluster_actions.Start):
                    handler.check(seats, action)
                    seats.place(action.pod, action.node, action.devices)
                writes = handler.writes(context, action, snapshot) if _stops(action) else ()
            except ActionError as error:
                errors[number] = error
                continue
            dry = (replace(write, query={**write.query, "dryRun": "All"}) for write in writes)
            jobs += [(number, WriteJob(f"{write.path} {action.subject}", write)) for write in dry]
        for (number, job), answer in zip(jobs, self._run(self._applier.send([job for _, job in jobs])), strict=True):
            if isinstance(answer, ActionError):
                namespace, _, pod = job.write.path.split("/")[4:7]
                context.note_refused([f"{namespace}/{pod}"], answer)
                words = words_of(answer) if isinstance(answer, KubeWriteError) else str(answer)
                errors[number] = errors[number] or ActionError(f"stopping {namespace}/{pod}: {words}")
        return errors

    def apply(self, actions: Sequence[cluster_actions.Action]) -> list[ActionError | None]:
        """Write these actions, each checked against the cluster's present state.

        An accepted eviction counts as done; the pod's devices are free only once it is gone.
        """
        snapshot, context = self._planning.snapshot(anew=False), self._context
        seats = Occupancy(snapshot)
        errors: list[ActionError | None] = [None] * len(actions)
        jobs: list[tuple[int, WriteJob]] = []
        for number, action in enumerate(actions):
            try:
                handler = self._handlers.get(type(action))
                if handler is None:
                    raise ActionError(f"{type(action).__name__} of {action.subject}: not supported on Kubernetes")
                handler.check(seats, action)
                writes = handler.writes(context, action, snapshot)
            except ActionError as error:
                errors[number] = error
                continue
            except Exception as error:
                log.exception("an action could not be written", action=type(action).__name__, subject=action.subject)
                errors[number] = ActionError(f"writing it raised {type(error).__name__}, a bug of Tonnage: see the log")
                continue
            handler.begin(context, seats, action)
            jobs += [(number, WriteJob(action.subject, write)) for write in writes]
        sent = self._run(self._applier.send([job for _, job in jobs]))
        begun: set[int] = set()
        for (number, _), answer in zip(jobs, sent, strict=True):
            if errors[number] is None:
                errors[number] = answer if isinstance(answer, ActionError) else None
                result = WriteResult(errors[number], snapshot.at_s, has_begun=number in begun)
                self._handlers[type(actions[number])].settle(context, actions[number], result)
            begun.add(number)
        return errors

    def report(self, plan: plans.Plan, outcome: Outcome) -> None:
        self._reporter.report(self._planning.snapshot(anew=False), plan, outcome, self._generations)
