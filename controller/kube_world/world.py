"""Kubernetes as a World: snapshots from watches, and actions as writes to the API server."""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import structlog

from cluster.actions import Action
from cluster.errors import ActionError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.kube.sender import Applier, WriteJob
from controller.kube_world.handlers import HANDLERS, CapacityAccount, Handler, Term, WriteContext, WriteResult
from controller.kube_world.planning_view import PlanningView
from controller.placers import NO_CLAIMS, ClaimAllocator
from controller.ports import Outcome

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Runner(Protocol):
    """Function that runs a coroutine in the connection's event loop and waits for it, from another thread."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class Reporter(Term, Protocol):
    """Leader that reports on its plans."""

    def report(self, snapshot: Snapshot, plan: Plan, outcome: Outcome, generations: Mapping[str, int]) -> None:
        """Reports what a plan did, in the loop's thread.

        snapshot: after the plan. generations: of each service when the plan was made.
        """
        ...


class KubernetesWorld:
    """Cluster behind an API server.

    Refuses a Move, because Kubernetes cannot move pods. A pod is evicted instead, and its owner's new pod is placed.
    """

    def __init__(
        self,
        planning: PlanningView,
        applier: Applier,
        run: Runner,
        reporter: Reporter,
        *,
        claims: ClaimAllocator = NO_CLAIMS,
        handlers: Mapping[type[Action], Handler] = HANDLERS,
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

    def apply(self, actions: Sequence[Action]) -> list[ActionError | None]:
        """Write these actions, each checked against the cluster's present state.

        An accepted eviction counts as done; the pod's devices are free only once it is gone.
        """
        snapshot, context = self._planning.snapshot(anew=False), self._context
        account = CapacityAccount(snapshot, self._handlers)
        errors: list[ActionError | None] = [None] * len(actions)
        jobs: list[tuple[int, WriteJob]] = []
        for number, action in enumerate(actions):
            try:
                account.check(action)
                handler = self._handlers[type(action)]
                writes = handler.writes(context, action, snapshot)
            except ActionError as error:
                errors[number] = error
                continue
            except Exception as error:
                log.exception("an action could not be written", action=type(action).__name__, subject=action.subject)
                errors[number] = ActionError(f"writing it raised {type(error).__name__}, a bug of Tonnage: see the log")
                continue
            handler.begin(context, account, action)
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

    def report(self, plan: Plan, outcome: Outcome) -> None:
        self._reporter.report(self._planning.snapshot(anew=False), plan, outcome, self._generations)
