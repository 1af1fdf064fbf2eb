"""Kubernetes as a World: what the watches saw, and actions as writes to the API server."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from cluster.actions import Action, Bind, Evict, Move, Scale, SetPowerLease
from cluster.errors import ActionError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.account import Account
from controller.assumed import Assumed
from controller.kube_apply import Applier, Job, Sent, may_have_happened
from controller.kube_placers import Pool, asked_placer, placer_name, placing_write
from controller.kube_write import Write
from controller.service_deployments import Instance, content_of, deployment_write
from controller.service_status import scaled_at_s
from controller.sightings import Sightings
from controller.under_way import with_deployed, with_what_is_under_way
from controller.world import Outcome

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
    ) -> None:
        """epoch: of the Lease, stamped on all that is written. clock: monotonic, seconds.

        tell: takes each report, in the thread of the loop.
        """
        self._sightings = sightings
        self._applier = applier
        self._run = run
        self._pools = tuple(pools)
        self._epoch = epoch
        self._clock = clock
        self._tell = tell
        self._assumed = Assumed()
        self._generations: Mapping[str, int] = {}

    def observe(self) -> Snapshot:
        """What a plan is made for. The generations are noted first: a status must not speak of a later one."""
        self._generations = self._sightings.generations()
        return self._now()

    def _now(self) -> Snapshot:
        seen = self._sightings.snapshot()
        issued = self._assumed.standing(self._sightings.pod, self._clock())
        there = with_what_is_under_way(seen, self._sightings.pod, issued, lambda pod: asked_placer(pod) is not None)
        return with_deployed(
            there,
            self._sightings.deployments(),
            lambda service, gpu_type: self._content(seen, service, gpu_type),
            self._scaled_at_s,
        )

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
        for (number, _), answer in zip(jobs, sent, strict=True):
            answers[number] = answers[number] or self._noted(actions[number], answer)
        return answers

    def report(self, plan: Plan, outcome: Outcome) -> None:
        self._tell(self._now(), plan, outcome, self._generations)

    def _assume(self, bind: Bind) -> None:
        if pod := self._sightings.pod(bind.pod):
            self._assumed.add(bind, pod.uid, self._clock())

    def _noted(self, action: Action, answer: Sent) -> ActionError | None:
        """Keep the books right after an answer: only what certainly did not happen frees what it would hold."""
        failed = answer if isinstance(answer, ActionError) else None
        match action:
            case Bind() if failed and not may_have_happened(failed):
                self._assumed.drop([action.pod])
            case Evict() if not failed:
                self._assumed.drop([action.pod])
        return failed

    def _writes(self, action: Action, snapshot: Snapshot) -> tuple[str, list[Write]]:
        """The object that an action changes, and how. Raises ActionError where it cannot be written."""
        match action:
            case Bind():
                return f"Pod/{action.pod}", [self._binding(action, snapshot)]
            case Evict():
                return f"Pod/{action.pod}", self._eviction(action)
            case Move():
                raise ActionError(f"moving {action.pod}: Kubernetes cannot; evict it, its owner makes it anew")
            case Scale():
                return f"ModelService/{action.service}", self._deployments(action, snapshot)
            case SetPowerLease():
                raise ActionError(
                    f"leasing watts to {action.node}: leases go to its agent, never through the API server"
                )

    def _binding(self, bind: Bind, snapshot: Snapshot) -> Write:
        pod, where = self._sightings.pod(bind.pod), snapshot.nodes.names.row(bind.node)
        if pod is None or where is None:
            raise ActionError(f"binding {bind.pod} to {bind.node}: one of them is gone")
        return placing_write(pod, bind, snapshot.nodes.labels[where], self._pools, self._epoch())

    def _eviction(self, evict: Evict) -> list[Write]:
        pod = self._sightings.pod(evict.pod)
        if pod is None:
            raise ActionError(f"evicting {evict.pod}: it is gone")
        return [] if pod.is_ending else [eviction(evict.pod, pod.uid)]

    def _deployments(self, scale: Scale, snapshot: Snapshot) -> list[Write]:
        seen = self._sightings.service(scale.service)
        if seen is None:
            raise ActionError(f"scaling {scale.service}: it is gone")
        if seen.template is None:
            raise ActionError(f"scaling {scale.service}: it has no spec.template to make pods of; it is only planned")
        writes = []
        for gpu_type, replicas in scale.instances.items():
            instance = self._instance(snapshot, scale.service, gpu_type)
            if instance is None:
                raise ActionError(f"scaling {scale.service}: nothing is known of GPU type {gpu_type}")
            writes.append(deployment_write(instance, replicas, self._epoch()))
        return writes

    def _scaled_at_s(self, service: str) -> float | None:
        seen = self._sightings.service(service)
        return scaled_at_s(seen.status) if seen else None

    def _content(self, snapshot: Snapshot, service: str, gpu_type: str) -> str | None:
        instance = self._instance(snapshot, service, gpu_type)
        return content_of(instance) if instance else None

    def _instance(self, snapshot: Snapshot, service: str, gpu_type: str) -> Instance | None:
        known = next((each for each in snapshot.services if each.name == service), None)
        seen, recognised = self._sightings.service(service), self._sightings.gpu_type(gpu_type)
        if known is None or seen is None or recognised is None or seen.template is None:
            return None
        gpus = next(
            (p.gpus_per_instance for p in snapshot.profiles if (p.model, p.gpu_type) == (known.model, gpu_type)), 1
        )
        return Instance(known, seen, gpu_type, gpus, recognised, self._placer_of(snapshot, gpu_type))

    def _placer_of(self, snapshot: Snapshot, gpu_type: str) -> str:
        """How pods get onto nodes of a GPU type: as the pool of its first node says; the last pool's where it has none.

        Nodes of one type in pools of different ways would need two Deployments.
        """
        names, nodes = snapshot.gpu_type_names, snapshot.nodes
        number = names.index(gpu_type) if gpu_type in names else -1
        labels = (nodes.labels[row] for row, kind in enumerate(nodes.gpu_type.tolist()) if kind == number >= 0)
        found = next((placer_name(self._pools, each) for each in labels), None)
        return found or self._pools[-1].placer


def eviction(name: str, uid: str) -> Write:
    """Stops a pod as `kubectl drain` does: what a PodDisruptionBudget forbids is refused with 429."""
    namespace, _, pod = name.partition("/")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    return Write("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)
