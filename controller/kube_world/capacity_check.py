"""Capacity check of each action, device by device, before its write: the API server does not check Bindings.

The API server accepts any Binding, even of twelve GPUs to a node with eight. The guard checks a plan against the state
that the plan expects; this account checks each action against the present state: a pod that is being stopped holds its
devices until it is gone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from cluster.actions import Action, Bind, RestartGang, SetReplicas
from cluster.errors import ActionError
from cluster.occupancy import Occupancy
from cluster.plans import Reason
from cluster.snapshot import Snapshot


class Checking(Protocol):
    """Check function of an action's handler."""

    @property
    def check(self) -> Callable[["Account", Any], None]:
        """Raises ActionError if the action is impossible in the cluster's present state."""
        ...


class Account:
    """Free capacity of a snapshot minus the binds charged since, for one batch of actions."""

    def __init__(self, snapshot: Snapshot, handlers: Mapping[type[Action], Checking]) -> None:
        self._seats = Occupancy(snapshot)
        self._handlers = handlers

    def check(self, action: Action) -> None:
        """Raises ActionError if the action is impossible in the cluster's present state, or has no handler."""
        handler = self._handlers.get(type(action))
        if handler is None:
            raise ActionError(f"{type(action).__name__} of {action.subject}: not supported on Kubernetes")
        handler.check(self, action)

    def charge(self, bind: Bind) -> None:
        """Count a bind as done. Does not check again."""
        self._seats.place(bind.pod, bind.node, bind.devices)

    def check_bind(self, bind: Bind) -> None:
        why = self._seats.objection_to_bind(bind.pod, bind.node, bind.devices)
        _refuse(f"binding {bind.pod} to {bind.node}", why)

    def check_stop(self, pod: str, node: str) -> None:
        _refuse(f"stopping {pod} on {node}", self._seats.objection_to_stop(pod, node))

    def check_release(self, claim: str) -> None:
        _refuse(f"releasing claim {claim}", self._seats.objection_to_release(claim))

    def check_set_replicas(self, action: SetReplicas) -> None:
        scalers = {each.name: each for each in self._seats.snapshot.scalers}
        scaler = scalers.get(action.policy)
        wanted = scaler.replicas.wanted if scaler and scaler.replicas else None
        if wanted != action.was:
            what = "was not observed" if wanted is None else f"asks for {wanted} replicas"
            raise ActionError(f"scaling {action.target}: it {what}, not for {action.was}")

    def check_restart(self, action: RestartGang) -> None:
        for pod, _, node in action.pods:
            _refuse(f"restarting {action.gang}", self._seats.objection_to_stop(pod, node))

    def check_node(self, node: str) -> None:
        if self._seats.snapshot.nodes.names.row(node) is None:
            raise ActionError(f"tainting {node}: there is no such node")

    def check_scale(self, service: str) -> None:
        _refuse(f"scaling {service}", self._seats.objection_to_scale(service))


def _refuse(what: str, why: Reason | None) -> None:
    if why is not None:
        raise ActionError(f"{what}: {why.words}")
