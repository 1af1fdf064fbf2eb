"""The fast loop of power in the operator: serves agents while this process leads, in its own thread.

It is not delayed by a long plan or the Kubernetes API, nor delays them. Other threads read `loop_state`, an immutable
snapshot that is replaced as a whole.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import structlog

from cluster.arrays import FloatArray
from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake
from cluster.power import PowerTable
from cluster.snapshot import PENDING, Snapshot
from controller.api import notation
from controller.api.power_domain import KIND, PowerDomainSpec
from controller.api.structs import Node, OwnObject
from controller.kube.cache import Cache
from controller.loops.loop import Courier
from controller.loops.power.agent_server import AgentServer, LoopCounts
from controller.loops.power.domain_tree import CLASS_LABEL, Domains, PoweredNode, PowerTree, power_tree
from controller.loops.power.power_table import NODE_LABELS, power_table, sound, unheard
from controller.loops.power.term import PowerTerm, TableOf
from controller.objects.own_objects import own_from, own_resource
from controller.objects.read import Read
from power.control.admission import headroom_w
from power.control.state import Allocator, AllocatorState, Fleet, LearnedSpikes, fleets_of, learned_spikes
from power.leases.messages import Inventory, Keys
from power.rules import PowerRules
from power.tree import reach_of
from power.watching import Meters

POWER_DOMAINS = own_resource(KIND)


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Facts from a planning snapshot about the pods on each node, by the node's name."""

    priority: Mapping[str, int] = field(default_factory=dict)
    """Priority of its most important pod that holds GPUs; nodes without one are omitted."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Number of GPUs as planning counts them, devices of ResourceSlices included."""


@dataclass(frozen=True, slots=True)
class PowerView:
    """View of the cluster as far as power is concerned."""

    domains: Domains
    nodes: Mapping[str, PoweredNode]
    generations: Mapping[str, int] = field(default_factory=dict)
    """metadata.generation of every PowerDomain, readable or not."""
    unreadable: tuple[Mistake, ...] = ()
    """Errors of PowerDomains that are omitted."""


def work_of(snapshot: Snapshot) -> NodeWork:
    """Facts about work, from the snapshot's columns: 60,000 pods take milliseconds."""
    pods, names = snapshot.pods, snapshot.nodes.names
    holds = np.array([shape.gpus > 0 for shape in pods.shapes], dtype=np.bool_)
    bound = np.flatnonzero((pods.node != PENDING) & (holds[pods.shape] if len(holds) else False))
    lowest = np.iinfo(np.int64).min
    highest = np.full(len(names), lowest)
    np.maximum.at(highest, pods.node[bound], pods.priority[bound])
    busy, equipped = np.flatnonzero(highest > lowest), np.flatnonzero(snapshot.nodes.gpus)
    return NodeWork(
        {names[row]: int(highest[row]) for row in busy.tolist()},
        {names[row]: int(snapshot.nodes.gpus[row]) for row in equipped.tolist()},
    )


