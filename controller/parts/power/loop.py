"""The fast loop of power in the operator: serves agents while this process leads, in its own thread.

It is not delayed by a long plan or the Kubernetes API, nor delays them. Other threads read `loop_state`, an immutable
snapshot that is replaced as a whole.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake
from controller.parts.power.agent_server import AgentServer, Courier, LoopCounts
from controller.parts.power.domain_tree import PowerTree, power_tree
from controller.parts.power.loop_state import PowerLoopState
from controller.parts.power.power_table import NODE_LABELS, power_table, sound, unheard
from controller.parts.power.term import PowerTerm, TableOf
from controller.parts.power.watcher import PowerView
from power.control.state import LearnedSpikes
from power.leases.messages import Inventory, Keys
from power.rules import PowerRules
from power.tree import reach_of

log = structlog.get_logger(__name__)

LOOK_S = 0.5
"""Interval at which domains, nodes and pods are read again. A lowered budget is in force after half a second, one turn
and the devices' own delay."""
STUCK_S = 60.0
"""Time without a round after which a leader's loop counts as stuck: leases have ended five times over."""


class PowerLoop:
    """State between two updates. All of it belongs to the loop's thread; only `loop_state`, `counts` and `probe` may be
    read by any thread.
    """

    def __init__(
        self,
        see: Callable[[], PowerView | None],
        leads: Callable[[], bool],
        epoch: Callable[[], int],
        keys: Callable[[], Keys],
        clock: Clock,
        rules: PowerRules,
        on_look: Callable[["PowerLoop"], None] = lambda _: None,
        couriers: Sequence[Courier] = (),
        recall: Callable[[], Mapping[str, LearnedSpikes]] = dict,
    ) -> None:
        """see: returns the cluster now, None while it was not seen. leads, epoch: of the Lease, called before each
        turn.

        on_look: called after each update, in the loop's thread. couriers: other parts' messages on the agents' link.
        recall: what the controller before learnt of domains; called when a term begins.
        """
        self._see, self._leads, self._epoch, self._clock, self._rules = see, leads, epoch, clock, rules
        self._on_look, self._recall = on_look, recall
        self._server = AgentServer(self._present, keys, clock, couriers)
        self._term: PowerTerm | None = None
        self._view: PowerView | None = None
        self._tree: PowerTree | None = None
        self._basis: object = None
        """Inputs of the present table."""
        self._since_s = 0.0
        self._looked_at_s = clock()
        self.loop_state: PowerLoopState | None = None
        """State for other threads; None while this process does not lead, or has not seen the cluster."""

    @property
    def counts(self) -> LoopCounts:
        return self._server.counts

    @property
    def agents(self) -> int:
        """Number of connected agents."""
        return len(self._server.nodes)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Opens the agents' port and returns its number, also where `port` is 0. Raises ConfigError when it is not
        available.
        """
        try:
            server = await self._server.serve(host, port, tls)
        except OSError as error:
            raise ConfigError(Mistake(f"power.port, {host}:{port}", f"cannot be opened: {error}")) from error
        self._listening = server
        return int(server.sockets[0].getsockname()[1])

    async def run(self) -> None:
        """Updates, decides and answers for ever. On cancellation the port is closed, and agents look for the leader
        elsewhere.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._server.decide())
                group.create_task(self._update_for_ever())
        finally:
            self._term = self.loop_state = None
            self._listening.close()

    def probe(self) -> str | None:
        """Reason why the loop counts as stuck, for the kubelet; None while it runs."""
        still_s = self._clock() - self._looked_at_s
        return f"the power loop has made no progress for {still_s:.0f} s" if still_s > STUCK_S else None

    async def _update_for_ever(self) -> None:
        while True:
            try:
                self._update()
                self._on_look(self)
            except Exception:
                self.counts.failures += 1
                log.exception("an update of the power loop failed")
            self._looked_at_s = self._clock()
            await asyncio.sleep(LOOK_S)

    def _update(self) -> None:
        view = self._see()
        if view is not None and view != self._view:
            self._view, self._tree = view, power_tree(view.domains, view.nodes)
            basis = _table_basis(view, self._tree)
            if basis != self._basis:
                self._basis = basis
                if self._term is not None:
                    self._term.changed(*self._table_inputs(view, self._tree, self._term.inventories))
        term = self._present()
        self.loop_state = self._loop_state_of(term) if term is not None else None

    def _present(self) -> PowerTerm | None:
        """The running term, a new one after the Lease was acquired again; None while this process does not lead.

        A term continues after a gap in which the Lease could not be renewed and no other replica acquired it: agents
        refuse sequence numbers that start again within an epoch.
        """
        view, tree = self._view, self._tree
        if view is None or tree is None or not self._leads():
            return None
        epoch = self._epoch()
        if self._term is None or self._term.epoch != epoch:
            table_of, awaited, outside = self._table_inputs(view, tree, {})
            self._term = PowerTerm(table_of, epoch, self._rules, awaited, outside, self._recall())
            self._since_s = self._clock()
            log.info("power loop begins a term", epoch=epoch, domains=len(view.domains))
        return self._term

    def _table_inputs(
        self, view: PowerView, tree: PowerTree, heard: Mapping[str, Inventory]
    ) -> tuple[TableOf, frozenset[str], frozenset[str]]:
        """Constructor of the table, nodes whose agents should be heard from, and nodes that are in no domain."""
        return (
            partial(power_table, view.domains, view.nodes),
            unheard(tree, view.nodes, heard),
            frozenset(view.nodes.keys() - tree.feeds_of_node.keys()),
        )

    def _loop_state_of(self, term: PowerTerm) -> PowerLoopState:
        assert self._view is not None  # noqa: S101 - a term exists only after the cluster was seen
        assert self._tree is not None  # noqa: S101
        before, table, reach = self.loop_state, term.table, None
        if before is None or before.epoch != term.epoch or before.table is None:
            self._since_s = self._clock()
        if table is not None:
            kept = before.table if before is not None else None
            is_same = kept is not None and kept.domains is table.domains and kept.feeds is table.feeds
            reach = before.reach if before is not None and is_same else reach_of(table)
        return PowerLoopState(
            epoch=term.epoch,
            since_s=self._since_s,
            at_s=self._clock(),
            view=self._view,
            tree=self._tree,
            heard=frozenset(sound(term.inventories, self._view.nodes)),
            is_pending=term.is_pending,
            mistake=term.mistake,
            table=table,
            reach=reach,
            allocator=term.allocator,
            state=term.state,
            meters=term.meters,
        )


def _table_basis(view: PowerView, tree: PowerTree) -> object:
    """Inputs that the table depends on. Pods come and go all the time; most leave the class of every node unchanged."""
    drawn = {
        node: (view.nodes[node].gpus, [view.nodes[node].labels.get(label) for label in NODE_LABELS])
        for node in tree.feeds_of_node
    }
    outside = view.nodes.keys() - tree.feeds_of_node.keys()
    return view.domains, tree.feeds_of_node, tree.class_of_node, tree.observed, drawn, outside
