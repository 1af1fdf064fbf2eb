"""The fast loop of power in the operator: serves agents while this process leads, in its own thread.

It is not delayed by a long plan or the Kubernetes API, nor delays them. Other threads read `loop_state`, an immutable
snapshot that is replaced as a whole.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from cluster import arrays, errors, power
from cluster.clock import Clock
from controller.loops.loop import AgentChannel, Leader
from controller.loops.power.agent_server import AgentServer, Identify, LoopCounts
from controller.loops.power.domain_tree import Domains, PoweredNode, PowerTree, power_tree
from controller.loops.power.power_table import NODE_LABELS, power_table, sound, unheard
from controller.loops.power.term import PowerTerm, TableOf
from power.control.admission import headroom_w
from power.control.state import Allocator, AllocatorState
from power.leases.messages import Inventory
from power.rules import PowerRules
from power.tree import reach_of
from power.watching import Meters

log = structlog.get_logger(__name__)

LOOK_S = 0.5
"""Interval at which domains, nodes and pods are read again. A lowered budget is in force after half a second, one turn
and the devices' own delay."""
STUCK_S = 60.0
"""Time without a round after which a leader's loop counts as stuck: leases have ended five times over."""


@dataclass(frozen=True, slots=True)
class PowerView:
    """View of the cluster as far as power is concerned."""

    domains: Domains
    nodes: Mapping[str, PoweredNode]
    generations: Mapping[str, int] = field(default_factory=dict)
    """metadata.generation of every PowerDomain, readable or not."""
    unreadable: tuple[errors.Mistake, ...] = ()
    """Errors of PowerDomains that are omitted."""


@dataclass(frozen=True, slots=True, eq=False)
class PowerLoopState:
    """State of the leader's fast loop. Instants are of its own clock."""

    epoch: int
    since_s: float
    """Instant when this term first granted something; before that, of the last update."""
    at_s: float
    view: PowerView
    tree: PowerTree
    heard: frozenset[str]
    """Nodes whose agents reported a valid inventory of devices in this term."""
    is_pending: bool = False
    """Whether the newest domains, nodes or devices are in no table yet; the next turn includes them."""
    mistake: str = ""
    """Reason why the newest domains cannot be used; `table` is then of the previous ones, if there were any."""
    table: power.PowerTable | None = None
    """Table with the last readings; None before the first turn that granted."""
    reach: arrays.FloatArray | None = None
    """`power.tree.reach_of` the table. It takes longer to compute than everything else, and depends only on
    domains and feeds."""
    allocator: Allocator | None = None
    """Allocator; None while no device was reported."""
    state: AllocatorState | None = None
    meters: Meters | None = None

    @property
    def nodes(self) -> Mapping[str, PoweredNode]:
        return self.view.nodes

    def headroom_w(self) -> Mapping[str, float]:
        """Domain and node → watts that planning may still use in it; those without any limit are omitted."""
        if self.allocator is None or self.state is None:
            return {}
        return headroom_w(self.allocator, self.state, self.meters.excess_w if self.meters is not None else 0.0)

    def power_table(self) -> power.PowerTable | None:
        """Table for the deciders: with the present leases, and the headroom."""
        if self.table is None or self.state is None:
            return None
        ledger = self.state.ledger
        leases = replace(
            self.table.leases,
            cap_w=ledger.cap_w,
            ceiling_w=self.state.estimate.held_w,
            sequence=ledger.sequence,
            epoch=self.epoch,
        )
        return replace(self.table, leases=leases, headroom_w=self.headroom_w())


class PowerLoop:
    """State between two updates. All of it belongs to the loop's thread; only `loop_state`, `counts` and `probe` may be
    read by any thread.
    """

    def __init__(
        self,
        source: Callable[[], PowerView | None],
        leader: Leader,
        identify: Identify,
        clock: Clock,
        rules: PowerRules,
        channels: Sequence[AgentChannel] = (),
    ) -> None:
        """source: the cluster now; None while it was not seen. leader: asked before each turn.

        channels: other loops' messages on the agents' connections.
        """
        self._source, self._leader, self._clock, self._rules = source, leader, clock, rules
        self._server = AgentServer(self._present, identify, clock, channels)
        self._term: PowerTerm | None = None
        self._view: PowerView | None = None
        self._tree: PowerTree | None = None
        self._basis: object = None
        """Inputs of the present table."""
        self._since_s = 0.0
        self._updated_at_s = clock()
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
            raise errors.ConfigError(
                errors.Mistake(f"power.port, {host}:{port}", f"cannot be opened: {error}")
            ) from error
        self._listening = server
        return int(server.sockets[0].getsockname()[1])

    async def run(self) -> None:
        """Updates, decides and answers for ever. On cancellation the port is closed, and agents look for the leader
        elsewhere.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._server.decide())
                while True:
                    try:
                        self._update()
                    except Exception:
                        self.counts.failures += 1
                        log.exception("an update of the power loop failed")
                    self._updated_at_s = self._clock()
                    await asyncio.sleep(LOOK_S)
        finally:
            self._term = self.loop_state = None
            self._listening.close()

    def probe(self) -> str | None:
        """Reason why the loop counts as stuck, for the kubelet; None while it runs."""
        still_s = self._clock() - self._updated_at_s
        return f"the power loop has made no progress for {still_s:.0f} s" if still_s > STUCK_S else None

    def _update(self) -> None:
        """Reads the cluster again, tells the term what has changed, and replaces the state for other threads."""
        view = self._source()
        if view is not None and view != self._view:
            self._view, self._tree = view, power_tree(view.domains, view.nodes)
            # Pods come and go all the time; most leave the class of every node, and so the table, unchanged.
            tree, nodes = self._tree, view.nodes
            labels = {node: [nodes[node].labels.get(label) for label in NODE_LABELS] for node in tree.feeds_of_node}
            gpus = {node: nodes[node].gpus for node in tree.feeds_of_node}
            outside = nodes.keys() - tree.feeds_of_node.keys()
            basis = (view.domains, tree.feeds_of_node, tree.class_of_node, tree.observed, labels, gpus, outside)
            if basis != self._basis:
                self._basis = basis
                if self._term is not None:
                    self._term.changed(*self._table_inputs(view, self._tree, self._term.inventories))
        term = self._present()
        if term is None or self._view is None or self._tree is None:
            self.loop_state = None
            return
        before, table, reach = self.loop_state, term.table, None
        if before is None or before.epoch != term.epoch or before.table is None:
            self._since_s = self._clock()
        if table is not None:
            kept = before.table if before is not None else None
            is_same = kept is not None and kept.domains is table.domains and kept.feeds is table.feeds
            reach = before.reach if before is not None and is_same else reach_of(table)
        self.loop_state = PowerLoopState(
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

    def _present(self) -> PowerTerm | None:
        """The running term, a new one after the Lease was acquired again; None while this process does not lead.

        A term continues after a gap in which the Lease could not be renewed and no other replica acquired it: agents
        refuse sequence numbers that start again within an epoch.
        """
        view, tree = self._view, self._tree
        if view is None or tree is None or not self._leader.may_write():
            return None
        epoch = self._leader.epoch
        if self._term is None or self._term.epoch != epoch:
            table_of, awaited, outside = self._table_inputs(view, tree, {})
            self._term = PowerTerm(table_of, epoch, self._rules, awaited, outside)
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
