"""Kubernetes as a World: what the watches saw, and actions as writes to the API server."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from cluster.actions import Action
from cluster.errors import ActionError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.kube.cluster_view import ClusterView
from controller.kube.sender import Applier, Job
from controller.kube_world.capacity_check import Account
from controller.kube_world.handlers import HANDLERS, Answer, Desk, Handler
from controller.kube_world.planning_view import PlanningView
from controller.placers.claims import Allocate, Deallocate, no_claim_to_release, no_claims
from controller.placers.pools import Pool
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
        sightings: ClusterView,
        applier: Applier,
        run: Runner,
        *,
        pools: Sequence[Pool],
        epoch: Callable[[], int],
        clock: Callable[[], float],
        tell: Report,
        allocate: Allocate = no_claims,
        deallocate: Deallocate = no_claim_to_release,
        device_classes: Mapping[str, str] | None = None,
        handlers: Mapping[type[Action], Handler] = HANDLERS,
    ) -> None:
        """epoch: of the Lease, stamped on all that is written. clock: monotonic, seconds.

        device_classes: by the resource as which devices are counted, the DeviceClass that instances ask for in pools of
        `dra`. allocate, deallocate: how claims get and lose their devices, from the cluster as it was last observed.
        tell: takes each report, in the thread of the loop. handlers: how each action is checked and written.
        """
        self._sightings = sightings
        self._applier = applier
        self._run = run
        self._tell = tell
        self._handlers = handlers
        self._view = view = PlanningView(sightings, pools, clock=clock, device_classes=device_classes)
        self._desk = Desk(
            sightings,
            tuple(pools),
            view.instances,
            allocate,
            deallocate,
            epoch,
            clock,
            assumed=view.assumed,
            scaled=view.scaled,
        )
        self._generations: Mapping[str, int] = {}

    def observe(self) -> Snapshot:
        """What a plan is made for. The generations are noted first: a status must not speak of a later one."""
        self._generations = self._sightings.generations()
        return self._view.snapshot()

    def apply(self, actions: Sequence[Action]) -> list[ActionError | None]:
        """Writes these, each checked against the cluster as it is at this moment.

        An eviction that was accepted counts as done; what the pod holds is free only when it is gone.
        """
        snapshot = self._view.snapshot()
        account = Account(snapshot, self._handlers)
        answers: list[ActionError | None] = [None] * len(actions)
        jobs: list[tuple[int, Job]] = []
        for number, action in enumerate(actions):
            try:
                account.check(action)
                handler = self._handlers[type(action)]
                writes = handler.writes(self._desk, action, snapshot)
            except ActionError as error:
                answers[number] = error
                continue
            handler.begin(self._desk, account, action)
            jobs += [(number, Job(action.subject, write)) for write in writes]
        sent = self._run(self._applier.send([job for _, job in jobs]))
        begun: set[int] = set()
        for (number, _), answer in zip(jobs, sent, strict=True):
            if answers[number] is None:
                answers[number] = answer if isinstance(answer, ActionError) else None
                noted = Answer(answers[number], snapshot.at_s, has_begun=number in begun)
                self._handlers[type(actions[number])].settle(self._desk, actions[number], noted)
            begun.add(number)
        return answers

    def report(self, plan: Plan, outcome: Outcome) -> None:
        self._tell(self._view.snapshot(), plan, outcome, self._generations)
