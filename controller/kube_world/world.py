"""Kubernetes as a World: what the watches saw, and actions as writes to the API server."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from cluster.actions import Action, Bind, Evict, Move, Scale
from cluster.errors import ActionError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.labels import EPOCH_ANNOTATION
from controller.kube.cluster_view import SeenDeployment, Sightings
from controller.kube.sender import Applier, Job, Sent, may_have_happened
from controller.kube.write import Write
from controller.kube_world.assumed import Assumed
from controller.kube_world.capacity_check import Account
from controller.kube_world.deployments import Instance, content_of, deployment_writes
from controller.kube_world.in_flight import with_deployed, with_what_is_under_way
from controller.kube_world.last_scaled import scaled_at_s
from controller.placers.claims import Allocate, no_claims
from controller.placers.pool_affinity import Standing, Ways, WaysOfServices
from controller.placers.pools import Pool, asked_placer, placing_writes
from controller.ports import Outcome

T = TypeVar("T")


class Runner(Protocol):
    """Runs a coroutine in the event loop of the connection and waits for it, from another thread."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


Report = Callable[[Snapshot, Plan, Outcome, Mapping[str, int]], None]
"""Takes the cluster after a plan, the plan, what became of it, and for which generation of each service it was made."""


class KubernetesWorld:
    """A cluster behind an API server.

    A Move is refused: Kubernetes cannot move a pod. It is evicted, and its owner's new pod is placed as any other.
    """

    def __init__(
        self,
        sightings: Sightings,
        applier: Applier,
        run: Runner,
        *,
        pools: Sequence[Pool],
        epoch: Callable[[], int],
        clock: Callable[[], float],
        tell: Report,
        allocate: Allocate = no_claims,
        device_classes: Mapping[str, str] | None = None,
    ) -> None:
        """epoch: of the Lease, stamped on all that is written. clock: monotonic, seconds.

        device_classes: by the resource as which devices are counted, the DeviceClass that instances ask for in pools of
        `dra`. allocate: how the claims of pods get their devices, from the cluster as it was last observed.
        tell: takes each report, in the thread of the loop.
        """
        self._sightings = sightings
        self._applier = applier
        self._run = run
        self._pools = tuple(pools)
        self._ways = Ways(pools)
        self._of_services: WaysOfServices = {}
        """How instances are placed, as it was last observed."""
        self._epoch = epoch
        self._clock = clock
        self._tell = tell
        self._allocate = allocate
        self._device_classes = device_classes or {}
        self._assumed = Assumed()
        self._generations: Mapping[str, int] = {}
        self._scaled: dict[str, float] = {}
        """When this process last scaled a service, seconds since the epoch. Its status says so, too, but that may be
        seen only after the next cycle has begun, which would then change again what has just been changed."""

    def observe(self) -> Snapshot:
        """What a plan is made for. The generations are noted first: a status must not speak of a later one."""
        self._generations = self._sightings.generations()
        return self._now()

    def _now(self) -> Snapshot:
        seen = self._sightings.snapshot()
        issued = self._assumed.standing(self._sightings.pod, self._clock())
        there = with_what_is_under_way(seen, self._sightings.pod, issued, lambda pod: asked_placer(pod) is not None)
        deployments = tuple(self._sightings.deployments())
        ways = self._of_services = self._ways.of_services(seen, self._standing(seen, deployments))
        deployed = with_deployed(
            there,
            deployments,
            lambda service, gpu_type: self._content(seen, service, gpu_type, self._way(service, gpu_type)),
            self._scaled_at_s,
        )
        return self._ways.told(deployed, ways, self._asked)

    def _asked(self, name: str) -> str | None:
        pod = self._sightings.pod(name)
        return asked_placer(pod) if pod else None

    def _way(self, service: str, gpu_type: str) -> str:
        return self._of_services.get(service, {}).get(gpu_type, "")

    def _standing(self, snapshot: Snapshot, deployments: Sequence[SeenDeployment]) -> Standing:
        """Instances that Deployments made for a way ask for; one that asks for none at the moment counts, too."""
        of_service = {(each.service, each.gpu_type): each for each in deployments}

        def standing(service: str, gpu_type: str, way: str) -> int:
            each = of_service.get((service, gpu_type))
            return 1 + each.replicas if each and each.content == self._content(snapshot, service, gpu_type, way) else 0

        return standing

    def apply(self, actions: Sequence[Action]) -> list[ActionError | None]:
        """Writes these, each checked against the cluster as it is at this moment.

        An eviction that was accepted counts as done; what the pod holds is free only when it is gone.
        """
        snapshot = self._now()
        account = Account(snapshot)
        answers: list[ActionError | None] = [None] * len(actions)
        jobs: list[tuple[int, Job]] = []
        for number, action in enumerate(actions):
            try:
                account.check(action)
                about, writes = self._writes(action, snapshot)
            except ActionError as error:
                answers[number] = error
                continue
            if isinstance(action, Bind):
                account.charge(action)
                self._assume(action)
            jobs += [(number, Job(about, write)) for write in writes]
        sent = self._run(self._applier.send([job for _, job in jobs]))
        begun: set[int] = set()
        for (number, _), answer in zip(jobs, sent, strict=True):
            answers[number] = answers[number] or self._noted(
                actions[number], answer, snapshot.at_s, has_begun=number in begun
            )
            begun.add(number)
        return answers

    def report(self, plan: Plan, outcome: Outcome) -> None:
        self._tell(self._now(), plan, outcome, self._generations)

    def _assume(self, bind: Bind) -> None:
        if pod := self._sightings.pod(bind.pod):
            self._assumed.add(bind, pod.uid, self._clock())

    def _noted(self, action: Action, answer: Sent, at_s: float, *, has_begun: bool) -> ActionError | None:
        """Keep the books right after an answer: only what certainly did not happen frees what it would hold.

        at_s: of the snapshot that it was written for.
        has_begun: an earlier write of the action went well. A claim may then hold the devices, seen or not.
        """
        failed = answer if isinstance(answer, ActionError) else None
        match action:
            case Bind() if failed and not has_begun and not may_have_happened(failed):
                self._assumed.drop([action.pod])
            case Evict() if not failed:
                self._assumed.drop([action.pod])
            case Scale() if not failed:
                self._scaled[action.service] = at_s
        return failed

    def _writes(self, action: Action, snapshot: Snapshot) -> tuple[str, list[Write]]:
        """The object that an action changes, and how. Raises ActionError where it cannot be written."""
        match action:
            case Bind():
                return f"Pod/{action.pod}", self._binding(action, snapshot)
            case Evict():
                return f"Pod/{action.pod}", self._eviction(action)
            case Move():
                raise ActionError(f"moving {action.pod}: Kubernetes cannot; evict it, its owner makes it anew")
            case Scale():
                return f"ModelService/{action.service}", self._deployments(action, snapshot)

    def _binding(self, bind: Bind, snapshot: Snapshot) -> list[Write]:
        pod, where = self._sightings.pod(bind.pod), snapshot.nodes.names.row(bind.node)
        if pod is None or where is None:
            raise ActionError(f"binding {bind.pod} to {bind.node}: one of them is gone")
        labels = snapshot.nodes.labels[where]
        return placing_writes(pod, bind, labels, self._pools, self._epoch(), self._allocate)

    def _eviction(self, evict: Evict) -> list[Write]:
        pod = self._sightings.pod(evict.pod)
        if pod is None:
            raise ActionError(f"evicting {evict.pod}: it is gone")
        return [] if pod.is_ending else [eviction(evict.pod, pod.uid, self._epoch())]

    def _deployments(self, scale: Scale, snapshot: Snapshot) -> list[Write]:
        seen = self._sightings.service(scale.service)
        if seen is None:
            raise ActionError(f"scaling {scale.service}: it is gone")
        if seen.template is None:
            raise ActionError(f"scaling {scale.service}: it has no spec.template to make pods of; it is only planned")
        writes: list[Write] = []
        for gpu_type, replicas in scale.instances.items():
            instance = self._instance(snapshot, scale.service, gpu_type, self._way(scale.service, gpu_type))
            if instance is None:
                raise ActionError(f"scaling {scale.service}: nothing is known of GPU type {gpu_type}")
            if instance.placer == "dra" and not instance.device_class:
                resource = instance.recognised.resource
                raise ActionError(f"scaling {scale.service}: no driver in dra_drivers offers {resource} of {gpu_type}")
            writes += deployment_writes(instance, replicas, self._epoch())
        return writes

    def _scaled_at_s(self, service: str) -> float | None:
        seen = self._sightings.service(service)
        said = scaled_at_s(seen.status) if seen else None
        own = self._scaled.get(service)
        return own if said is None or (own is not None and own > said) else said

    def _content(self, snapshot: Snapshot, service: str, gpu_type: str, way: str) -> str | None:
        instance = self._instance(snapshot, service, gpu_type, way)
        return content_of(instance) if instance else None

    def _instance(self, snapshot: Snapshot, service: str, gpu_type: str, way: str) -> Instance | None:
        """An instance on a GPU type, to be placed in this way; None where it is not known what one is."""
        known = next((each for each in snapshot.services if each.name == service), None)
        seen, recognised = self._sightings.service(service), self._sightings.gpu_type(gpu_type)
        if known is None or seen is None or recognised is None or seen.template is None or not way:
            return None
        gpus = next(
            (p.gpus_per_instance for p in snapshot.profiles if (p.model, p.gpu_type) == (known.model, gpu_type)), 1
        )
        device_class = self._device_classes.get(recognised.resource, "")
        return Instance(known, seen, gpu_type, gpus, recognised, way, device_class)


def eviction(name: str, uid: str, epoch: int) -> Write:
    """Stops a pod as `kubectl drain` does: what a PodDisruptionBudget forbids is refused with 429."""
    namespace, _, pod = name.partition("/")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace, "annotations": {EPOCH_ANNOTATION: str(epoch)}},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    return Write("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)
