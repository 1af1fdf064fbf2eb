import asyncio

import pytest

from controller.api.scaling_policy import Target
from controller.kube.discovery import ApiResource, Discovered
from controller.kube.request import KubeReadError, Query, Refusal
from controller.loops.autoscaler.loop import CustomMetrics, sample_in
from controller.loops.autoscaler.prometheus import SourceError
from controller.loops.autoscaler.readings import CustomReading
from controller.loops.autoscaler.targets import KnownKinds
from tests.clock import HandClock

NOW_S = 1_800_000_000.0
ONE = b'{"kind":"MetricValueList","items":[{"value":"1500m","timestamp":"2027-01-15T07:59:00Z"}]}'


class FakeReader:
    def __init__(self, body: bytes = ONE, refusal: Refusal | None = None) -> None:
        self._body, self._refusal = body, refusal
        self.asked: list[tuple[str, Query | None]] = []

    async def read(self, path: str, query: Query | None = None) -> bytes:
        self.asked.append((path, query))
        if self._refusal:
            raise KubeReadError("reading", self._refusal)
        return self._body


def _read(reader: FakeReader, kind: str = "Deployment") -> float:
    async def discover() -> Discovered:
        return Discovered((ApiResource("apps", "v1", "Deployment", "deployments"),))

    target = Target(apiVersion="apps/v1", kind=kind, name="chat")
    reading = CustomReading(target, "http/requests", (("tier", "gold"),), "load", 60.0)
    metrics = CustomMetrics(reader, KnownKinds(discover, HandClock(NOW_S)), HandClock(NOW_S))
    return asyncio.run(metrics.read("team-a", reading)).value


def test_the_metric_of_the_target_alone_is_read() -> None:
    reader = FakeReader()

    assert _read(reader) == 1.5
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/team-a/deployments.apps/chat/http%2Frequests"
    assert reader.asked == [(path, {"metricLabelSelector": "tier=gold"})]


def test_a_sample_is_as_old_as_the_adapter_says_and_never_from_the_future() -> None:
    assert sample_in(ONE, "load", NOW_S).at_s == 1_799_999_940.0
    assert sample_in(ONE, "load", 1000.0).at_s == 1000.0


def test_a_value_whose_adapter_sets_no_instant_is_of_now() -> None:
    # Go writes an instant that was not set as null.
    assert sample_in(b'{"items":[{"value":"3","timestamp":null}]}', "load", NOW_S).at_s == NOW_S


@pytest.mark.parametrize(
    ("body", "code"),
    [(b'{"items":[]}', "MetricNotFound"), (b'{"items":[{"value":"x"}]}', "AnswerMalformed"), (b"{", "AnswerMalformed")],
)
def test_what_is_no_value_is_an_error(body: bytes, code: str) -> None:
    with pytest.raises(SourceError) as caught:
        _read(FakeReader(body))

    assert caught.value.code == code


@pytest.mark.parametrize(("status", "code"), [(404, "MetricNotFound"), (503, "CustomMetricsUnreachable")])
def test_a_refusal_says_whether_the_metric_or_the_adapter_is_missing(status: int, code: str) -> None:
    with pytest.raises(SourceError) as caught:
        _read(FakeReader(refusal=Refusal(status, "Reason", "words")))

    assert caught.value.code == code


def test_a_kind_that_the_server_does_not_serve_has_no_metrics() -> None:
    with pytest.raises(SourceError, match="no Rollout"):
        _read(FakeReader(), kind="Rollout")
