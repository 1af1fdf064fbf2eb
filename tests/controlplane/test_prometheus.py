"""Presets, queries and failures against a real Prometheus that scrapes fake vLLM servers."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from autoscaler.demand.lengths import demand_from, lengths_from, shares_of
from autoscaler.demand.presets import PRESETS, VLLM, Load, Preset, load_from, quantities
from autoscaler.demand.promql import QUANTITY, Windows, combined, lengths_query, service_of
from cluster.demand import LengthGrid
from cluster.errors import BuildError
from controller.api.scaling_policy import ScalingPolicy
from controller.loops.autoscaler.loop import Collector
from controller.loops.autoscaler.measured import Measured, Sample
from controller.loops.autoscaler.prometheus import PrometheusClient, Series, SourceError
from controller.loops.autoscaler.readings import Allowed, CustomReading
from controller.metrics.registry import Meter
from controller.settings import AutoscalerSettings, PrometheusSettings
from tests.builders.fake_vllm import MODEL, FakeVllm, MetricsServer
from tests.builders.live_prometheus import LivePrometheus, Scraped
from tests.builders.prometheus_history import import_history
from tests.rigs.prometheus import prometheus_program
from tests.until import until, until_async

pytestmark = pytest.mark.controlplane
T = TypeVar("T")
WINDOWS = Windows(rate_s=5.0, lengths_s=30.0)
MAX_AGE_S = 5.0
DAY_S = 86_400
ROLES = ("requests", "inputTokens", "outputTokens", "queue")


@dataclass
class Stage:
    """Fake servers in two namespaces, and the Prometheus that scrapes them."""

    ours: FakeVllm
    theirs: FakeVllm
    prometheus: LivePrometheus

    def ask(self, work: Callable[[PrometheusClient], Coroutine[Any, Any, T]]) -> T:
        async def scenario() -> T:
            client = PrometheusClient(PrometheusSettings(url=self.prometheus.url), time.monotonic)
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(scenario())

    def load(self, namespace: str = "team-a") -> Load:
        service = service_of(VLLM, namespace, {"model_name": MODEL})
        query = combined(VLLM, service, quantities(VLLM, ROLES), WINDOWS)
        series = self.ask(lambda client: client.now(query, namespace, time.time(), MAX_AGE_S))
        measured = {each.labels[QUANTITY]: each.points[-1][1] for each in series if each.points}
        return load_from(VLLM, ROLES, measured)  # type: ignore[arg-type]

    def requests_per_s(self) -> float:
        return self.load().values.get("requests", -1.0)


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return prometheus_program()
    except BuildError as error:
        pytest.skip(f"no Prometheus: {error}")


@pytest.fixture(scope="module")
def prometheus(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePrometheus]:
    """A server that scrapes nothing."""
    server = LivePrometheus(program, tmp_path_factory.mktemp("prometheus"), [])
    server.start()
    yield server
    server.kill()


@pytest.fixture
def stage(tmp_path: Path, program: Path) -> Iterator[Stage]:
    fakes = (FakeVllm(time.monotonic, offered_per_s=4.0), FakeVllm(time.monotonic, offered_per_s=40.0, old_names=True))
    servers = [MetricsServer(fake) for fake in fakes]
    targets = [
        Scraped(server.port, {"namespace": namespace, "pod": "p"})
        for server, namespace in zip(servers, ("team-a", "team-b"), strict=True)
    ]
    prometheus = LivePrometheus(program, tmp_path, targets)
    prometheus.start()
    yield Stage(*fakes, prometheus)
    prometheus.kill()
    for server in servers:
        server.close()


def _near(value: float, expected: float) -> bool:
    return abs(value - expected) <= 0.1 * expected


def test_the_preset_measures_what_is_offered_and_its_lengths(stage: Stage) -> None:
    until(lambda: _near(stage.requests_per_s(), 4.0), "4 requests per second are measured")

    # Prompts: 0.75 × 200 + 0.25 × 1000 = 400 tokens; outputs: 0.5 × 50 + 0.5 × 100 = 75.
    load = stage.load()
    assert load.values["inputTokens"] == pytest.approx(400 * load.values["requests"])
    assert load.values["outputTokens"] == pytest.approx(75 * load.values["requests"])
    assert load.values["queue"] == 0
    # Nine times the capacity of 10 per second is offered from now on: the queue grows, and the load shows it.
    stage.ours.change(offered_per_s=90.0)
    until(lambda: _near(stage.requests_per_s(), 90.0), "queued requests are part of the load")
    assert stage.load().values["queue"] > 0
    # A restart loses the counters and the queue, and no rate is negative or huge.
    stage.ours.change(offered_per_s=4.0)
    stage.ours.restart()
    until(lambda: _near(stage.requests_per_s(), 4.0), "the rate after a restart", within_s=30)


def test_no_namespace_sees_the_load_of_another(stage: Stage) -> None:
    stage.theirs.change(capacity_per_s=100.0)
    until(lambda: _near(stage.requests_per_s(), 4.0), "4 requests per second are measured")
    until(lambda: _near(stage.load("team-b").values.get("requests", 0.0), 40.0), "those of the other namespace")
    assert stage.load("team-c").values == {}


def test_histograms_become_a_demand_on_the_grid_of_a_profile(stage: Stage) -> None:
    stage.ours.change(offered_per_s=9.0)
    service = service_of(VLLM, "team-a", {})

    def shares() -> Any:
        found = []
        for which in ("input", "output"):
            query = lengths_query(VLLM, service, which, WINDOWS)
            series = stage.ask(lambda client, query=query: client.now(query, "team-a", time.time(), MAX_AGE_S))
            buckets = {each.labels["le"]: each.points[-1][1] for each in series if each.points}
            if not buckets:
                return None
            found.append(lengths_from(buckets))
        return shares_of(*found)

    grid, share = until(shares, "30 requests were served", within_s=30)
    demand = demand_from(9.0, grid, share, LengthGrid((200, 1000, 4000), (100, 500)))

    # Prompts of 200 tokens lie in the bucket up to 200, those of 1000 in the one up to 1000; outputs up to 100.
    assert demand.share[:, 0] == pytest.approx([0.75, 0.25, 0.0], abs=0.02)
    assert demand.share[:, 1] == pytest.approx([0.0, 0.0, 0.0])
    assert demand.share.sum() == pytest.approx(1)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_prometheus_understands_every_preset(prometheus: LivePrometheus, preset: Preset) -> None:
    service = service_of(preset, "team-a", dict.fromkeys(preset.required, "chat"))
    queries = [combined(preset, service, preset.expressions, WINDOWS)]
    queries += [lengths_query(preset, service, which, WINDOWS) for which in preset.lengths]

    async def answers() -> list[tuple[Series, ...]]:
        client = PrometheusClient(PrometheusSettings(url=prometheus.url), time.monotonic)
        try:
            return [await client.now(query, "team-a", time.time(), MAX_AGE_S) for query in queries]
        finally:
            await client.close()

    # There are no such servers, so each is understood and answered with nothing: what is optional is no zero.
    assert asyncio.run(answers()) == [()] * len(queries)


def test_metrics_that_stop_are_missing_and_not_zero(stage: Stage) -> None:
    until(lambda: _near(stage.requests_per_s(), 4.0), "4 requests per second are measured")
    stage.ours.is_gone = True

    until(lambda: stage.load().values == {}, "a server that cannot be scraped has no load", within_s=30)


def test_the_history_of_days_is_read_when_a_replica_begins_to_lead(tmp_path: Path, program: Path) -> None:
    end_s = int(time.time()) // 60 * 60 - 120
    labels = {"namespace": "team-a", "pod": "p"}
    # Two days; 2 requests per second, and 20 in every twelfth hour.
    import_history(
        program, tmp_path, labels, lambda at_s: 20.0 if at_s // 3600 % 12 == 0 else 2.0, end_s - 2 * DAY_S, end_s
    )
    fake = FakeVllm(time.monotonic, offered_per_s=4.0)
    server = MetricsServer(fake)
    prometheus = LivePrometheus(program, tmp_path, [Scraped(server.port, labels)])
    prometheus.start()
    measured = Measured()

    async def scenario() -> None:
        client = PrometheusClient(PrometheusSettings(url=prometheus.url), time.monotonic)
        servers: Any = Servers(client)
        collector = Collector(
            measured, servers, servers, Allowed(prometheus.url), AutoscalerSettings(), time.time, Meter()
        )
        try:
            await until_async(lambda: "vllm:request_success" in fake.metrics() and fake.ended > 12, "a few scrapes")
            await collector.turn({"team-a/chat": _policy()})
            await collector.histories()
        finally:
            await client.close()

    try:
        asyncio.run(scenario())
    finally:
        prometheus.kill()
        server.close()
    samples = measured.take_samples("team-a/chat", "requests")
    day = [each for each in samples if each.at_s <= end_s]
    busy = [each.value for each in day if each.at_s // 3600 % 12 == 0 and each.at_s % 3600 > 120]
    quiet = [each.value for each in day if each.at_s // 3600 % 12 and each.at_s % 3600 > 120]
    assert len(day) == pytest.approx(2 * 24 * 60, abs=5)
    assert busy == pytest.approx([20.0] * len(busy), rel=0.01)
    assert quiet == pytest.approx([2.0] * len(quiet), rel=0.01)


def _policy() -> ScalingPolicy:
    return ScalingPolicy.model_validate(
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "ScalingPolicy",
            "metadata": {"name": "chat", "namespace": "team-a"},
            "spec": {
                "target": {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat"},
                "maxReplicas": 10,
                "forecast": {"history": "48h"},
                "demand": {"sources": [{"role": "requests", "prometheus": {"preset": "vllm"}}]},
            },
        }
    )


@dataclass
class Servers:
    """The one server, and no custom metrics."""

    client: PrometheusClient

    def of(self, url: str) -> PrometheusClient:
        return self.client

    async def read(self, namespace: str, reading: CustomReading) -> Sample:
        raise AssertionError("no source is a custom metric")


def test_a_killed_prometheus_is_an_error_and_keeps_the_history(stage: Stage) -> None:
    until(lambda: _near(stage.requests_per_s(), 4.0), "4 requests per second are measured")
    stage.prometheus.kill()
    killed_at_s = time.time()
    with pytest.raises(SourceError) as caught:
        stage.load()
    assert caught.value.code == "PrometheusUnreachable"

    stage.prometheus.start()
    query = combined(VLLM, service_of(VLLM, "team-a", {}), ["requests"], WINDOWS)
    series = stage.ask(lambda client: client.over(query, "team-a", killed_at_s - 60, killed_at_s, 1.0, MAX_AGE_S))

    assert len(series) == 1
    assert len(series[0].points) >= 3
    # Prometheus counts in whole milliseconds, rounded.
    assert all(at_s <= killed_at_s + 0.001 for at_s, _ in series[0].points)
    assert _near(series[0].points[-1][1], 4.0)
