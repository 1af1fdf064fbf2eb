from typing import Any, get_args

import pytest

from autoscaler.demand.presets import PRESETS
from controller.api import scaling_policy
from controller.api.scaling_policy import ScalingPolicy
from controller.loops.autoscaler.readings import (
    Allowed,
    CustomReading,
    PresetReading,
    QueryReading,
    RefusedSource,
    readings_of,
)

OWN = "http://prometheus:9090"


def _policy(*sources: dict[str, Any], kind: str = "ModelService") -> ScalingPolicy:
    return ScalingPolicy.model_validate(
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "ScalingPolicy",
            "metadata": {"name": "chat", "namespace": "team-a"},
            "spec": {
                "target": {"apiVersion": "apps/v1", "kind": kind, "name": "chat"},
                "maxReplicas": 10,
                "capacity": {"perReplica": 5},
                "demand": {"sources": list(sources)},
            },
        }
    )


def _preset(role: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "prometheus": {"preset": "vllm", **more}}


def test_the_kind_offers_every_preset() -> None:
    assert set(get_args(scaling_policy.Preset)) == set(PRESETS)


def test_roles_of_one_preset_are_one_query() -> None:
    labels = {"model_name": "llama"}
    sources = [_preset("requests", labels=labels), _preset("outputTokens", labels=labels), _preset("queue")]

    readings = readings_of(_policy(*sources), Allowed(OWN))

    assert [reading.roles for reading in readings if isinstance(reading, PresetReading)] == [
        ("requests", "outputTokens"),
        ("queue",),
    ]


def test_lengths_are_read_for_a_model_service_only() -> None:
    for kind, with_lengths in (("ModelService", True), ("Deployment", False)):
        (reading,) = readings_of(_policy(_preset("requests"), kind=kind), Allowed(OWN))
        assert isinstance(reading, PresetReading)
        assert reading.with_lengths is with_lengths


@pytest.mark.parametrize(
    ("source", "allowed", "code"),
    [
        (_preset("requests"), Allowed(), "NoPrometheus"),
        (_preset("requests", server="http://169.254.169.254"), Allowed(OWN), "ServerNotAllowed"),
        ({"prometheus": {"query": "up"}}, Allowed(OWN), "QueriesNotAllowed"),
        (_preset("requests", labels={"namespace": "team-b"}), Allowed(OWN), "LabelsInvalid"),
        ({"customMetric": {"name": "rps"}}, Allowed(OWN), "CustomMetricsNotAllowed"),
    ],
)
def test_what_the_operator_does_not_allow_is_not_asked(source: dict[str, Any], allowed: Allowed, code: str) -> None:
    (reading,) = readings_of(_policy(source), allowed)

    assert isinstance(reading, RefusedSource)
    assert reading.code == code


def test_what_the_operator_allows_is_asked() -> None:
    allowed = Allowed(OWN, ("http://other:9090",), queries=True, custom_metrics=True)
    sources = [
        {"role": "load", "prometheus": {"query": "sum(rate(x[1m]))", "server": "http://other:9090"}},
        {"role": "queue", "customMetric": {"name": "waiting"}},
        {"role": "requests", "push": {}},
    ]

    query, custom = readings_of(_policy(*sources), allowed)

    assert isinstance(query, QueryReading)
    assert query.server == "http://other:9090"
    assert isinstance(custom, CustomReading)
