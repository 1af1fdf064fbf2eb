"""Kubernetes as a World: snapshots from watches, and actions as writes to the API server."""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog

from cluster.actions import Action
from cluster.errors import ActionError, Mistake
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.kube.cluster_view import ClusterView
from controller.kube.sender import Applier, Job
from controller.kube_world.handlers import HANDLERS, Account, Answer, Desk, Handler
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.reservations import Promises
from controller.placers.claims import Allocate, Deallocate, no_claim_to_release, no_claims
from controller.placers.pools import Pool
from controller.ports import Outcome

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Runner(Protocol):
    """Function that runs a coroutine in the connection's event loop and waits for it, from another thread."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


Report = Callable[[Snapshot, Plan, Outcome, Mapping[str, int]], None]
"""Function of the snapshot after a plan, the plan, its outcome, and each service's generation that it was made for."""


class KubernetesWorld:
    """Cluster behind an API server.

    Refuses a Move, because Kubernetes cannot move pods. A pod is evicted instead, and its owner's new pod is placed.
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
        promises: Promises | None = None,
        handlers: Mapping[type[Action], Handler] = HANDLERS,
    ) -> None:
        """epoch: epoch of the Lease, stamped on every write. clock: monotonic, seconds.

        device_classes: DeviceClass that instances request in pools of mode dra, by extended resource name. promises:
        which released pods hold what they say; all of them where none are given.
        allocate, deallocate: functions for the writes that allocate and release a claim's devices, from the last
        observation. tell: receives each report, in the loop's thread. handlers: check and writes of each action.
        """
        self._sightings = sightings
        self._applier = applier
        self._run = run
        self._tell = tell
        self._handlers = handlers
        self._view = view = PlanningView(
            sightings, pools, clock=clock, device_classes=device_classes, promises=promises
        )
        self._desk = Desk(
            sightings,
            tuple(pools),
            view.instances,
            allocate,
            deallocate,
            epoch,
            clock,
            assumed=view.assumed,
            promises=view.promises,
            scaled=view.scaled,
            resized=view.resized,
        )
        self._generations: Mapping[str, int] = {}

    def observe(self) -> Snapshot:
        """Snapshot for planning. Generations are read first: a status must not claim a later one."""
        self._generations = self._sightings.generations()
        return self._view.snapshot()

    def apply(self, actions: Sequence[Action]) -> list[ActionError | None]:
        """Write these actions, each checked against the cluster's present state.

        An accepted eviction counts as done; the pod's devices are free only once it is gone.
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
            except Exception as error:
                log.exception("an action could not be written", action=type(action).__name__, subject=action.subject)
                answers[number] = ActionError(
                    f"writing it raised {type(error).__name__}, a bug of Tonnage: see the log"
                )
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


@dataclass(slots=True)
class DeviceTroubles:
    """Logs each problem with the devices of a node when it appears and when it is resolved."""

    known: frozenset[Mistake] = frozenset()

    def tell(self, found: Iterable[Mistake]) -> None:
        now = frozenset(found)
        for each in sorted(now - self.known, key=str):
            log.warning("devices of a node cannot be used", node=each.place, why=each.problem, remedy=each.remedy)
        for each in sorted(self.known - now, key=str):
            log.info("devices of a node can be used again", node=each.place, was=each.problem)
        self.known = now
