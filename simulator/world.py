"""A pretend cluster that obeys: the first implementation of World, for tests, demos and replays of the whole loop."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cluster.actions import Action, Bind, Evict, Move, Scale, SetPowerLease
from cluster.errors import ActionError
from cluster.nodes import eligible_nodes
from cluster.plans import Plan
from cluster.pods import PENDING, PodTable, device_numbers
from cluster.snapshot import Snapshot, without_pods
from controller.world import Outcome

Fault = Callable[[Action], str | None]
"""Says why an action fails in this world, or None to let it happen."""


class SimulatedWorld:
    """Holds one snapshot and changes it as told, refusing what no real node could do.

    It checks physical truth on its own (devices exist and are not over-committed, pods are where they are said to be),
    so that a mistake of the deciders or the guard shows here.
    """

    def __init__(self, snapshot: Snapshot, fault: Fault = lambda _: None) -> None:
        self._now = snapshot
        self._fault = fault
        self.reports: list[tuple[Plan, Outcome]] = []

    def observe(self) -> Snapshot:
        return self._now

    def apply(self, actions: Sequence[Action]) -> list[ActionError | None]:
        return [self._tried(action) for action in actions]

    def _tried(self, action: Action) -> ActionError | None:
        try:
            self._apply(action)
        except ActionError as error:
            return error
        return None

    def _apply(self, action: Action) -> None:
        if why := self._fault(action):
            raise ActionError(f"{action}: {why}")
        self._check_source(action)
        after = self._now.after([action])
        if isinstance(action, Bind | Move):
            self._check_node(after, action)
        self._now = after

    def report(self, plan: Plan, outcome: Outcome) -> None:
        self.reports.append((plan, outcome))

    def pass_time(self, for_s: float) -> None:
        self._now = replace(self._now, at_s=self._now.at_s + for_s)

    def arrive(self, pods: PodTable) -> None:
        """New pods turn up, pending."""
        self._now = replace(self._now, pods=self._now.pods.plus(pods))

    def depart(self, names: Iterable[str]) -> None:
        """Pods end; what they held is free."""
        rows = [row for name in names if (row := self._now.pods.names.row(name)) is not None]
        self._now = replace(self._now, pods=without_pods(self._now.pods, rows))

    def _check_source(self, action: Action) -> None:
        if isinstance(action, Scale | SetPowerLease):
            return
        row = self._now.pods.names.row(action.pod)
        if row is None:
            raise ActionError(f"{action}: there is no such pod")
        node = int(self._now.pods.node[row])
        runs_on = None if node == PENDING else self._now.nodes.names[node]
        expected = action.node if isinstance(action, Evict) else action.from_node if isinstance(action, Move) else None
        if runs_on != expected:
            raise ActionError(f"{action}: the pod runs on {runs_on}")

    def _check_node(self, after: Snapshot, action: Bind | Move) -> None:
        where, row = after.nodes.names.row(action.node), after.pods.names.row(action.pod)
        if where is None or row is None:
            raise ActionError(f"{action}: there is no such node or pod")
        shape = after.pods.shapes[after.pods.shape[row]]
        if not eligible_nodes(shape, after.nodes, after.gpu_type_names)[where]:
            raise ActionError(f"{action}: the node refuses this pod")
        held = device_numbers(int(after.pods.devices[row]))
        if len(held) != shape.gpus or any(device >= after.nodes.gpus[where] for device in held):
            raise ActionError(f"{action}: it needs {shape.gpus} existing devices")
        free = after.free()
        if free.cpu_milli[where] < 0 or free.memory_bytes[where] < 0 or (free.gpu_milli[where] < 0).any():
            raise ActionError(f"{action}: the node would be over-committed")
