"""Metrics of the agent: its own state, and the devices' under DCGM's names where no DCGM exporter runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from cluster.clock import Clock
from nodeagent.agent import NodeAgent
from nodeagent.health.dcgm_exporter import DcgmExporter
from nodeagent.health.feed import HealthFeed
from nodeagent.health.prober import Prober
from power.devices.backend import THROTTLES, DeviceReading

DCGM: tuple[tuple[str, str, Callable[[DeviceReading], float | None]], ...] = (
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw, watts.", lambda r: r.draw_w),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power limit that is enforced, watts.", lambda r: r.limit_w),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit that was requested, watts.", lambda r: r.requested_w),
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock, MHz.", lambda r: r.sm_clock_mhz),
    ("DCGM_FI_DEV_GPU_TEMP", "Temperature, degrees Celsius.", lambda r: r.temperature_c),
    ("DCGM_FI_DEV_GPU_UTIL", "Utilisation, percent.", lambda r: None if r.busy_share is None else 100 * r.busy_share),
    (
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Energy since the driver was loaded, millijoules.",
        lambda r: None if r.energy_j is None else 1000 * r.energy_j,
    ),
)
"""Name, help and value of the DCGM metrics that are available without DCGM; same names, labels and units."""
UNTYPED = frozenset({"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"})
"""A counter, but the client library appends `_total` to each counter, which DCGM's name lacks."""


class AgentMetrics(Collector):
    """Collector that reads the agent when Prometheus scrapes."""

    def __init__(
        self, agent: NodeAgent, node: str, clock: Clock, *, as_dcgm: bool, is_linked: Callable[[], bool]
    ) -> None:
        self._agent, self._node, self._clock, self._as_dcgm = agent, node, clock, as_dcgm
        self._is_linked = is_linked

    def collect(self) -> Iterator[Metric]:
        agent, now_s = self._agent, self._clock()
        left_s = max(0.0, agent.holder.ends_s - now_s)
        yield GaugeMetricFamily(
            "tonnage_agent_lease_remaining_seconds",
            "Seconds until the power lease ends; 0: none is held.",
            value=left_s,
        )
        yield GaugeMetricFamily(
            "tonnage_agent_link_up", "1 while connected to a controller.", value=float(self._is_linked())
        )
        yield GaugeMetricFamily(
            "tonnage_agent_look_age_seconds",
            "Seconds since the devices were last read.",
            value=max(0.0, now_s - agent.looked_at_s),
        )
        if (metered := agent.metered) is not None:
            yield GaugeMetricFamily(
                "tonnage_agent_node_draw_watts", "Draw of the whole node by its meter.", value=metered.watts
            )
        allowed = GaugeMetricFamily(
            "tonnage_agent_device_allowed_watts", "Draw that the device is allowed now.", labels=["device"]
        )
        limit = GaugeMetricFamily("tonnage_agent_device_limit_watts", "Limit that is enforced now.", labels=["device"])
        draw = GaugeMetricFamily("tonnage_agent_device_draw_watts", "Mean draw of the last second.", labels=["device"])
        for uuid, watts in self._agent.allowed_w().items():
            allowed.add_metric([uuid], watts)
        for uuid, reading in self._agent.readings.items():
            if reading.limit_w is not None:
                limit.add_metric([uuid], reading.limit_w)
        for uuid, watts in self._agent.draw_w.items():
            draw.add_metric([uuid], watts)
        yield from (allowed, limit, draw, _throttled(self._agent.readings))
        yield _counted("tonnage_agent_looks", "Readings of the devices.", agent.counts.looks)
        yield _counted("tonnage_agent_leases_accepted", "Power leases that were accepted.", agent.counts.leases)
        yield _counted("tonnage_agent_floors", "Times a lease ended without renewal.", agent.counts.floors)
        yield _by_code("tonnage_agent_leases_refused", "Power leases that were refused.", agent.counts.refused)
        yield _by_code("tonnage_agent_device_errors", "Calls to devices that failed.", agent.counts.failed)
        if self._as_dcgm:
            yield from self._dcgm()

    def _dcgm(self) -> Iterator[Metric]:
        for name, help_text, value in DCGM:
            kind = UntypedMetricFamily if name in UNTYPED else GaugeMetricFamily
            family = kind(name, help_text, labels=["gpu", "UUID", "device", "modelName", "Hostname"])
            for number, (uuid, reading) in enumerate(sorted(self._agent.readings.items())):
                if (shown := value(reading)) is not None and uuid in self._agent.facts:
                    model = self._agent.facts[uuid].model
                    family.add_metric([str(number), uuid, f"nvidia{number}", model, self._node], shown)
            yield family


