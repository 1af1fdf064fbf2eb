"""Reporter of the fast loop's state: statuses and Events of PowerDomains, and their gauges. Runs beside planning."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import structlog

from cluster.errors import ActionError, Mistake
from controller.api.power_domain import KIND
from controller.api.structs import OwnObject
from controller.kube.cache import Cache
from controller.kube.sender import Job, Sent
from controller.loops.power.domain_facts import DomainFacts, HeldBackDevice, facts_of, held_of
from controller.loops.power.domain_status import (
    FIGURES_EVERY_S,
    LEARNED_EVERY_S,
    StatusInputs,
    events_of_change,
    status_after,
)
from controller.loops.power.domain_tree import lineage
from controller.loops.power.loop import PowerLoop, PowerLoopState
from controller.metrics.registry import Meter, Sample
from controller.objects.own_objects import by_object
from controller.report.events import ReportedDecision
from controller.report.service_status import status_write

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


@dataclass(slots=True)
class PowerLoopMetrics:
    """Exporter of the loop's counters. Called in the loop's thread after each update."""

    meter: Meter
    boot_to_epoch_s: float
    """Offset that converts instants of the loop's clock to seconds since the epoch."""
    exported: dict[str, Counter[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.meter.foresee("tonnage_power_messages_refused_total", REFUSALS)
        for name in ("reports", "leases", "failed_turns"):
            self.meter.count(f"tonnage_power_{name}_total", by=0)

    def publish(self, loop: PowerLoop) -> None:
        meter, counts = self.meter, loop.counts
        self._rise("tonnage_power_reports_total", Counter({"": counts.reports}))
        self._rise("tonnage_power_leases_total", Counter({"": counts.leases}))
        self._rise("tonnage_power_failed_turns_total", Counter({"": counts.failures}))
        self._rise("tonnage_power_messages_refused_total", Counter(counts.refused))
        for took_s in counts.reaction_s:
            meter.observe("tonnage_power_reaction_seconds", took_s)
        counts.reaction_s.clear()
        meter.set("tonnage_power_agents", loop.agents)
        meter.set("tonnage_power_turn_seconds", counts.turn_s)
        turned_at_s = counts.turned_at_s + self.boot_to_epoch_s if counts.turned_at_s and loop.loop_state else 0.0
        meter.set("tonnage_power_last_turn_timestamp_seconds", turned_at_s)

    def _rise(self, name: str, now: Counter[str]) -> None:
        for label, count in (now - self.exported.get(name, Counter())).items():
            self.meter.count(name, *([label] if label else []), by=count)
        self.exported[name] = Counter(now)


log = structlog.get_logger(__name__)
Status = dict[str, Any]

EVERY_S = 1.0
HELD_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class _Known:
    """Status last written of an object, until the watch shows a newer version than the one it was based on."""

    over: str
    """resourceVersion that the write was based on."""
    status: Status


class PowerReporter:
    """Reports changes of domains once a second. Belongs to the event loop of the Kubernetes connection."""

    def __init__(
        self,
        domains: Cache[OwnObject],
        loop_state: Callable[[], PowerLoopState | None],
        send: Callable[[Sequence[Job]], Awaitable[Sequence[Sent]]],
        say: Callable[[Iterable[ReportedDecision]], None],
        publish: Callable[[Iterable[Sample]], None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        settle_s: float,
        hours: Callable[[], Mapping[str, str]] = dict,
        learns_s: float = LEARNED_EVERY_S,
    ) -> None:
        """loop_state: of the fast loop; None while another replica leads. clock: the loop's. wall_clock: since the
        epoch.

        settle_s: time after the start of a term in which some agents may not have been heard from yet, so that silence
        is not reported. hours: what planning learnt of services (`daily_profile.packed`).
        learns_s: age of a term from which its own measurements take the place of its predecessor's.
        """
        self._domains, self._loop_state, self._send, self._publish_events = domains, loop_state, send, say
        self._publish, self._clock, self._wall_clock, self._settle_s = publish, clock, wall_clock, settle_s
        self._hours, self._learns_s = hours, learns_s
        self._known: dict[str, _Known] = {}
        self._written_at_s: dict[str, float] = {}
        self._held: tuple[float, int, Mapping[str, tuple[HeldBackDevice, ...]]] = (0.0, -1, {})
        """Instant and term of the last evaluation, and the devices held back."""

    async def keep(self) -> None:
        """Reports for ever. An internal error is logged, and the next second tries again."""
        while True:
            try:
                await self.report()
            except Exception:
                log.exception("reporting power failed")
            await asyncio.sleep(EVERY_S)

    async def report(self) -> None:
        """Writes what needs to be written now."""
        loop_state = self._loop_state()
        if loop_state is None:
            self._publish(())
            self._known, self._written_at_s = {}, {}
            return
        facts = facts_of(loop_state)
        self._publish(samples_of(facts))
        if loop_state.is_pending or not self._is_settled(loop_state, facts):
            return
        changes = list(self._changes(loop_state, facts))
        answers = await self._send([job for job, *_ in changes])
        for (_, obj, before, after), answer in zip(changes, answers, strict=True):
            name = obj.metadata.name
            if isinstance(answer, ActionError):
                log.warning("a PowerDomain's status was not written", power_domain=name, why=str(answer))
                continue
            self._known[name] = _Known(obj.metadata.resource_version, after)
            self._written_at_s[name] = self._clock()
            self._publish_events(events_of_change(name, before, after))

    def _is_settled(self, loop_state: PowerLoopState, facts: Mapping[str, DomainFacts]) -> bool:
        """Whether silent devices are really silent, and not merely not heard from yet."""
        if loop_state.table is None:
            return bool(loop_state.mistake)
        young = loop_state.at_s - loop_state.since_s < self._settle_s
        return not (young and any(each.stale for each in facts.values()))

    def _changes(
        self, loop_state: PowerLoopState, facts: Mapping[str, DomainFacts]
    ) -> Iterator[tuple[Job, OwnObject, Status, Status]]:
        mistakes = (*loop_state.view.unreadable, *loop_state.tree.fatal, *loop_state.tree.mistakes)
        wrong, held, at_s = by_object(mistakes), self._held_by_domain(loop_state), self._wall_clock()
        spikes = loop_state.spikes() if loop_state.at_s - loop_state.since_s >= self._learns_s else {}
        for name, obj in self._domains.all().items():
            if obj.metadata.deletion_timestamp or name not in loop_state.view.generations:
                continue
            inputs = self._inputs(
                name, loop_state, facts.get(name), wrong.get(f"PowerDomain/{name}", ()), held.get(name, ())
            )
            if name in spikes:
                inputs = replace(inputs, learned=spikes[name], hours=self._hours() if name == min(spikes) else {})
            before = self._before(name, obj)
            may_refresh = self._clock() - self._written_at_s.get(name, -FIGURES_EVERY_S) >= FIGURES_EVERY_S
            after = status_after(before, inputs, at_s, may_refresh=may_refresh)
            if after != before:
                write = status_write(KIND, name, obj.metadata.uid, after)
                yield Job(f"PowerDomain/{name}", write), obj, before, after

    def _held_by_domain(self, loop_state: PowerLoopState) -> Mapping[str, tuple[HeldBackDevice, ...]]:
        """Devices held back, evaluated again only periodically: curves are looked up for each of them."""
        made_s, epoch, held = self._held
        if epoch != loop_state.epoch or loop_state.at_s - made_s >= HELD_EVERY_S:
            held = held_of(loop_state)
            self._held = (loop_state.at_s, loop_state.epoch, held)
        return held

    def _before(self, name: str, obj: OwnObject) -> Status:
        known = self._known.get(name)
        if known is not None and known.over == obj.metadata.resource_version:
            return known.status  # the watch does not show the last write yet
        made: Status = msgspec.json.decode(obj.status)
        return made

    def _inputs(
        self,
        name: str,
        loop_state: PowerLoopState,
        facts: DomainFacts | None,
        mistaken: Sequence[Mistake],
        held: Sequence[HeldBackDevice],
    ) -> StatusInputs:
        domains = loop_state.view.domains
        above = lineage(domains, name) if name in domains else ()
        # Instants are by the loop's clock; a cap adopted from another term has none.
        lag_s = self._wall_clock() - self._clock()
        return StatusInputs(
            generation=loop_state.view.generations[name],
            mistaken=mistaken,
            facts=facts,
            held=tuple(replace(each, since_s=max(each.since_s, loop_state.since_s) + lag_s) for each in held),
            unusable=loop_state.mistake,
            is_observed=any(domains[each].mode == "observe" for each in above),
        )
