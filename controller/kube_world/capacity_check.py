"""What the cluster holds at this moment, device by device: the last check before a write that nobody checks after us.

The API server accepts any Binding, also twelve GPUs onto a node of eight. The guard checks a plan against the cluster
as the plan expects it to become; this account checks each action against the cluster as it is: what is being stopped
still holds its devices until it is gone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from cluster.actions import Action, Bind
from cluster.errors import ActionError
from cluster.occupancy import Occupancy
from cluster.plans import Reason
from cluster.snapshot import Snapshot


class Checking(Protocol):
    """The part of an action's handler that is needed here."""

    @property
    def check(self) -> Callable[["Account", Any], None]:
        """Raises ActionError when the action cannot be in the cluster as it is now."""
        ...


class Account:
    """Free capacity of a snapshot, less what was charged since. One batch of actions long."""

    def __init__(self, snapshot: Snapshot, handlers: Mapping[type[Action], Checking]) -> None:
        self._seats = Occupancy(snapshot)
        self._handlers = handlers

    def check(self, action: Action) -> None:
        """Raises ActionError when this cannot be in the cluster as it is now, or is of a kind that no handler knows."""
        handler = self._handlers.get(type(action))
        if handler is None:
            raise ActionError(f"{type(action).__name__} of {action.subject}: this world does not know such an action")
        handler.check(self, action)

    def charge(self, bind: Bind) -> None:
        """Count a bind as true. Not checked again."""
        self._seats.place(bind.pod, bind.node, bind.devices)

    def check_bind(self, bind: Bind) -> None:
        why = self._seats.objection_to_bind(bind.pod, bind.node, bind.devices)
        _refuse(f"binding {bind.pod} to {bind.node}", why)

    def check_stop(self, pod: str, node: str) -> None:
        _refuse(f"stopping {pod} on {node}", self._seats.objection_to_stop(pod, node))

    def check_release(self, claim: str) -> None:
        _refuse(f"releasing claim {claim}", self._seats.objection_to_release(claim))

    def check_scale(self, service: str) -> None:
        _refuse(f"scaling {service}", self._seats.objection_to_scale(service))


def _refuse(what: str, why: Reason | None) -> None:
    if why is not None:
        raise ActionError(f"{what}: {why.words}")