class HealthFeedMetrics(Collector):
    """Collector of the health feed: what is heard from pods, and what is not forwarded."""

    def __init__(self, feed: HealthFeed) -> None:
        self._feed = feed

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tonnage_agent_health_pods", "Pods with a socket for records.", value=float(len(self._feed.sockets.pods))
        )
        yield GaugeMetricFamily(
            "tonnage_agent_health_waiting_bytes",
            "Bytes of records that wait to be sent.",
            value=float(self._feed.outbox.waiting_bytes),
        )
        dropped = CounterMetricFamily(
            "tonnage_agent_health_dropped", "Datagrams of records that were not forwarded.", labels=["cause"]
        )
        for cause, count in sorted(self._feed.dropped.items()):
            dropped.add_metric([cause], count)
        yield dropped


class DcgmMetrics(Collector):
    """Collector of the reading of the node's DCGM exporter."""

    def __init__(self, exporter: DcgmExporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[Metric]:
        yield _counted("tonnage_agent_health_dcgm_reads", "Readings of the DCGM exporter.", self._exporter.reads)
        yield _by_code(
            "tonnage_agent_health_dcgm_failed_reads", "Readings of it that failed.", dict(self._exporter.failed)
        )


class ProbeMetrics(Collector):
    """Collector of pair probes: what this node has measured and served, and whom it has cut off."""

    def __init__(self, prober: Prober) -> None:
        self._prober = prober

    def collect(self) -> Iterator[Metric]:
        listener = self._prober.listener
        family = CounterMetricFamily("tonnage_agent_health_probes", "Pair probes of this node.", labels=["role"])
        family.add_metric(["measured"], self._prober.measured)
        family.add_metric(["served"], listener.served)
        family.add_metric(["cut off"], listener.refused)
        yield family
        yield _by_code(
            "tonnage_agent_health_orders_refused", "Orders for probes that were refused.", self._prober.refused
        )


def _throttled(readings: Mapping[str, DeviceReading]) -> Metric:
    """All throttling reasons of every device whose back end reports any, so that an absent one shows as 0."""
    family = GaugeMetricFamily(
        "tonnage_agent_device_throttled",
        "1 while this reason holds the device's clocks down.",
        labels=["device", "reason"],
    )
    for uuid, reading in readings.items():
        if reading.throttled_by is not None:
            for reason in THROTTLES:
                family.add_metric([uuid, reason], float(reason in reading.throttled_by))
    return family


def _counted(name: str, help_text: str, value: float) -> Metric:
    family = CounterMetricFamily(name, help_text)
    family.add_metric([], value)
    return family


def _by_code(name: str, help_text: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=["code"])
    for code, value in sorted(values.items()):
        family.add_metric([code], value)
    return family


LATELY_S = 60.0
"""Time without a reading of the devices, or without an accepted lease, after which a probe fails: a driver may take
15 s for a call."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Logs nothing: scrapes are frequent and unremarkable."""


def serve(
    host: str, port: int, registry: CollectorRegistry, probes: Mapping[str, Callable[[], str | None]]
) -> WSGIServer:
    """Server that answers /metrics and probes until it is shut down. Raises OSError when the address is not available.

    probes: by path, each returns what is wrong, or None when all is well.
    """
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        probe = probes.get(environ.get("PATH_INFO", ""))
        if probe is None:
            scraped: Iterable[bytes] = metrics(environ, start)
            return scraped
        wrong = probe()
        start("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{wrong or 'ok'}\n".encode()]

    server = make_server(host, port, answer, _Server, handler_class=_Quiet)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def probes(agent: NodeAgent, clock: Clock) -> Mapping[str, Callable[[], str | None]]:
    """Liveness: the devices are read. Readiness: leases are accepted, so that an update with a wrong key or address
    stops at its first nodes.
    """

    def is_lately(at_s: float) -> bool:
        return clock() - at_s < LATELY_S

    def unleased() -> str:
        refused = ", ".join(f"{count} {code}" for code, count in sorted(agent.counts.refused.items()))
        return f"no lease was accepted for a minute; refused since the start: {refused or 'none'}"

    return {
        "/healthz": lambda: None if is_lately(agent.looked_at_s) else "the devices have not been read for a minute",
        "/readyz": lambda: None if is_lately(agent.leased_at_s) else unleased(),
    }
