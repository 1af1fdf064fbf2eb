import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from controller.api.notation import rfc3339
from controller.api.scaling_policy import ReplicaCapacity, ScalingPolicy
from controller.loops.autoscaler.loop import Collector, served_by
from controller.loops.autoscaler.measured import Measured, Sample
from controller.loops.autoscaler.prometheus import Series, SourceError
from controller.loops.autoscaler.readings import Allowed, CustomReading
from controller.metrics.registry import Meter
from controller.settings import AutoscalerSettings
from tests.clock import HandClock

NAME = "team-a/chat"
HOUR_S = 3600.0


@dataclass
class FakePrometheus:
    """Answers every query with its quantities, and buckets where lengths are asked."""

    quantities: dict[str, float] = field(default_factory=lambda: {"requests": 4.0})
    plain: list[float] = field(default_factory=list)
    """Results of a policy's own query."""
    error: SourceError | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Time spans that were asked."""
    asked: int = 0
    serving: dict[str, float] = field(default_factory=lambda: {"throughput": 50.0, "replicas": 2.0})
    histories: list[tuple[str, str]] = field(default_factory=list)
    """Queries and namespaces of these time spans."""
    serving_asked: list[float] = field(default_factory=list)
    """Instants at which the replicas' figures were asked."""

    async def now(self, query: str, namespace: str, at_s: float, max_age_s: float) -> tuple[Series, ...]:
        self.asked += 1
        if self.error:
            raise self.error
        if '"throughput"' in query:
            self.serving_asked.append(at_s)
            return tuple(Series({"tonnage_quantity": name}, ((at_s, v),)) for name, v in self.serving.items())
        if "_bucket" in query:
            return tuple(Series({"le": le}, ((at_s, n),)) for le, n in [("10", 60.0), ("100", 80.0), ("+Inf", 80.0)])
        return self._at([at_s])

    async def over(
        self, query: str, namespace: str, start_s: float, end_s: float, step_s: float, max_age_s: float
    ) -> tuple[Series, ...]:
        if self.error:
            raise self.error
        self.spans.append((start_s, end_s))
        self.histories.append((query, namespace))
        return self._at([start_s, end_s])

    def _at(self, instants: list[float]) -> tuple[Series, ...]:
        named = [
            Series({"tonnage_quantity": name}, tuple((at, v) for at in instants)) for name, v in self.quantities.items()
        ]
        return (
            tuple(named) if not self.plain else tuple(Series({}, tuple((at, v) for at in instants)) for v in self.plain)
        )


