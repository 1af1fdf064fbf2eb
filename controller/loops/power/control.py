"""Power control in the operator: what the fast loop reads of the cluster, its start, and its facts for planning."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import structlog

from cluster.errors import Mistake
from cluster.snapshot import PENDING, Snapshot
from controller.api import notation
from controller.api.power_domain import KIND, PowerDomainSpec
from controller.api.structs import Node, OwnObject
from controller.kube import cache, connection
from controller.loops.loop import ControlLoop, LoopContext, repeat
from controller.loops.power import domain_status
from controller.loops.power.agent_server import NodeTokens
from controller.loops.power.domain_facts import DomainFacts, HeldBackDevice, facts_of, held_of
from controller.loops.power.domain_tree import CLASS_LABEL, PoweredNode, lineage
from controller.loops.power.loop import LOOK_S, PowerLoop, PowerLoopState, PowerView
from controller.loops.power.power_table import NODE_LABELS
from controller.loops.reviews import TokenReviews
from controller.loops.server_tls import ServerTls
from controller.metrics.registry import Meter, Sample
from controller.objects.own_objects import by_object, own_from, own_resource
from controller.objects.read import Read
from controller.report.events import Events
from controller.report.statuses import WrittenStatuses
from controller.settings import OperatorSettings
from power.leases.messages import AUDIENCE
from power.rules import PowerRules

log = structlog.get_logger(__name__)
EVERY_S = 1.0
HELD_EVERY_S = 5.0
REFUSALS = ("NotAuthenticated", "NotAnAgent", "NotReviewed", "Unreadable", "OtherNode", "OtherLife", "Replayed")
"""Codes of refused agent messages, whose counters start at 0."""


def samples_of(facts: Mapping[str, DomainFacts]) -> Iterator[Sample]:
    """Gauges of every domain."""
    for name, each in facts.items():
        yield Sample("tonnage_power_draw_watts", (name,), each.draw_w)
        yield Sample("tonnage_power_worst_watts", (name,), each.worst_w)
        if each.headroom_w is not None:
            yield Sample("tonnage_power_headroom_watts", (name,), each.headroom_w)
        if each.budget_w is not None:
            yield Sample("tonnage_power_budget_watts", (name,), each.budget_w)
        yield Sample("tonnage_power_brake", (name,), each.is_braked)
        states = {"stale": each.stale, "disobedient": each.suspects, "held_back": each.held}
        states["free"] = each.devices - sum(states.values())
        for state, count in states.items():
            yield Sample("tonnage_power_devices", (name, state), count)
        for power_class, watts in each.short_w.items():
            yield Sample("tonnage_power_short_watts", (name, power_class), watts)


class PowerLoopMetrics:
    """Exporter of the loop's counters. Called in the loop's thread."""

    def __init__(self, meter: Meter, boot_to_epoch_s: float) -> None:
        """boot_to_epoch_s: offset that converts instants of the loop's clock to seconds since the epoch."""
        self._meter, self._boot_to_epoch_s = meter, boot_to_epoch_s
        self._exported: dict[str, Counter[str]] = {}
        meter.foresee("tonnage_power_messages_refused_total", REFUSALS)
        for name in ("reports", "leases", "failed_turns"):
            meter.count(f"tonnage_power_{name}_total", by=0)

    def publish(self, loop: PowerLoop) -> None:
        meter, counts = self._meter, loop.counts
        risen = {
            "reports": Counter({"": counts.reports}),
            "leases": Counter({"": counts.leases}),
            "failed_turns": Counter({"": counts.failures}),
            "messages_refused": Counter(counts.refused),
        }
        for name, now in risen.items():
            for label, count in (now - self._exported.get(name, Counter())).items():
                meter.count(f"tonnage_power_{name}_total", *([label] if label else []), by=count)
        self._exported = risen
        for took_s in counts.reaction_s:
            meter.observe("tonnage_power_reaction_seconds", took_s)
        counts.reaction_s.clear()
        meter.set("tonnage_power_agents", loop.agents)
        meter.set("tonnage_power_turn_seconds", counts.turn_s)
        turned_at_s = counts.turned_at_s + self._boot_to_epoch_s if counts.turned_at_s and loop.loop_state else 0.0
        meter.set("tonnage_power_last_turn_timestamp_seconds", turned_at_s)


