"""Wiring of power control: serves the agents, reports, and adds power headroom to snapshots."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import structlog

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api import power_domain
from controller.api.power_domain import Learned
from controller.api.structs import OwnObject
from controller.kube.cache import Cache
from controller.kube.loop_thread import LoopThread
from controller.kube.sender import Applier
from controller.kube_world.observer import Caches
from controller.loops.loop import Clocks, Courier, Surroundings
from controller.loops.power.agent_tls import MountedTls
from controller.loops.power.domain_status import hours_of, read, spikes_of
from controller.loops.power.loop import POWER_DOMAINS, NodeWork, PowerLoop, PowerLoopState, PowerWatcher, work_of
from controller.loops.power.reporter import PowerLoopMetrics, PowerReporter
from controller.loops.power.term import RECALL_S
from controller.metrics.registry import Meter
from controller.report.events import AT_A_TIME, Events
from controller.settings import OperatorSettings
from power.control.daily_profile import DailyProfile, complete_profiles, packed, profiles_after, unpacked
from power.control.state import LearnedSpikes
from power.leases.mounted_keys import MountedKeys
from power.rules import PowerRules

log = structlog.get_logger(__name__)
LEARN_EVERY_S = 60.0
"""Seconds between two readings of the services' power: hourly means change slowly; 60,000 pods take milliseconds."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Leadership of this process, and its Lease epoch; may be read from any thread."""

    holds: Callable[[], bool]
    epoch: Callable[[], int]


class PlannedPods:
    """Exchange between planning and the fast loop: pods in one direction, power in the other.

    Values are replaced whole, so any thread may read them.
    """

    def __init__(self, recall: Callable[[], Mapping[str, Learned]] = dict, *, learns_hours: bool = True) -> None:
        """learns_hours: whether placement receives services' hourly power profiles, so that it keeps peaks apart.

        recall: domain → what the controller before learnt; called until its fleet is there.
        """
        self.work = NodeWork()
        """Pods by node of the newest snapshot; of the last one while the cluster cannot be observed."""
        self.loop: PowerLoop | None = None
        """Fast loop; None: power is not enabled."""
        self._learns_hours = learns_hours
        self._courses: Mapping[str, DailyProfile] = {}
        """Hourly power profiles by service, learned by this leader."""
        self._learned_s = 0.0
        self._recall, self._first_s, self._has_recalled = recall, 0.0, False

    def probe(self) -> str | None:
        """The problem when the fast loop no longer runs its passes, else None; for the kubelet."""
        return self.loop.probe() if self.loop is not None else None

    def with_power(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the power table of the fast loop, if it runs."""
        if self.loop is None:
            return snapshot
        self.work = work_of(snapshot)
        loop_state = self.loop.loop_state
        power = loop_state.power_table() if loop_state is not None else None
        if loop_state is None or power is None:
            return snapshot
        if self._learns_hours and snapshot.at_s - self._learned_s >= LEARN_EVERY_S:
            wanted_w = loop_state.wanted_w()
            if wanted_w is not None:
                self._recall_hours(loop_state, snapshot.at_s)
                self._courses = profiles_after(self._courses, snapshot, power, wanted_w)
                self._learned_s = snapshot.at_s
        return replace(snapshot, power=replace(power, courses=complete_profiles(self._courses)))

    def hours(self) -> Mapping[str, str]:
        """Hours of services, for the next controller."""
        return packed(self._courses)

    def _recall_hours(self, loop_state: PowerLoopState, now_s: float) -> None:
        """Takes over what the controller before learnt, once the fleet is there that it was learnt of."""
        self._first_s = self._first_s or now_s
        if self._has_recalled or now_s - self._first_s > RECALL_S:
            return
        fleets = loop_state.fleets()
        for name, learned in self._recall().items():
            if learned.services and name in fleets and fleets[name].fits(spikes_of(learned).fleet):
                self._courses = {**self._courses, **unpacked(hours_of(learned), min(learned.time, now_s))}
                self._has_recalled = True


def learned_in(domains: Cache[OwnObject]) -> Mapping[str, Learned]:
    """Domain → what its status says that an earlier controller learnt."""
    found = {name: read(msgspec.json.decode(obj.status)).learned for name, obj in domains.all().items()}
    return {name: learned for name, learned in found.items() if learned is not None}


class PowerPart:
    """Power loop as a part of the operator: watches PowerDomains, serves agents, provides headroom for planning."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._domains = Cache(POWER_DOMAINS, lambda: None)
        self._planned = PlannedPods(lambda: learned_in(self._domains), learns_hours=settings.power.learn_hours)

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._domains,)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        return self._planned.with_power(snapshot)

    def learn(self, plan: Plan) -> None:
        """Nothing: its profiles are learned from snapshots."""

    def probe(self) -> str | None:
        return self._planned.probe()

    def start(self, around: Surroundings) -> dict[str, int]:
        """Serves agents and reports; both end before the Lease is released."""
        settings, leadership, clocks = self._settings, around.leadership, around.clocks
        lead = Lead(leadership.may_write, lambda: leadership.epoch)
        serving = serving_watts(
            settings,
            self._domains,
            around.caches,
            self._planned,
            lead,
            around.meter,
            clocks,
            around.couriers,
        )
        port = around.stack.enter_context(serving)
        reporter = power_reporter(
            self._domains,
            self._planned,
            around.applier,
            around.loop,
            lead.epoch,
            settings.identity,
            around.meter,
            clocks,
            settings.power.stale_s,
        )
        around.stack.callback(around.loop.begin(reporter.keep()))
        return {"power": port}


