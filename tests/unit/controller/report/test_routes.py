"""Routes of a service: weights of running types, pools, and nothing sent that was sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from cluster.demand import LengthGrid
from cluster.plans import Reason, Routing, ServicePlan
from cluster.workloads import InstanceType, Routes
from controller.api.structs import OwnObject
from controller.report.routes import removals_of, weights_of, writes_of
from controller.report.scaling_status import AGAIN_S, Published
from controller.report.service_status import ServiceFacts
from tests.builders.mix import demand, grid, service

L4, WIDE = InstanceType("l4"), InstanceType("a100", 4, spot=True)
OWNER = msgspec.json.decode(
    b'{"metadata": {"name": "chat", "namespace": "ns", "uid": "u"}, "spec": {}}', type=OwnObject
)


def facts(running: Mapping[InstanceType, int], **routes: Any) -> ServiceFacts:
    """Short prompts are three quarters of all requests."""
    made = service(routes=Routes("infra/inference", **routes))
    asked = demand(4.0, ((0.75,), (0.25,)), grid(2, 1))
    return ServiceFacts(1, running, running, makes_pods=True, undone=None, service=replace(made, demand=asked))


def plan(kinds: Mapping[InstanceType, tuple[float, float]], **rest: Any) -> ServicePlan:
    """kinds: fractions of short and of long prompts."""
    weight = np.array([[[part[row] for part in kinds.values()]] for row in (0, 1)])
    return ServicePlan("ns/chat", dict.fromkeys(kinds, 1), 1.0, Routing(grid(2, 1), tuple(kinds), weight), None, **rest)


MIX = plan({L4: (1.0, 0.0), WIDE: (0.0, 1.0)})


def test_a_route_has_a_weighted_backend_for_each_type() -> None:
    (route,) = writes_of(OWNER, MIX, facts({L4: 1, WIDE: 1}, hostnames=("chat.example.com",)))
    body: Any = route.body

    assert route.path == "/apis/gateway.networking.k8s.io/v1/namespaces/ns/httproutes/chat"
    assert body["metadata"]["ownerReferences"][0] | {"uid": "u", "controller": True} == {
        "apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelService", "name": "chat", "uid": "u", "controller": True,
    }  # fmt: skip
    assert body["spec"] == {
        "parentRefs": [{"name": "inference", "namespace": "infra"}],
        "hostnames": ["chat.example.com"],
        "rules": [{"backendRefs": [
            {"name": "chat-a100x4-spot", "port": 8000, "weight": 250},
            {"name": "chat-l4", "port": 8000, "weight": 750},
        ]}],
    }  # fmt: skip


def test_with_a_picker_each_type_is_a_pool_that_is_written_before_the_route() -> None:
    first, second, route = writes_of(OWNER, MIX, facts({L4: 1, WIDE: 1}, picker="epp"))
    pool: Any = first.body

    assert (first.path.rpartition("/")[2], second.path.rpartition("/")[2]) == ("chat-a100x4-spot", "chat-l4")
    assert pool["spec"] == {
        "selector": {"matchLabels": {"tonnage.dev/service": "chat", "tonnage.dev/instance-type": "a100x4-spot"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
    }
    body: Any = route.body
    assert [each["kind"] for each in body["spec"]["rules"][0]["backendRefs"]] == ["InferencePool"] * 2


def test_a_type_without_running_instances_gets_no_requests_while_another_has_some() -> None:
    assert weights_of(MIX, facts({L4: 1})) == {L4: 1000}
    assert weights_of(MIX, facts({})) == {L4: 750, WIDE: 250}


def test_where_phases_are_apart_requests_go_to_decode() -> None:
    prefill, decode = InstanceType("h100", phase="prefill"), InstanceType("l4", phase="decode")
    apart = plan({prefill: (1.0, 1.0), decode: (1.0, 1.0)})

    (route,) = writes_of(OWNER, apart, facts({prefill: 1, decode: 1}))
    body: Any = route.body

    assert body["spec"]["rules"][0]["backendRefs"] == [{"name": "chat-decode-l4", "port": 8000, "weight": 1000}]


def test_weights_add_up_whatever_rounding_leaves() -> None:
    kinds = {InstanceType(name): (1 / 3, 1 / 3) for name in "abc"}

    assert sorted(weights_of(plan(kinds), facts({})).values()) == [333, 333, 334]


def test_a_service_without_a_mix_keeps_its_route() -> None:
    refused = plan({L4: (1.0, 1.0)}, refusal=Reason("NoProfile", "nobody measured it"))

    assert list(writes_of(OWNER, refused, facts({L4: 1}))) == []


def test_what_was_sent_is_sent_again_only_after_a_minute_or_when_it_changed() -> None:
    routes, both, one = Published(), facts({L4: 1, WIDE: 1}), facts({L4: 1})

    def sent(state: ServiceFacts, at_s: float) -> int:
        return len(list(routes.jobs(writes_of(OWNER, MIX, state), at_s)))

    assert [sent(both, 0.0), sent(both, 1.0), sent(one, 2.0), sent(one, 3.0), sent(one, 2.0 + AGAIN_S)] == [
        1,
        0,
        1,
        0,
        1,
    ]


def test_a_mix_that_was_planned_for_measured_lengths_has_a_route() -> None:
    """Measured on four buckets of prompts: half of the shorter ones, which the spec has in one, are on each type."""
    weight = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 1.0]], [[0.0, 1.0]]])
    on = LengthGrid((50, 100, 150, 200), (50,))
    measured = ServicePlan("ns/chat", {L4: 1, WIDE: 1}, 1.0, Routing(on, (L4, WIDE), weight), None)

    # Three quarters are up to 100 tokens, half of them up to 50.
    assert weights_of(measured, facts({L4: 1, WIDE: 1})) == {L4: 375, WIDE: 625}


def removed(generation: int, known: int | None, spec: str) -> list[tuple[str, Mapping[str, str]]]:
    body = (
        f'{{"metadata": {{"name": "chat", "namespace": "ns", "uid": "u", "generation": {generation}}}, "spec": {spec}}}'
    )
    before = {} if known is None else {"observedGeneration": known}
    writes = removals_of(msgspec.json.decode(body, type=OwnObject), before)
    return [(each.path.rpartition("/")[2], each.query) for each in writes]


def test_what_was_written_is_removed_once_the_spec_has_no_routes_or_no_picker_any_more() -> None:
    of_service = {"labelSelector": "tonnage.dev/routes-of=u"}
    route, pools = ("httproutes", {**of_service, "fieldSelector": "metadata.name=chat"}), ("inferencepools", of_service)

    assert removed(3, 2, "{}") == [route, pools]
    assert removed(3, 2, '{"routes": {"gateway": "g"}}') == [pools]
    assert removed(3, 2, '{"routes": {"gateway": "g", "picker": "p"}}') == []
    assert removed(3, 3, "{}") == removed(1, None, "{}") == []
