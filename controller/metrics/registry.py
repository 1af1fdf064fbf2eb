"""The meter: holds the numbers of the metrics table and hands them to Prometheus when it asks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from cluster.version import VERSION
from controller.metrics.table import BATCH, BRAIN, FLEET, LOOP, POWER, POWER_LOOP, PROCESS, SERVICES, Metric


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one gauge."""

    name: str
    labels: tuple[str, ...]
    """Values in the order of the metric's labels."""
    value: float


class Meter:
    """Counters and histograms of a process, and the gauges of the last cycle.

    The gauges that describe the cluster are replaced all at once, so that a scrape never mixes two cycles and what is
    gone from the cluster is gone from here. Safe to use from several threads.
    """

    def __init__(self) -> None:
        # Prometheus ignores the creation times in its text format, and they would double the number of series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._picture, self._power = _Picture(FLEET + BATCH + SERVICES), _Picture(POWER)
        self.registry.register(self._picture)
        self.registry.register(self._power)
        own = LOOP + PROCESS + BRAIN + POWER_LOOP
        self._counters = {
            m.name: Counter(m.name, m.help, m.labels, registry=self.registry) for m in _of(own, "counter")
        }
        self._gauges = {m.name: Gauge(m.name, m.help, m.labels, registry=self.registry) for m in _of(own, "gauge")}
        self._histograms = {
            m.name: Histogram(m.name, m.help, m.labels, buckets=m.buckets, registry=self.registry)
            for m in _of(own, "histogram")
        }
        self.set("tonnage_build_info", 1, VERSION)

    def publish(self, samples: Iterable[Sample]) -> None:
        """Replace the gauges of the cluster and its services; none when this replica does not lead."""
        self._picture.samples = tuple(samples)

    def publish_power(self, samples: Iterable[Sample]) -> None:
        """The same of the gauges of power, which are told more often than cycles run."""
        self._power.samples = tuple(samples)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter of the table. `by` 0 makes its series exist, so that its first step is seen as one."""
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
        """Let a counter start at 0 for every combination of these label values."""
        for labels in product(*values):
            self.count(name, *labels, by=0)


VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
TROUBLE_CODES = ("429", "500", "503", "none")


def foresee_requests(meter: Meter) -> None:
    """Let the counters of requests that go wrong start at 0: a share of failures is then 0 before the first, instead of
    missing, and the first shows as a step."""
    meter.foresee("tonnage_api_requests_total", VERBS, TROUBLE_CODES)


def count_request(meter: Meter, verb: str, code: int, took_s: float) -> None:
    """One answered request to the Kubernetes API.

    verb: as in RBAC (`get`, `list`, `watch`, `create`, `patch`, ...). code: HTTP status; 0 when there was no answer.
    """
    meter.count("tonnage_api_requests_total", verb, str(code) if code else "none")
    if verb != "watch":
        meter.observe("tonnage_api_request_seconds", took_s, verb)


def _of(metrics: Iterable[Metric], kind: str) -> Iterator[Metric]:
    return (metric for metric in metrics if metric.kind == kind)


class _Picture(Collector):
    """The gauges of the cluster as one immutable whole, which a scrape reads once."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
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
