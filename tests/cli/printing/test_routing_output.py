"""Routing weights for gateways: fractions of all requests by the demand's histogram, and weights of an HTTPRoute."""

from typing import Any

import pytest
import yaml

from cli.verbs.routing import Backends, as_json, as_table, fractions, http_route, weights
from cluster.errors import ConfigError, TonnageError

SERVICE: dict[str, Any] = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "ModelService",
    "metadata": {"name": "chat", "namespace": "team", "uid": "u"},
    "spec": {"demand": {"inputTokens": [128, 512], "outputTokens": [64], "histogram": [[0.75], [0.25]]}},
    "status": {
        "routing": {
            "inputTokens": [128, 512],
            "outputTokens": [64],
            "weights": [
                {"gpuType": "l4", "share": [[1.0], [0.0]]},
                {"gpuType": "a100", "gpusPerInstance": 4, "capacityType": "spot", "share": [[0.0], [1.0]]},
            ],
        }
    },
}
POOLS = Backends("{service}-{type}", "Service", 8000)


def test_a_types_fraction_is_that_of_its_requests() -> None:
    """Short prompts, 75 % of the requests, all go to l4, long ones to the other."""
    assert fractions(SERVICE) == {"a100x4-spot": 0.25, "l4": 0.75}
    assert as_table(SERVICE).splitlines()[2].split() == ["l4", "75.0", "%"]


def test_an_http_route_has_a_weighted_backend_for_each_type() -> None:
    route = yaml.safe_load(http_route(SERVICE, POOLS, "infra/inference", ("chat.example.com",)))

    assert (route["apiVersion"], route["kind"]) == ("gateway.networking.k8s.io/v1", "HTTPRoute")
    assert route["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert route["spec"]["parentRefs"] == [{"name": "inference", "namespace": "infra"}]
    assert route["spec"]["hostnames"] == ["chat.example.com"]
    assert route["spec"]["rules"][0]["backendRefs"] == [
        {"name": "chat-a100x4-spot", "port": 8000, "weight": 250},
        {"name": "chat-l4", "port": 8000, "weight": 750},
    ]


def test_backends_may_be_inference_pools() -> None:
    route = yaml.safe_load(http_route(SERVICE, Backends("pool-{type}", "InferencePool", 1), "g", ()))

    first = route["spec"]["rules"][0]["backendRefs"][0]
    assert first == {
        "group": "inference.networking.k8s.io",
        "kind": "InferencePool",
        "name": "pool-a100x4-spot",
        "weight": 250,
    }


def test_weights_add_up_whatever_rounding_leaves() -> None:
    """Three thirds of 1000: 333 each, and the one that is left goes to the first."""
    assert weights({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}) == {"a": 334, "b": 333, "c": 333}


def test_a_histogram_of_other_buckets_counts_for_nothing() -> None:
    """The spec was changed since the plan: both buckets of the plan count the same."""
    changed = {**SERVICE, "spec": {"demand": {**SERVICE["spec"]["demand"], "inputTokens": [64, 512]}}}

    assert fractions(changed) == {"a100x4-spot": 0.5, "l4": 0.5}


def test_without_routing_or_with_a_wrong_pattern_nothing_is_printed() -> None:
    with pytest.raises(TonnageError, match="chat: no routing yet"):
        as_json({**SERVICE, "status": {}})
    with pytest.raises(ConfigError, match="is no pattern"):
        http_route(SERVICE, Backends("{name}", "Service", 1), "g", ())


def test_instance_types_keep_their_small_letters_as_headers() -> None:
    assert "% TO a100x4-spot" in as_table(SERVICE)


def test_pools_by_phase_have_fractions_and_routes_of_their_own() -> None:
    routing = SERVICE["status"]["routing"]
    table = [("prefill", "h100", [[1.0], [1.0]]), ("decode", "l4", [[1.0], [0.0]]), ("decode", "a100", [[0.0], [1.0]])]
    parts = [{"phase": phase, "gpuType": gpu_type, "share": share} for phase, gpu_type, share in table]
    apart = {**SERVICE, "status": {"routing": {**routing, "weights": parts}}}

    assert fractions(apart) == {"decode/a100": 0.25, "decode/l4": 0.75, "prefill/h100": 1.0}
    route = yaml.safe_load(http_route(apart, POOLS, "g", (), "decode"))
    assert route["metadata"]["name"] == "chat-routing-decode"
    assert [each["name"] for each in route["spec"]["rules"][0]["backendRefs"]] == ["chat-decode-a100", "chat-decode-l4"]
    with pytest.raises(ConfigError, match="--phase"):
        http_route(apart, POOLS, "g", ())
    with pytest.raises(ConfigError, match="--phase"):
        http_route(SERVICE, POOLS, "g", (), "decode")