class PowerReporter:
    """Reports changes of domains once a second. Belongs to the event loop of the Kubernetes connection."""

    def __init__(
        self,
        domains: cache.Cache[OwnObject],
        loop: PowerLoop,
        context: LoopContext,
        events: Events,
        settle_s: float,
    ) -> None:
        """settle_s: time after the start of a term in which some agents may not have been heard from yet, so that
        silence is not reported.
        """
        self._domains, self._loop, self._context, self._events = domains, loop, context, events
        self._settle_s = settle_s
        self._written = WrittenStatuses()
        self._written_at_s: dict[str, float] = {}
        self._held: tuple[float, int, Mapping[str, tuple[HeldBackDevice, ...]]] = (0.0, -1, {})
        """Instant and term of the last evaluation, and the devices held back."""

    async def report(self) -> None:
        """Writes what needs to be written now."""
        loop_state, meter = self._loop.loop_state, self._context.meter
        if loop_state is None:
            meter.publish("power", ())
            self._written.clear()
            self._written_at_s.clear()
            return
        facts = facts_of(loop_state)
        meter.publish("power", samples_of(facts))
        # Soon after the start of a term, silent devices are merely not heard from yet.
        is_young = loop_state.at_s - loop_state.since_s < self._settle_s
        is_settled = not (is_young and any(each.stale for each in facts.values()))
        if loop_state.table is None:
            is_settled = bool(loop_state.mistake)
        if loop_state.is_pending or not is_settled:
            return
        changes = {obj.metadata.name: (obj, before, after) for obj, before, after in self._changes(loop_state, facts)}
        changed = {name: (obj, after) for name, (obj, _, after) in changes.items()}
        for name in await self._written.write(KIND, changed, self._context.reports_applier):
            _, before, after = changes[name]
            self._written_at_s[name] = self._context.clocks.monotonic()
            self._events.say(domain_status.events_of_change(name, before, after))

    def _changes(
        self, loop_state: PowerLoopState, facts: Mapping[str, DomainFacts]
    ) -> Iterator[tuple[OwnObject, dict[str, Any], dict[str, Any]]]:
        """Objects whose statuses change: each with its status before and after."""
        clocks, domains = self._context.clocks, loop_state.view.domains
        now_s, at_s = clocks.monotonic(), clocks.wall()
        wrong = by_object((*loop_state.view.unreadable, *loop_state.tree.fatal, *loop_state.tree.mistakes))
        made_s, epoch, held = self._held
        if epoch != loop_state.epoch or loop_state.at_s - made_s >= HELD_EVERY_S:
            held = held_of(loop_state)  # only now and then: curves are looked up for each device
            self._held = (loop_state.at_s, loop_state.epoch, held)
        for name, obj in self._domains.all().items():
            if obj.metadata.deletion_timestamp or name not in loop_state.view.generations:
                continue
            above = lineage(domains, name) if name in domains else ()
            # Instants of devices are by the loop's clock; a cap adopted from another term has none.
            inputs = domain_status.StatusInputs(
                generation=loop_state.view.generations[name],
                mistaken=wrong.get(f"PowerDomain/{name}", ()),
                facts=facts.get(name),
                held=tuple(
                    replace(each, since_s=max(each.since_s, loop_state.since_s) + at_s - now_s)
                    for each in held.get(name, ())
                ),
                unusable=loop_state.mistake,
                is_observed=any(domains[each].mode == "observe" for each in above),
            )
            before = self._written.before(name, obj)
            may_refresh = (
                now_s - self._written_at_s.get(name, -domain_status.FIGURES_EVERY_S) >= domain_status.FIGURES_EVERY_S
            )
            after = domain_status.status_after(before, inputs, at_s, may_refresh=may_refresh)
            if after != before:
                yield obj, before, after


