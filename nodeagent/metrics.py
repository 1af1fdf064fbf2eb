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
from nodeagent.loops import FAILED
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


class Scraped(Collector):
    """Collector of the metrics that a function returns whenever Prometheus scrapes."""

    def __init__(self, metrics: Callable[[], Iterator[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics()


def agent_metrics(
    agent: NodeAgent, node: str, clock: Clock, is_linked: Callable[[], bool], *, as_dcgm: bool
) -> Iterator[Metric]:
    """State of the agent and of its devices."""
    now_s, counts, readings = clock(), agent.counts, agent.readings
    left_s = max(0.0, agent.holder.ends_s - now_s)
    seen_s = max(0.0, now_s - agent.looked_at_s)
    limits_w = {uuid: each.limit_w for uuid, each in readings.items() if each.limit_w is not None}
    # Every reason of a device whose back end reports any, so that an absent one shows as 0.
    throttled = {
        (uuid, reason): float(reason in each.throttled_by)
        for uuid, each in readings.items()
        if each.throttled_by is not None
        for reason in THROTTLES
    }
    yield _gauge("lease_remaining_seconds", "Seconds until the power lease ends; 0: none is held.", left_s)
    yield _gauge("link_up", "1 while connected to a controller.", float(is_linked()))
    yield _gauge("look_age_seconds", "Seconds since the devices were last read.", seen_s)
    if (metered := agent.metered) is not None:
        yield _gauge("node_draw_watts", "Draw of the whole node by its meter.", metered.watts)
    yield _gauge("device_allowed_watts", "Draw that the device is allowed now.", agent.allowed_w(), "device")
    yield _gauge("device_limit_watts", "Limit that is enforced now.", limits_w, "device")
    yield _gauge("device_draw_watts", "Mean draw of the last second.", agent.draw_w, "device")
    why = "1 while this reason holds the device's clocks down."
    yield _gauge("device_throttled", why, throttled, "device", "reason")
    yield _counter("looks", "Readings of the devices.", counts.looks)
    yield _counter("leases_accepted", "Power leases that were accepted.", counts.leases)
    yield _counter("floors", "Times a lease ended without renewal.", counts.floors)
    yield _counter("leases_refused", "Power leases that were refused.", _sorted(counts.refused), "code")
    yield _counter("device_errors", "Calls to devices that failed.", _sorted(counts.failed), "code")
    yield _counter("loop_failures", "Turns of the agent's own loops that failed by a bug.", _sorted(FAILED), "loop")
    for name, help_text, value in DCGM if as_dcgm else ():
        kind = UntypedMetricFamily if name in UNTYPED else GaugeMetricFamily
        family = kind(name, help_text, labels=["gpu", "UUID", "device", "modelName", "Hostname"])
        for number, (uuid, reading) in enumerate(sorted(readings.items())):
            if (shown := value(reading)) is not None and uuid in agent.facts:
                family.add_metric([str(number), uuid, f"nvidia{number}", agent.facts[uuid].model, node], shown)
        yield family


def feed_metrics(feed: HealthFeed) -> Iterator[Metric]:
    """What the health feed receives from pods, and what is not forwarded."""
    waiting_bytes = float(feed.outbox.waiting_bytes)
    yield _gauge("health_pods", "Pods with a socket for records.", float(len(feed.sockets.pods)))
    yield _gauge("health_waiting_bytes", "Bytes of records that wait to be sent.", waiting_bytes)
    yield _counter("health_dropped", "Datagrams of records that were not forwarded.", _sorted(feed.dropped), "cause")


def dcgm_metrics(exporter: DcgmExporter) -> Iterator[Metric]:
    """Readings of the node's DCGM exporter."""
    yield _counter("health_dcgm_reads", "Readings of the DCGM exporter.", exporter.reads)
    yield _counter("health_dcgm_failed_reads", "Readings of it that failed.", _sorted(exporter.failed), "code")


def probe_metrics(prober: Prober) -> Iterator[Metric]:
    """What this node has measured and served of pair probes, and whom it has cut off."""
    listener = prober.listener
    roles = {"measured": prober.measured, "served": listener.served, "cut off": listener.refused}
    yield _counter("health_probes", "Pair probes of this node.", roles, "role")
    yield _counter("health_orders_refused", "Orders for probes that were refused.", _sorted(prober.refused), "code")


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    # A copy: another thread may count meanwhile.
    return dict(sorted(dict(counts).items()))


Values = float | Mapping[str, float] | Mapping[str, int] | Mapping[tuple[str, str], float]
"""One value, or values by label; by a pair where there are two labels."""


def _gauge(name: str, help_text: str, values: Values, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"tonnage_agent_{name}", help_text, labels=labels), values)


def _counter(name: str, help_text: str, values: Values, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"tonnage_agent_{name}", help_text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    if isinstance(values, int | float):
        family.add_metric([], values)
    else:
        for key, value in values.items():
            family.add_metric([key] if isinstance(key, str) else key, value)
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
