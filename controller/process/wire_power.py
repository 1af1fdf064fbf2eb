"""Power in the operator's process: who serves agents, who tells of it, and what planning gets to see."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from cluster.snapshot import Snapshot
from controller.api import power_domain
from controller.kube.cache import Cache
from controller.kube.loop_thread import LoopThread
from controller.kube.sender import Applier
from controller.kube.structs import OwnObject
from controller.kube_world.observer import Caches
from controller.metrics.registry import Meter
from controller.power.agent_tls import MountedTls
from controller.power.loop import PowerLoop
from controller.power.metrics import PowerLoopMetrics
from controller.power.reporter import PowerReporter
from controller.power.watcher import POWER_DOMAINS, NodeWork, PowerWatcher, work_of
from controller.process.part import Clocks, Surroundings
from controller.report.events import AT_A_TIME, Events
from controller.settings import OperatorSettings
from power.estimation.daily_profile import DailyProfile, complete_profiles, profiles_after
from power.leases.mounted_keys import MountedKeys
from power.rules import PowerRules

log = structlog.get_logger(__name__)
LEARN_EVERY_S = 60.0
"""So often planning looks at what services draw: hours change slowly, and 60,000 pods cost milliseconds."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Whether this process leads, in which term; asked from any thread."""

    holds: Callable[[], bool]
    epoch: Callable[[], int]


class PlannedPods:
    """What passes between planning and the fast loop: pods one way, watts the other. Whole values, for any thread."""

    def __init__(self, *, learns_hours: bool = True) -> None:
        """learns_hours: whether placement is told what services draw by the hour, so that it keeps peaks apart."""
        self.work = NodeWork()
        """Of the newest snapshot; the one before while the cluster cannot be seen."""
        self.loop: PowerLoop | None = None
        """None: power is not enabled."""
        self._learns_hours = learns_hours
        self._courses: Mapping[str, DailyProfile] = {}
        """What services were seen to draw by the hour, by this leader."""
        self._learned_s = 0.0

    def probe(self) -> str | None:
        """Whether the fast loop still comes round; for the kubelet."""
        return self.loop.probe() if self.loop is not None else None

    def with_power(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the watts of the fast loop, if it runs."""
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
                self._courses = profiles_after(self._courses, snapshot, power, wanted_w)
                self._learned_s = snapshot.at_s
        return replace(snapshot, power=replace(power, courses=complete_profiles(self._courses)))


class PowerPart:
    """The power loop as a part of the operator: PowerDomains watched, agents served, headroom for planning."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._domains = Cache(POWER_DOMAINS, lambda: None)
        self._planned = PlannedPods(learns_hours=settings.power.learn_hours)

    @property
    def caches(self) -> tuple[Cache[Any], ...]:
        return (self._domains,)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        return self._planned.with_power(snapshot)

    def probe(self) -> str | None:
        return self._planned.probe()

    def start(self, around: Surroundings) -> dict[str, int]:
        """Serve agents and report; both end before the Lease is released."""
        settings, leadership, clocks = self._settings, around.leadership, around.clocks
        lead = Lead(leadership.may_write, lambda: leadership.epoch)
        serving = serving_watts(settings, self._domains, around.caches, self._planned, lead, around.meter, clocks)
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
    """The part, where power is enabled in the settings."""
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
) -> Iterator[int]:
    """Serve agents while the block runs, in a thread of its own; yields the port.

    Raises ConfigError for keys, certificates or an address that cannot be used.
    """
    power, clock = settings.power, clocks.monotonic
    keys = MountedKeys(Path(power.keys), clock)
    tls = MountedTls(power.tls.ca, power.tls.certificate, power.tls.key, clock) if power.tls else None
    watcher = PowerWatcher(domains, caches.nodes, lambda: planned.work, frozenset(settings.dra_drivers.values()))
    metrics = PowerLoopMetrics(meter, clocks.wall() - clock())
    said = _Mistakes(keys)

    def on_look(loop: PowerLoop) -> None:
        metrics.publish(loop)
        said.tell()
        if tls is not None:
            tls.look()

    loop = PowerLoop(watcher.see, lead.holds, lead.epoch, keys, clock, power_rules(settings), on_look)
    with ExitStack() as stack:
        thread = LoopThread("watts")
        stack.callback(thread.close)
        port = thread.run(loop.listen(settings.host, power.port, tls.context if tls else None))
        thread.begin(loop.run())
        planned.loop = loop
        yield port


class _Mistakes:
    """Logs once what is wrong with the keys' newest reading."""

    def __init__(self, keys: MountedKeys) -> None:
        self._keys, self._told = keys, ""

    def tell(self) -> None:
        if self._keys.mistake != self._told:
            self._told = self._keys.mistake
            if self._told:
                log.warning("the mounted keys cannot be used; those before stay", why=self._told)


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
    """Writes through `applier`, in the event loop of the connection, which is `thread`'s."""
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
    )