POWER_DOMAINS = own_resource(KIND)


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Facts from a planning snapshot about the pods on each node, by the node's name."""

    priority: Mapping[str, int] = field(default_factory=dict)
    """Priority of its most important pod that holds GPUs; nodes without one are omitted."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Number of GPUs as planning counts them, devices of ResourceSlices included."""


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

    def __init__(self, domains: cache.Cache[OwnObject], nodes: cache.Cache[Node], resources: frozenset[str]) -> None:
        """resources: names of the resources that count GPUs."""
        self._domains, self._nodes, self._resources = domains, nodes, resources
        self.work = NodeWork()
        """Facts of the newest planning snapshot, which another thread replaces; empty before the first."""
        self._read: dict[str, tuple[OwnObject, PowerDomainSpec | tuple[Mistake, ...]]] = {}
        self._powered: dict[str, tuple[Node, PoweredNode]] = {}
        self._keys: frozenset[str] = frozenset()

    def see(self) -> PowerView | None:
        """The cluster now; None until domains and nodes were listed once: before that no node may be released."""
        if not (self._domains.is_synced and self._nodes.is_synced):
            return None
        objects = self._domains.all()
        for name, obj in objects.items():
            known = self._read.get(name)
            # A written status makes another struct of the same spec, which is no change here.
            if known is None or (known[0].metadata.generation, known[0].spec) != (obj.metadata.generation, obj.spec):
                found = own_from(name, KIND, obj)
                self._read[name] = (obj, found.object.spec if isinstance(found, Read) else found)
        self._read = {name: self._read[name] for name in sorted(objects)}
        domains = {name: spec for name, (_, spec) in self._read.items() if not isinstance(spec, tuple)}
        asked = (spec.nodes.key for spec in domains.values() if spec.nodes is not None)
        keys = frozenset((*asked, CLASS_LABEL, *NODE_LABELS))
        if keys != self._keys:
            self._keys, self._powered = keys, {}
        return PowerView(
            domains,
            self._powered_nodes(),
            {name: obj.metadata.generation for name, (obj, _) in self._read.items()},
            tuple(mistake for _, spec in self._read.values() if isinstance(spec, tuple) for mistake in spec),
        )

    def _powered_nodes(self) -> Mapping[str, PoweredNode]:
        nodes, work = self._nodes.all(), self.work
        kept: dict[str, tuple[Node, PoweredNode]] = {}
        made: dict[str, PoweredNode] = {}
        for name, node in nodes.items():
            known = self._powered.get(name)
            if known is None or known[0] is not node:
                labels = {key: value for key, value in node.metadata.labels.items() if key in self._keys}
                status = node.status
                counts = (
                    max(
                        *(
                            notation.whole_or_zero(amounts.get(each))
                            for amounts in (status.capacity, status.allocatable)
                        )
                    )
                    for each in self._resources
                )
                known = (node, PoweredNode(labels, sum(counts)))
            kept[name], bare = known, known[1]
            priority, gpus = work.priority.get(name), max(bare.gpus, work.gpus.get(name, 0))
            is_same = priority is None and gpus == bare.gpus
            made[name] = bare if is_same else PoweredNode(bare.labels, gpus, priority)
        self._powered = kept
        return made


class PowerControl(ControlLoop):
    """Watches PowerDomains, serves agents, and gives planning the power that it may use."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._domains = cache.Cache(POWER_DOMAINS)
        self._running: tuple[PowerWatcher, PowerLoop] | None = None
        """None before the start."""

    @property
    def caches(self) -> tuple[cache.Cache[Any], ...]:
        return (self._domains,)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the power table of the fast loop, if it runs."""
        if self._running is None:
            return snapshot
        watcher, loop = self._running
        watcher.work = work_of(snapshot)
        loop_state = loop.loop_state
        power = loop_state.power_table() if loop_state is not None else None
        return snapshot if power is None else replace(snapshot, power=power)

    def probe(self) -> str | None:
        return self._running[1].probe() if self._running is not None else None

    def start(self, context: LoopContext) -> dict[str, int]:
        """Serves agents in a thread of its own, and reports; both end before the Lease is released.

        Raises ConfigError for a certificate or an address that cannot be used.
        """
        power, clock, wall_clock = self._settings.power, context.clocks.monotonic, context.clocks.wall
        tls = ServerTls(power.tls.certificate, power.tls.key, clock, "power.tls")
        tokens = NodeTokens(TokenReviews(context.post, clock, AUDIENCE), power.agents)
        resources = frozenset(self._settings.dra_drivers.values())
        watcher = PowerWatcher(self._domains, context.caches.nodes, resources)
        rules = PowerRules(
            control_delay_s=power.control_delay_s,
            stale_s=power.stale_s,
            lease_s=power.lease_s,
            burst_share=power.burst_share,
        )
        loop = PowerLoop(watcher.see, context.leadership, tokens.node_of, clock, rules, context.channels)
        metrics = PowerLoopMetrics(context.meter, wall_clock() - clock())

        async def look() -> None:
            """Publishes metrics, and loads a renewed certificate."""
            metrics.publish(loop)
            tls.look()

        thread = connection.LoopThread("power")
        context.stack.callback(thread.close)
        port = thread.run(loop.listen(self._settings.host, power.port, tls.context))
        thread.begin(loop.run())
        thread.begin(repeat(look, LOOK_S, "the upkeep of the power loop failed"))
        self._running = watcher, loop
        events = context.events_about(KIND.name, self._domains)
        reporter = PowerReporter(self._domains, loop, context, events, power.stale_s)
        context.keep(repeat(reporter.report, EVERY_S, "reporting power failed"))
        return {"power": port}


def enabled(settings: OperatorSettings) -> PowerControl | None:
    """Power control; None where the settings do not enable it."""
    return PowerControl(settings) if settings.power.enabled else None
