"""The fast loop of power in the operator: serves agents while this process leads, in a thread of its own.

Neither a long plan nor the Kubernetes API stands in its way, nor it in theirs: what others need to know of it lies in
`standing`, a picture that is replaced as a whole.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from cluster.clock import Clock
from cluster.errors import ConfigError, Mistake
from controller.power.agent_server import WattCounts, WattServer
from controller.power.domain_tree import PowerTree, power_tree
from controller.power.loop_state import PowerStanding
from controller.power.power_table import PRODUCT_LABELS, power_table, sound, unheard
from controller.power.term import TableOf, Watts
from controller.power.watcher import Sight
from power.domains.tree import reach_of
from power.leases.messages import Inventory, Keys
from power.rules import PowerRules

log = structlog.get_logger(__name__)

LOOK_S = 0.5
"""So often domains, nodes and pods are looked at anew. A budget that was lowered is in force half a second, one turn
and the devices' own delay later."""
STUCK_S = 60.0
"""A leader's loop that has not come round for so long is stuck: leases have ended five times over."""


class PowerLoop:
    """Everything that is remembered between two looks. All of it belongs to the loop's thread but `standing`,
    `counts` and `probe`, which any thread may read."""

    def __init__(
        self,
        see: Callable[[], Sight | None],
        leads: Callable[[], bool],
        epoch: Callable[[], int],
        keys: Callable[[], Keys],
        clock: Clock,
        rules: PowerRules,
        on_look: Callable[["PowerLoop"], None] = lambda _: None,
    ) -> None:
        """see: the cluster now, None while it was not seen. leads, epoch: of the Lease, asked before each turn.

        on_look: called after each look, in the loop's thread.
        """
        self._see, self._leads, self._epoch, self._clock, self._rules = see, leads, epoch, clock, rules
        self._on_look = on_look
        self._server = WattServer(self._present, keys, clock)
        self._watts: Watts | None = None
        self._sight: Sight | None = None
        self._tree: PowerTree | None = None
        self._matter: object = None
        """What the present table was made from."""
        self._since_s = 0.0
        self._looked_at_s = clock()
        self.standing: PowerStanding | None = None
        """None while this process does not lead, or has not seen the cluster."""

    @property
    def counts(self) -> WattCounts:
        return self._server.counts

    @property
    def agents(self) -> int:
        """Lines that are up."""
        return len(self._server.nodes)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Open the agents' port; which one it is, where `port` is 0. Raises ConfigError when it cannot be had."""
        try:
            server = await self._server.serve(host, port, tls)
        except OSError as error:
            raise ConfigError(Mistake(f"power.port, {host}:{port}", f"cannot be opened: {error}")) from error
        self._listening = server
        return int(server.sockets[0].getsockname()[1])

    async def run(self) -> None:
        """For ever: look, decide, answer. When it is cancelled the port is closed and agents look elsewhere."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._server.decide())
                group.create_task(self._look_on())
        finally:
            self._watts = self.standing = None
            self._listening.close()

    def probe(self) -> str | None:
        """Whether the loop still comes round; for the kubelet."""
        still_s = self._clock() - self._looked_at_s
        return f"the power loop has not come round for {still_s:.0f} s" if still_s > STUCK_S else None

    async def _look_on(self) -> None:
        while True:
            try:
                self._look()
                self._on_look(self)
            except Exception:
                self.counts.failures += 1
                log.exception("a look of the power loop failed")
            self._looked_at_s = self._clock()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        sight = self._see()
        if sight is not None and sight != self._sight:
            self._sight, self._tree = sight, power_tree(sight.domains, sight.nodes)
            matter = _what_matters(sight, self._tree)
            if matter != self._matter:
                self._matter = matter
                if self._watts is not None:
                    self._watts.changed(*self._asked(sight, self._tree, self._watts.inventories))
        watts = self._present()
        self.standing = self._standing_of(watts) if watts is not None else None

    def _present(self) -> Watts | None:
        """The term that runs, a new one when the Lease was taken anew; None while this process does not lead.

        A term goes on after a gap in which the Lease could not be renewed and nobody else took it: agents refuse
        numbers that begin anew within an epoch.
        """
        sight, tree = self._sight, self._tree
        if sight is None or tree is None or not self._leads():
            return None
        epoch = self._epoch()
        if self._watts is None or self._watts.epoch != epoch:
            table_of, awaited, outside = self._asked(sight, tree, {})
            self._watts = Watts(table_of, epoch, self._rules, awaited, outside)
            self._since_s = self._clock()
            log.info("power loop begins a term", epoch=epoch, domains=len(sight.domains))
        return self._watts

    def _asked(
        self, sight: Sight, tree: PowerTree, heard: Mapping[str, Inventory]
    ) -> tuple[TableOf, frozenset[str], frozenset[str]]:
        """How the table is made, whose agents should be heard, and which nodes are in no domain."""
        return (
            partial(power_table, sight.domains, sight.nodes),
            unheard(tree, sight.nodes, heard),
            frozenset(sight.nodes.keys() - tree.feeds_of_node.keys()),
        )

    def _standing_of(self, watts: Watts) -> PowerStanding:
        assert self._sight is not None  # noqa: S101 - there is no term without a sight
        assert self._tree is not None  # noqa: S101
        before, table, reach = self.standing, watts.table, None
        if before is None or before.epoch != watts.epoch or before.table is None:
            self._since_s = self._clock()
        if table is not None:
            kept = before.table if before is not None else None
            is_same = kept is not None and kept.domains is table.domains and kept.feeds is table.feeds
            reach = before.reach if before is not None and is_same else reach_of(table)
        return PowerStanding(
            epoch=watts.epoch,
            since_s=self._since_s,
            at_s=self._clock(),
            sight=self._sight,
            tree=self._tree,
            heard=frozenset(sound(watts.inventories)),
            is_pending=watts.is_pending,
            mistake=watts.mistake,
            table=table,
            reach=reach,
            allocator=watts.allocator,
            state=watts.state,
            meters=watts.meters,
        )


def _what_matters(sight: Sight, tree: PowerTree) -> object:
    """What the table depends on. Pods come and go all the time; most leave every node in the class that it is in."""
    drawn = {
        node: (sight.nodes[node].gpus, [sight.nodes[node].labels.get(label) for label in PRODUCT_LABELS])
        for node in tree.feeds_of_node
    }
    outside = sight.nodes.keys() - tree.feeds_of_node.keys()
    return sight.domains, tree.feeds_of_node, tree.class_of_node, tree.observed, drawn, outside
