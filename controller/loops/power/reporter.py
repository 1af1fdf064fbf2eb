"""Reporter of the fast loop's state: statuses and Events of PowerDomains, and metrics. Runs beside planning."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import structlog

from cluster.errors import ActionError
from controller.api.power_domain import KIND
from controller.api.structs import OwnObject
from controller.kube.cache import Cache
from controller.kube.sender import WriteJob
from controller.loops.loop import LoopContext, WrittenStatuses
from controller.loops.power import domain_status
from controller.loops.power.domain_facts import DomainFacts, HeldBackDevice, facts_of, held_of
from controller.loops.power.domain_tree import lineage
from controller.loops.power.loop import PowerLoop, PowerLoopState
from controller.metrics.registry import Meter, Sample
from controller.objects.own_objects import by_object
from controller.report.events import Events
from controller.report.service_status import status_write

log = structlog.get_logger(__name__)
EVERY_S = 1.0
HELD_EVERY_S = 5.0
REFUSALS = ("Forged", "UnknownKey", "Unreadable", "OtherNode", "OtherLife", "Replayed")
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
        domains: Cache[OwnObject],
        loop: PowerLoop,
        context: LoopContext,
        events: Events,
        hours: Callable[[], Mapping[str, str]],
        settle_s: float,
        learns_s: float = domain_status.LEARNED_EVERY_S,
    ) -> None:
        """hours: what planning learnt of services (`daily_profile.packed`).

        settle_s: time after the start of a term in which some agents may not have been heard from yet, so that silence
        is not reported. learns_s: age of a term from which its own measurements take the place of its predecessor's.
        """
        self._domains, self._loop, self._context, self._events = domains, loop, context, events
        self._hours, self._settle_s, self._learns_s = hours, settle_s, learns_s
        self._written = WrittenStatuses()
        self._written_at_s: dict[str, float] = {}
        self._held: tuple[float, int, Mapping[str, tuple[HeldBackDevice, ...]]] = (0.0, -1, {})
        """Instant and term of the last evaluation, and the devices held back."""

    async def report(self) -> None:
        """Writes what needs to be written now."""
        loop_state, meter = self._loop.loop_state, self._context.meter
        if loop_state is None:
            meter.publish_power(())
            self._written.clear()
            self._written_at_s.clear()
            return
        facts = facts_of(loop_state)
        meter.publish_power(samples_of(facts))
        # Soon after the start of a term, silent devices are merely not heard from yet.
        is_young = loop_state.at_s - loop_state.since_s < self._settle_s
        is_settled = not (is_young and any(each.stale for each in facts.values()))
        if loop_state.table is None:
            is_settled = bool(loop_state.mistake)
        if loop_state.is_pending or not is_settled:
            return
        changes = list(self._changes(loop_state, facts))
        answers = await self._context.reports_applier.send([job for job, *_ in changes])
        for (_, obj, before, after), answer in zip(changes, answers, strict=True):
            name = obj.metadata.name
            if isinstance(answer, ActionError):
                log.warning("a PowerDomain's status was not written", power_domain=name, why=str(answer))
                continue
            self._written.put(name, obj, after)
            self._written_at_s[name] = self._context.clocks.monotonic()
            self._events.say(domain_status.events_of_change(name, before, after))

    def _changes(
        self, loop_state: PowerLoopState, facts: Mapping[str, DomainFacts]
    ) -> Iterator[tuple[WriteJob, OwnObject, dict[str, Any], dict[str, Any]]]:
        """Writes of the statuses that change: each with its object, and its status before and after."""
        clocks, domains = self._context.clocks, loop_state.view.domains
        now_s, at_s = clocks.monotonic(), clocks.wall()
        wrong = by_object((*loop_state.view.unreadable, *loop_state.tree.fatal, *loop_state.tree.mistakes))
        spikes = loop_state.spikes() if loop_state.at_s - loop_state.since_s >= self._learns_s else {}
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
                learned=spikes.get(name),
                hours=self._hours() if spikes and name == min(spikes) else {},
            )
            before = self._written.before(name, obj)
            may_refresh = (
                now_s - self._written_at_s.get(name, -domain_status.FIGURES_EVERY_S) >= domain_status.FIGURES_EVERY_S
            )
            after = domain_status.status_after(before, inputs, at_s, may_refresh=may_refresh)
            if after != before:
                yield (
                    WriteJob(f"PowerDomain/{name}", status_write(KIND, name, obj.metadata.uid, after)),
                    obj,
                    before,
                    after,
                )
