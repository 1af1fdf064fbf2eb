"""The table of metrics, the registry that counts by it, and the endpoint that Prometheus scrapes."""

import re
from urllib.request import urlopen

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cluster.errors import ConfigError
from controller.metrics.registry import Meter, Sample, count_request, metrics_endpoint
from controller.metrics.table import METRICS, Metric


def value(meter: Meter, name: str, **labels: str) -> float | None:
    return meter.registry.get_sample_value(name, labels)


def test_a_watch_is_counted_but_not_timed() -> None:
    meter = Meter()

    count_request(meter, "watch", "pods", 200, 300.0)
    count_request(meter, "patch", "pods", 0, 2.0)

    assert value(meter, "tonnage_api_requests_total", verb="watch", code="200") == 1
    assert value(meter, "tonnage_api_requests_total", verb="patch", code="none") == 1
    assert value(meter, "tonnage_api_request_seconds_count", verb="watch") is None
    assert value(meter, "tonnage_api_request_seconds_sum", verb="patch") == 2.0


def test_writes_are_told_apart_by_what_is_written() -> None:
    meter = Meter()

    for verb, resource in (("create", "events"), ("create", "pods/binding"), ("patch", "events"), ("list", "pods")):
        count_request(meter, verb, resource, 200, 0.1)

    assert value(meter, "tonnage_api_writes_total", verb="create", resource="events") == 1
    assert value(meter, "tonnage_api_writes_total", verb="create", resource="pods/binding") == 1
    assert value(meter, "tonnage_api_writes_total", verb="list", resource="pods") is None


def test_what_is_exposed_is_what_the_table_says() -> None:
    text = generate_latest(Meter().registry).decode()

    exposed = {family.name for family in text_string_to_metric_families(text)}

    ours = {name for name in exposed if name.startswith("tonnage_")}
    assert ours == {metric.name.removesuffix("_total") for metric in METRICS}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metrics_name_says_its_unit_and_its_kind(metric: Metric) -> None:
    assert re.fullmatch(r"tonnage(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.kind != "histogram" or metric.name.endswith("_seconds")


def test_the_endpoint_answers_with_the_metrics_while_it_is_open() -> None:
    meter = Meter()
    meter.publish("cycle", [Sample("tonnage_gpus", ("A100", "free"), 1.0)])

    with metrics_endpoint(meter, "127.0.0.1", 0) as port, urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()

    assert 'tonnage_gpus{gpu_type="A100",state="free"} 1.0' in text


def test_a_port_that_is_taken_is_a_mistake_in_the_settings() -> None:
    with (
        metrics_endpoint(Meter(), "127.0.0.1", 0) as port,
        pytest.raises(ConfigError, match="cannot be opened"),
        metrics_endpoint(Meter(), "127.0.0.1", port),
    ):
        pass