@dataclass
class Stage:
    """A collector of one policy."""

    source: dict[str, Any] = field(default_factory=lambda: {"role": "requests", "prometheus": {"preset": "vllm"}})
    prometheus: FakePrometheus = field(default_factory=FakePrometheus)
    measured: Measured = field(default_factory=Measured)
    clock: HandClock = field(default_factory=lambda: HandClock(1_000_000.0))
    leads: bool = True
    is_deleted: bool = False
    mode: str = "Recommend"
    history_s: float = HOUR_S
    own_namespace: str = ""
    concurrency: dict[str, Any] | None = None
    status: dict[str, Any] = field(default_factory=dict)

    def policies(self) -> dict[str, ScalingPolicy]:
        spec = {
            "target": {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat"},
            "maxReplicas": 10,
            "mode": self.mode,
            "forecast": {"history": f"{self.history_s:.0f}s"},
            "demand": {"sources": [self.source]},
            **({"concurrency": self.concurrency} if self.concurrency else {}),
        }
        metadata = {"name": "chat", "namespace": "team-a"}
        body = {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "ScalingPolicy",
            "metadata": metadata,
            "spec": spec,
            "status": self.status,
        }
        is_read = self.leads and not self.is_deleted
        return {NAME: ScalingPolicy.model_validate(body)} if is_read else {}

    def collector(self) -> Collector:
        me: Any = self
        allowed = Allowed("http://prometheus", queries=True, custom_metrics=True, own_namespace=self.own_namespace)
        return Collector(self.measured, me, me, allowed, AutoscalerSettings(), self.clock, Meter())

    def of(self, url: str) -> FakePrometheus:
        return self.prometheus

    async def read(self, namespace: str, reading: CustomReading) -> Sample:
        return Sample(self.clock(), 7.0)

    def turns(self, *changes: Callable[[], None]) -> None:
        """One turn, and one more after each change."""

        async def scenario() -> None:
            collector = self.collector()
            for change in (lambda: None, *changes):
                change()
                await collector.turn(self.policies())
                await collector.histories()

        _run(scenario())

    def code(self, role: str) -> str:
        failure = self.measured.of(NAME).failures.get(role)  # type: ignore[call-overload]
        return failure.code if failure else ""


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_the_newest_value_is_measured_at_once_and_the_history_once() -> None:
    stage = Stage()

    stage.turns(lambda: None)

    newest = stage.measured.of(NAME).newest["requests"]
    assert (newest.at_s, newest.value) == (1_000_000.0, 4.0)
    assert stage.prometheus.spans == [(1_000_000.0 - HOUR_S, 1_000_000.0)]
    assert stage.measured.take_samples(NAME, "requests")[-1].value == 4.0


def test_a_long_history_is_read_in_parts_that_do_not_overlap() -> None:
    stage = Stage(history_s=14 * 24 * HOUR_S)

    stage.turns()

    # 14 days have 20,161 steps of a minute, and one answer at most 10,000 of them.
    spans = stage.prometheus.spans
    assert len(spans) == 3
    assert all(after[0] - before[1] == 60 for before, after in pairwise(spans))
    assert (spans[0][0], spans[-1][1]) == (1_000_000.0 - 14 * 24 * HOUR_S, 1_000_000.0)


def test_a_history_that_could_not_be_read_is_read_later() -> None:
    stage = Stage()
    stage.prometheus.error = SourceError("PrometheusUnreachable", "refused")

    stage.turns(lambda: setattr(stage.prometheus, "error", None))

    assert len(stage.prometheus.spans) == 1
    assert stage.code("requests") == ""


def test_an_outage_keeps_the_last_value_and_says_why() -> None:
    stage = Stage()

    stage.turns(lambda: setattr(stage.prometheus, "error", SourceError("PrometheusUnreachable", "refused")))

    assert stage.measured.of(NAME).newest["requests"].value == 4.0
    assert stage.code("requests") == "PrometheusUnreachable"


def test_an_empty_answer_is_a_failure_and_no_zero() -> None:
    stage = Stage()

    stage.turns(stage.prometheus.quantities.clear)

    assert stage.measured.of(NAME).newest["requests"].value == 4.0
    assert stage.code("requests") == "QueryEmpty"


def test_a_query_with_several_results_is_ambiguous() -> None:
    stage = Stage(source={"prometheus": {"query": "up"}}, prometheus=FakePrometheus(plain=[1.0, 2.0]))

    stage.turns()

    assert stage.code("load") == "QueryAmbiguous"
    assert not stage.measured.of(NAME).newest


def test_request_lengths_are_read_now_and_then() -> None:
    stage = Stage()

    stage.turns(lambda: None)

    lengths = stage.measured.of(NAME).lengths
    assert lengths is not None
    # 60 of 80 requests have at most 10 tokens.
    assert lengths.share[:, 0].sum() == pytest.approx(0.75)
    # Two turns ask for the load twice, for both histograms once.
    assert stage.prometheus.asked == 4


def test_only_the_leader_reads_and_begins_with_the_history() -> None:
    stage = Stage(leads=False)

    stage.turns(
        lambda: setattr(stage, "leads", True),
        lambda: setattr(stage, "leads", False),
        lambda: setattr(stage, "leads", True),
    )

    assert len(stage.prometheus.spans) == 2


@pytest.mark.parametrize("change", [{"is_deleted": True}, {"mode": "Off"}])
def test_a_policy_that_is_off_or_gone_is_not_read(change: dict[str, Any]) -> None:
    stage = Stage(**change)

    stage.turns()

    assert stage.prometheus.asked == 0


def test_a_custom_metric_is_measured() -> None:
    stage = Stage(source={"role": "queue", "customMetric": {"name": "waiting"}})

    stage.turns()

    assert stage.measured.of(NAME).newest["queue"].value == 7.0


def test_what_the_replicas_of_a_policy_serve_is_known_before_it_has_a_status() -> None:
    """Or the peaks of its first history, which are many times what it has between them, are taken for mistakes."""
    (chat,) = Stage(status={"currentReplicas": 3, "replicaLoad": 2.0}).policies().values()
    capacity = chat.spec.model_copy(update={"capacity": ReplicaCapacity(perReplica=5.0)})
    known, new = (Stage(status=status).policies()[NAME] for status in ({"currentReplicas": 3}, {}))

    assert served_by(chat) == 6.0
    assert served_by(known.model_copy(update={"spec": capacity})) == 15.0
    assert (served_by(new), served_by(new.model_copy(update={"spec": capacity}))) == (0.0, 5.0)


TUNED = {"max": 64, "p95": "10s", "interval": "5m"}


def test_figures_of_the_replicas_are_read_once_in_each_interval() -> None:
    stage = Stage(concurrency=TUNED)
    begin_s = stage.clock()

    # Turns at 0, 200, 300 and 400 seconds.
    stage.turns(*(partial(setattr, stage.clock, "now_s", begin_s + at_s) for at_s in (200.0, 300.0, 400.0)))

    assert stage.prometheus.serving_asked == [begin_s, begin_s + 300.0]
    serving = stage.measured.of(NAME).serving
    assert serving is not None
    assert (serving.at_s, serving.for_s) == (begin_s + 300.0, 200.0)
    assert serving.figures == {"throughput": 50.0, "replicas": 2.0}


def test_a_new_leader_waits_for_the_end_of_the_interval_that_the_status_tells_of() -> None:
    tuned = {"limit": 8, "inForce": 8, "time": rfc3339(1_000_000.0 - 100.0), "reason": "Raised"}
    stage = Stage(concurrency=TUNED, status={"concurrency": tuned})

    stage.turns(partial(setattr, stage.clock, "now_s", 1_000_200.0))

    assert stage.prometheus.serving_asked == [1_000_200.0]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"role": "requests", "prometheus": {"preset": "sglang"}}, "NotMeasured"),
        ({"role": "requests", "push": {}}, "NotMeasured"),
        ({"role": "requests", "prometheus": {"preset": "vllm", "labels": {"namespace": "x"}}}, "LabelsInvalid"),
        ({"role": "requests", "prometheus": {"preset": "vllm", "server": "http://other"}}, "ServerNotAllowed"),
    ],
)
def test_a_policy_whose_replicas_cannot_be_measured_learns_why(source: dict[str, Any], problem: str) -> None:
    stage = Stage(source=source, concurrency=TUNED)

    stage.turns()

    assert stage.measured.of(NAME).serving_problem.startswith(f"{problem}: ")