def enabled(settings: OperatorSettings) -> PowerPart | None:
    """The power part; None where the settings do not enable power."""
    return PowerPart(settings) if settings.power.enabled else None


def power_rules(settings: OperatorSettings) -> PowerRules:
    power = settings.power
    return PowerRules(
        control_delay_s=power.control_delay_s,
        stale_s=power.stale_s,
        lease_s=power.lease_s,
        burst_share=power.burst_share,
    )


@contextmanager
def serving_watts(
    settings: OperatorSettings,
    domains: Cache[OwnObject],
    caches: Caches,
    planned: PlannedPods,
    lead: Lead,
    meter: Meter,
    clocks: Clocks,
    couriers: Sequence[Courier] = (),
) -> Iterator[int]:
    """Serves agents while the block runs, in a thread of its own; yields the port.

    Raises ConfigError for keys, certificates or an address that cannot be used.
    """
    power, clock = settings.power, clocks.monotonic
    keys = MountedKeys(Path(power.keys), clock)
    tls = MountedTls(power.tls.ca, power.tls.certificate, power.tls.key, clock) if power.tls else None
    watcher = PowerWatcher(domains, caches.nodes, lambda: planned.work, frozenset(settings.dra_drivers.values()))
    metrics = PowerLoopMetrics(meter, clocks.wall() - clock())
    key_errors = _KeyErrorLog(keys)

    def on_look(loop: PowerLoop) -> None:
        metrics.publish(loop)
        key_errors.log_new()
        if tls is not None:
            tls.look()

    rules = power_rules(settings)

    def recall() -> Mapping[str, LearnedSpikes]:
        return {
            name: spikes_of(each).faded(clocks.wall() - each.time, rules.spike_memory_s)
            for name, each in learned_in(domains).items()
        }

    loop = PowerLoop(watcher.see, lead.holds, lead.epoch, keys, clock, rules, on_look, couriers, recall)
    with ExitStack() as stack:
        thread = LoopThread("watts")
        stack.callback(thread.close)
        port = thread.run(loop.listen(settings.host, power.port, tls.context if tls else None))
        thread.begin(loop.run())
        planned.loop = loop
        yield port


class _KeyErrorLog:
    """Logger of errors in the mounted keys, once per error."""

    def __init__(self, keys: MountedKeys) -> None:
        self._keys, self._logged = keys, ""

    def log_new(self) -> None:
        if self._keys.mistake != self._logged:
            self._logged = self._keys.mistake
            if self._logged:
                log.warning("the mounted keys cannot be used; the previous ones stay in use", why=self._logged)


def power_reporter(
    domains: Cache[OwnObject],
    planned: PlannedPods,
    applier: Applier,
    thread: LoopThread,
    epoch: Callable[[], int],
    identity: str,
    meter: Meter,
    clocks: Clocks,
    settle_s: float,
) -> PowerReporter:
    """The reporter of power. It writes through `applier`, in the event loop of `thread`, which is the connection's."""
    quiet = replace(applier, concurrency=AT_A_TIME)

    def uid(kind: str, name: str) -> str | None:
        found = domains.get(name) if kind == power_domain.KIND.name else None
        return found.metadata.uid if found else None

    events = Events(quiet, uid, clocks.wall, epoch, identity)
    thread.begin(events.write())
    return PowerReporter(
        domains,
        lambda: planned.loop.loop_state if planned.loop is not None else None,
        quiet.send,
        events.say,
        meter.publish_power,
        clocks.monotonic,
        clocks.wall,
        settle_s,
        planned.hours,
    )
