"""Registry of the metrics in the table, and the endpoint at which Prometheus scrapes it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily, Metric as Family
from prometheus_client.registry import Collector

from cluster.errors import ConfigError, Mistake
from cluster.version import VERSION
from controller.metrics import table


@dataclass(frozen=True, slots=True)
class Sample:
    """Value of a gauge."""

    name: str
    labels: tuple[str, ...]
    """Label values, in order of the metric's labels."""
    value: float


Part = Literal["cycle", "power", "scaling", "health", "sandboxes"]
PUBLISHED: Mapping[Part, tuple[table.Metric, ...]] = {
    "cycle": table.FLEET + table.SERVICES + table.AUTOSCALER,
    "power": table.POWER,
    "scaling": table.SCALING,
    "health": table.HEALTH,
    "sandboxes": table.SANDBOXES,
}
"""Gauges that are replaced together, by what publishes them: planning after a cycle, or a loop."""


class Meter:
    """Counters and histograms of a process, and the gauges of the last cycle.

    The gauges of one part of the operator are replaced together, so that a scrape never mixes two cycles, and series of
    deleted objects disappear. Thread-safe.
    """

    def __init__(self) -> None:
        # In the text format creation times would double the number of series, and Prometheus ignores them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._published = {part: _GaugeSet(metrics) for part, metrics in PUBLISHED.items()}
        for gauges in self._published.values():
            self.registry.register(gauges)
        own = table.LOOP + table.PROCESS + table.BACKGROUND + table.POWER_LOOP + table.DEMAND + table.SANDBOX_COUNTS
        self._counters = {
            m.name: Counter(m.name, m.help, m.labels, registry=self.registry) for m in _of(own, "counter")
        }
        self._gauges = {m.name: Gauge(m.name, m.help, m.labels, registry=self.registry) for m in _of(own, "gauge")}
        self._histograms = {
            m.name: Histogram(m.name, m.help, m.labels, buckets=m.buckets, registry=self.registry)
            for m in _of(own, "histogram")
        }
        self.set("tonnage_build_info", 1, VERSION)

    def publish(self, part: Part, samples: Iterable[Sample]) -> None:
        """Replace the gauges of one part; call it without samples when this replica does not lead."""
        self._published[part].samples = tuple(samples)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter of the table. With `by` 0 its series begins to exist, so that the first increment is
        visible."""
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add one observation to a histogram of the table."""
        histogram = self._histograms[name]
        (histogram.labels(*labels) if labels else histogram).observe(value)

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge of the process."""
        gauge = self._gauges[name]
        (gauge.labels(*labels) if labels else gauge).set(value)

    def foresee(self, name: str, *values: Iterable[str]) -> None:
        """Initialise a counter to 0 for every combination of these label values."""
        for labels in product(*values):
            self.count(name, *labels, by=0)


VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
WRITES = ("create", "delete", "patch", "update")
TROUBLE_CODES = ("429", "500", "503", "none")


def foresee_requests(meter: Meter) -> None:
    """Initialise the counters of failed requests to 0.

    So a failure ratio is 0 instead of missing before the first failure, and the first failure is a visible increment.
    """
    meter.foresee("tonnage_api_requests_total", VERBS, TROUBLE_CODES)


def count_request(meter: Meter, verb: str, resource: str, code: int, took_s: float) -> None:
    """Count one completed request to the Kubernetes API.

    verb: as in RBAC (`get`, `list`, `watch`, `create`, `patch`, ...). resource: with its subresource (`pods/binding`).
    code: HTTP status; 0 without a response.
    """
    meter.count("tonnage_api_requests_total", verb, str(code) if code else "none")
    if verb in WRITES:
        meter.count("tonnage_api_writes_total", resource, verb)
    if verb != "watch":
        meter.observe("tonnage_api_request_seconds", took_s, verb)


def _of(metrics: Iterable[table.Metric], kind: str) -> Iterator[table.Metric]:
    return (metric for metric in metrics if metric.kind == kind)


class _GaugeSet(Collector):
    """Gauges whose samples are one immutable tuple, which a scrape reads once."""

    def __init__(self, metrics: Iterable[table.Metric]) -> None:
        self._metrics = tuple(metrics)
        self.samples: tuple[Sample, ...] = ()

    def collect(self) -> Iterator[Family]:
        now = self.samples
        for metric in self._metrics:
            family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for sample in now:
                if sample.name == metric.name:
                    family.add_metric(sample.labels, sample.value)
            yield family


@contextmanager
def metrics_endpoint(meter: Meter, host: str, port: int) -> Iterator[int]:
    """Serve the meter while the block runs; yields the port (a free one when `port` is 0).

    It has its own thread, so that a scrape succeeds even during a long cycle. Raises ConfigError when the port cannot
    be opened.
    """
    try:
        server, thread = start_http_server(port, host, registry=meter.registry)
    except OSError as error:
        remedy = "free the port or set another one"
        raise ConfigError(Mistake(f"metrics address {host}:{port}", f"cannot be opened: {error}", remedy)) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
