import re
from typing import Any

import pytest

from autoscaler.demand.presets import (
    ENVOY_GATEWAY,
    ISTIO,
    PRESETS,
    RAY_SERVE,
    SGLANG,
    TRITON,
    VLLM,
    Preset,
    load_from,
    quantities,
)
from autoscaler.demand.promql import (
    BadLabelsError,
    Windows,
    combined,
    lengths_query,
    measures,
    service_of,
    serving_query,
)

LABELS = {"triton": {"model": "ensemble"}, "istio": {"service": "chat"}, "envoyGateway": {"httproute": "chat"}}
LABELS |= {"rayServe": {"deployment": "llm"}}
EVERY = ("load", "requests", "inputTokens", "outputTokens", "queue")


def _selectors(query: str) -> list[str]:
    return re.findall(r"\{([^}]*)\}", query)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_every_series_that_a_preset_reads_is_limited_to_the_namespace(preset: Preset) -> None:
    service = service_of(preset, "team-a", LABELS.get(preset.name, {}))

    query = combined(preset, service, preset.expressions, Windows())
    query += "".join(lengths_query(preset, service, which, Windows()) for which in preset.lengths)

    assert _selectors(query)
    assert all("team-a" in selector for selector in _selectors(query))
    assert "$" not in query


@pytest.mark.parametrize("label", ["namespace", "__name__", 'x"} or up{a', "1x", ""])
def test_no_label_widens_a_query(label: str) -> None:
    with pytest.raises(BadLabelsError):
        service_of(VLLM, "team-a", {label: "team-b"})


def test_a_label_value_stays_inside_its_quotes() -> None:
    service = service_of(VLLM, "team-a", {"model_name": 'a"} or up{b="\\\n'})

    assert service.matchers == 'namespace="team-a",model_name="a\\"} or up{b=\\"\\\\\\n"'


@pytest.mark.parametrize("name", ["a|.*", "a/../b", ".*", "Übung", "a\n"])
def test_a_route_cannot_be_a_pattern(name: str) -> None:
    with pytest.raises(BadLabelsError, match="no name"):
        service_of(ENVOY_GATEWAY, "team-a", {"httproute": name})


def test_dots_of_a_route_match_only_dots() -> None:
    service = service_of(ENVOY_GATEWAY, "team-a", {"httproute": "chat.v1"})

    assert service.matchers == 'envoy_cluster_name=~"httproute/team-a/chat\\\\.v1/rule/[0-9]+"'


def test_istio_is_limited_by_the_namespace_of_the_destination() -> None:
    with pytest.raises(BadLabelsError, match="cannot be chosen"):
        service_of(ISTIO, "team-a", {"service": "chat", "destination_service_namespace": "team-b"})


@pytest.mark.parametrize("preset", [TRITON, ISTIO, ENVOY_GATEWAY, RAY_SERVE], ids=lambda preset: preset.name)
def test_a_label_without_which_requests_count_twice_is_required(preset: Preset) -> None:
    with pytest.raises(BadLabelsError, match="needs the label"):
        service_of(preset, "team-a", {})


def test_the_models_inside_an_ensemble_are_found_by_the_namespace_alone() -> None:
    service = service_of(TRITON, "team-a", {"model": "ensemble", "cluster": "eu"})

    assert service.without_model == 'namespace="team-a",cluster="eu"'


def test_what_is_needed_is_asked_and_what_shows_whether_the_servers_are_full() -> None:
    assert quantities(VLLM, ["load"]) == ("requests", "queue", "saturation")
    assert quantities(VLLM, ["requests", "outputTokens"]) == ("requests", "output_mean", "queue", "saturation")
    assert quantities(SGLANG, ["load"]) == ("requests", "queue", "saturation")
    assert quantities(ISTIO, EVERY) == ("requests",)


def test_tokens_per_second_are_those_of_the_requests_that_came() -> None:
    load = load_from(VLLM, EVERY, {"requests": 3.0, "input_mean": 200.0, "output_mean": 50.0, "queue": 4.0})

    assert load.values == {"load": 3, "requests": 3, "inputTokens": 600, "outputTokens": 150, "queue": 4}
    assert not load.is_censored  # the preset counts queued and rejected requests


@pytest.mark.parametrize("nothing", [float("nan"), float("inf"), -float("inf"), -1.0])
def test_what_is_no_number_was_not_measured(nothing: float) -> None:
    assert load_from(VLLM, ["load"], {"requests": nothing}).values == {}
    assert load_from(VLLM, ["inputTokens"], {"requests": 3.0, "input_mean": nothing}).values == {}
    assert load_from(VLLM, EVERY, {}).values == {}


def test_without_requests_there_are_no_tokens() -> None:
    assert load_from(VLLM, ["inputTokens"], {"requests": 0.0, "input_mean": float("nan")}).values == {"inputTokens": 0}


@pytest.mark.parametrize(
    ("measured", "is_censored"),
    [({"queue": 1.0}, True), ({"saturation": 0.95}, True), ({"queue": 0.0, "saturation": 0.5}, False), ({}, True)],
)
def test_a_served_rate_is_a_lower_bound_while_the_server_is_full(measured: dict[str, float], is_censored: bool) -> None:
    load = load_from(SGLANG, ["load"], {"requests": 2.0, **measured})  # type: ignore[dict-item]

    assert load.is_censored is is_censored


@pytest.mark.parametrize(
    ("measured", "is_full"),
    [
        ({"queue": 1.0}, True),
        ({"saturation": 0.95}, True),
        ({"queue": 0.0, "saturation": 0.5}, False),
        ({"queue": 0.0}, None),
        ({"saturation": 0.5}, None),
        ({}, None),
    ],
)
def test_servers_have_room_where_neither_queue_nor_cache_says_otherwise(
    measured: dict[str, float], is_full: bool | None
) -> None:
    load = load_from(VLLM, ["load"], {"requests": 2.0, **measured})  # type: ignore[dict-item]

    assert load.is_full is is_full
    assert not load.is_censored


@pytest.mark.parametrize("preset", [VLLM, RAY_SERVE], ids=lambda preset: preset.name)
def test_figures_of_replicas_are_limited_to_the_namespace_and_span_the_interval(preset: Preset) -> None:
    query = serving_query(preset, service_of(preset, "team-a", {"deployment": "d"}), Windows(rate_s=200.0))

    selectors = _selectors(query)
    assert selectors
    assert all('namespace="team-a"' in each for each in selectors)
    assert "[200000ms]" in query
    assert "offset 200000ms" in query
    assert "$" not in query


def test_only_servers_whose_latency_excludes_the_queue_are_tuned() -> None:
    # Latency with the wait before it rises when the limit falls.
    assert [name for name, preset in PRESETS.items() if measures(preset, "request")] == ["vllm", "rayServe"]
    assert [name for name, preset in PRESETS.items() if measures(preset, "token")] == ["vllm"]


def test_a_server_whose_queue_and_cache_are_not_scraped_is_full_only_near_what_its_replicas_serve() -> None:
    measured: dict[Any, float] = {"requests": 8.0}

    assert load_from(SGLANG, ["load"], measured).is_censored
    assert load_from(SGLANG, ["load"], measured, ("load", 7.9)).is_censored
    assert not load_from(SGLANG, ["load"], measured, ("load", 8.1)).is_censored
    assert load_from(SGLANG, ["load"], {**measured, "queue": 1.0}, ("load", 8.1)).is_censored