class PowerWatcher:
    """Reader of the caches, for one thread; it remembers what it read of unchanged objects."""

    def __init__(
        self, domains: Cache[OwnObject], nodes: Cache[Node], work: Callable[[], NodeWork], resources: frozenset[str]
    ) -> None:
        """work: facts of the newest planning snapshot; empty before the first. resources: names of the resources that
        count GPUs.
        """
        self._domains, self._nodes, self._work, self._resources = domains, nodes, work, resources
        self._read: dict[str, tuple[OwnObject, PowerDomainSpec | tuple[Mistake, ...]]] = {}
        self._powered: dict[str, tuple[Node, PoweredNode]] = {}
        self._keys: frozenset[str] = frozenset()

    def see(self) -> PowerView | None:
        """The cluster now; None until domains and nodes were listed once: before that no node may be released."""
        if not (self._domains.is_synced and self._nodes.is_synced):
            return None
        read = self._specs()
        generations = {name: obj.metadata.generation for name, (obj, _) in self._read.items()}
        domains = {name: spec for name, spec in read.items() if not isinstance(spec, tuple)}
        wrong = tuple(mistake for each in read.values() if isinstance(each, tuple) for mistake in each)
        return PowerView(domains, self._nodes_as(domains), generations, wrong)

    def _specs(self) -> Mapping[str, PowerDomainSpec | tuple[Mistake, ...]]:
        objects = self._domains.all()
        for name, obj in objects.items():
            known = self._read.get(name)
            # A written status makes another struct of the same spec, which is no change here.
            if known is None or (known[0].metadata.generation, known[0].spec) != (obj.metadata.generation, obj.spec):
                self._read[name] = (obj, _spec_of(name, obj))
        self._read = {name: each for name, each in self._read.items() if name in objects}
        return {name: spec for name, (_, spec) in sorted(self._read.items())}

    def _nodes_as(self, domains: Domains) -> Mapping[str, PoweredNode]:
        asked = (spec.nodes.key for spec in domains.values() if spec.nodes is not None)
        keys = frozenset((*asked, CLASS_LABEL, *NODE_LABELS))
        if keys != self._keys:
            self._keys, self._powered = keys, {}
        nodes, work = self._nodes.all(), self._work()
        made = {}
        for name, node in nodes.items():
            known = self._powered.get(name)
            if known is None or known[0] is not node:
                known = self._powered[name] = (node, self._powered_node(node))
            made[name] = _at_work(known[1], work, name)
        self._powered = {name: self._powered[name] for name in nodes}
        return made

    def _powered_node(self, node: Node) -> PoweredNode:
        labels = {key: value for key, value in node.metadata.labels.items() if key in self._keys}
        gpus = sum(
            max(_count(node.status.capacity.get(each)), _count(node.status.allocatable.get(each)))
            for each in self._resources
        )
        return PoweredNode(labels, gpus)


def _at_work(node: PoweredNode, work: NodeWork, name: str) -> PoweredNode:
    priority, gpus = work.priority.get(name), max(node.gpus, work.gpus.get(name, 0))
    return node if priority is None and gpus == node.gpus else PoweredNode(node.labels, gpus, priority)


def _count(written: object) -> int:
    """Number of whole devices of a device plugin; 0 if unreadable, which planning reports for such a node."""
    try:
        return 0 if written is None else notation.whole(notation.quantity(written))
    except ValueError:
        return 0


def _spec_of(name: str, obj: OwnObject) -> PowerDomainSpec | tuple[Mistake, ...]:
    read = own_from(name, KIND, obj)
    return read.object.spec if isinstance(read, Read) else read


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
    table: PowerTable | None = None
    """Table with the last readings; None before the first turn that granted."""
    reach: FloatArray | None = None
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

    def fleets(self) -> Mapping[str, Fleet]:
        """Domain with a budget → its fleet."""
        return fleets_of(self.allocator) if self.allocator is not None else {}

    def spikes(self) -> Mapping[str, LearnedSpikes]:
        """Domain with a budget → what this controller learnt of its rises."""
        if self.allocator is None or self.state is None:
            return {}
        return learned_spikes(self.allocator, self.state)

    def wanted_w(self) -> FloatArray | None:
        """Draw of each device of the table, or what it would draw where its cap holds it back; NaN where it is not
        believed.

        None while there is no table with devices.
        """
        if self.table is None or self.state is None or self.allocator is None:
            return None
        seen, rules = self.state.estimate, self.allocator.rules
        held_back = seen.draw_w >= rules.pinned_share * self.state.ledger.cap_w
        wanted_w = np.where(held_back, np.maximum(seen.draw_w, self.state.need_w), seen.draw_w)
        return np.where(seen.believed, wanted_w, np.nan)

    def power_table(self) -> PowerTable | None:
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