def test_figures_without_a_result_or_an_answer_are_a_problem() -> None:
    stage = Stage(concurrency=TUNED)
    stage.prometheus.serving.clear()
    stage.turns()
    assert stage.measured.of(NAME).serving_problem.startswith("QueryEmpty: ")

    stage.prometheus.error = SourceError("PrometheusUnreachable", "no answer")
    stage.turns()
    assert stage.measured.of(NAME).serving_problem == "PrometheusUnreachable: no answer"


@pytest.mark.parametrize("source", [{"push": {}}, {"customMetric": {"name": "rps"}}])
def test_the_history_of_a_load_without_a_store_is_what_the_operator_published_of_it(source: dict[str, Any]) -> None:
    stage = Stage(source={"role": "requests", "maxAge": "90s", **source}, own_namespace="tonnage-system")
    stage.prometheus.plain = [7.0]

    stage.turns(lambda: None)

    where = '{namespace="tonnage-system",policy="team-a/chat"}'
    query = f"max(tonnage_scaling_load{where} and tonnage_scaling_sample_age_seconds{where} < 90)"
    assert stage.prometheus.histories == [(query, "tonnage-system")]  # once
    assert {each.value for each in stage.measured.take_samples(NAME, "requests")} == {7.0}


@pytest.mark.parametrize("stage", [Stage(source={"push": {}}), Stage(own_namespace="tonnage-system", mode="Off")])
def test_nothing_is_asked_of_it_where_the_operators_namespace_is_not_known_or_the_policy_is_off(stage: Stage) -> None:
    stage.turns()

    assert not stage.prometheus.histories
