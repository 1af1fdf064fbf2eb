"""Profiles of a service's own: estimates of models that nobody measured, and the memory that adapters take."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from cluster.actions import Scale
from cluster.errors import ConfigError
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.objects.catalogue import read_catalogue
from controller.objects.manifests import read_manifests
from controller.ports import Outcome
from controller.report.service_status import facts_of_services, service_status_after
from controller.settings import settings_from
from controller.snapshot.from_manifests import Observed, snapshot_from
from placement import roofline
from placement.roofline import usual_card
from tests.builders.manifests import gpu_type, profile, service
from tests.mix_exact.comparison import planned

H100 = gpu_type("h100", product="NVIDIA-H100-80GB-HBM3", price=7.5)
L4 = gpu_type("l4", product="NVIDIA-L4", price=0.7)
LLAMA_8B = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def observed(objects: list[dict[str, Any]]) -> Observed:
    return snapshot_from(read_manifests(["-"], io.StringIO("\n---\n".join(map(json.dumps, objects)))))


def plan_of(*objects: dict[str, Any]) -> tuple[Snapshot, Plan]:
    return planned(list(objects), settings_from({}))


def status_of(*objects: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
    snapshot, plan = plan_of(*objects)
    facts = facts_of_services(snapshot, plan, Outcome(), {"default/chat": 1}, lambda _: False, {})
    return dict(service_status_after(before or {}, *facts["default/chat"], 0.0))


def estimated(status: dict[str, Any]) -> tuple[str, str] | None:
    found = [(e["status"], e["message"]) for e in status["conditions"] if e["type"] == "ProfileEstimated"]
    return found[0] if found else None


def test_a_model_that_nobody_measured_is_served_at_once_from_an_estimate_that_says_so() -> None:
    status = status_of(H100, L4, service(model="never-measured"))

    assert status["wantedInstances"] > 0
    assert estimated(status) is not None
    state, words = estimated(status) or ("", "")
    assert state == "True"
    assert "16% median error" in words
    assert "assumed size of 70 billion" in words
    assert "spec.modelFacts" in words


@pytest.mark.parametrize(
    ("name", "billion"),
    [("meta-llama/Llama-3.1-8B-Instruct", 8), ("embedder-400m", 0.4), ("Mixtral-8x7B", 56), ("qwen3-30b-a3b", 30),
     ("phi-4bit", 70), ("gpt-4", 70), ("qwen2.5-0.5b", 0.5)],
)  # fmt: skip
def test_the_size_in_a_models_name_counts(name: str, billion: float) -> None:
    """4 bits are no 4 billion. An instance of the same facts, given in words, has the same throughput."""
    by_name = observed([H100, service(model=name)]).snapshot.services[0].own_profiles
    by_facts = (
        observed([H100, service(model="x", modelFacts={"billionParameters": billion})])
        .snapshot.services[0]
        .own_profiles
    )

    assert [each.gpus_per_instance for each in by_name] == [each.gpus_per_instance for each in by_facts]
    assert all((a.requests_per_s == b.requests_per_s).all() for a, b in zip(by_name, by_facts, strict=True))


def test_a_config_and_its_precision_are_facts() -> None:
    """8 billion at 16 bits fill 15 of 22 GB of an L4; at 8 bits more requests fit, and steps are shorter."""
    wide, narrow = (
        observed([L4, service(model="x", slo={"tpot": "120ms"}, modelFacts={"config": LLAMA_8B, **more})])
        for more in ({}, {"precision": "fp8"})
    )
    one, other = (each.snapshot.services[0].own_profiles[0] for each in (wide, narrow))

    assert one.cache_bytes_per_token == 2 * 2 * 8 * 128 * 32  # keys and values, 2 bytes, 8 heads of 128, 32 layers
    assert (other.requests_per_s >= one.requests_per_s).all()
    assert (other.requests_per_s > one.requests_per_s).any()


def test_a_config_that_is_none_is_a_mistake_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"spec\.modelFacts\.config.*has no hidden_size"):
        observed([H100, service(model="x", modelFacts={"config": {"num_hidden_layers": 2}})])


def test_a_measured_profile_is_never_mixed_with_estimates() -> None:
    """H100 has a data sheet, and no profile of this model, which is measured on another type: it is not used."""
    snapshot, plan = plan_of(gpu_type(), H100, profile(), service(modelFacts={"billionParameters": 8}))

    assert {kind.gpu_type for kind, _ in snapshot.profiles_of(snapshot.services[0])} == {"a100"}
    status = status_of(gpu_type(), profile(), service())
    assert estimated(status) is None
    assert plan.services[0].refusal is None


def test_the_condition_ends_once_the_model_is_measured() -> None:
    before = status_of(H100, L4, service(model="never-measured"))

    assert estimated(status_of(gpu_type(), profile(), service(), before=before)) == (
        "False",
        "all its profiles are measured",
    )


def test_a_model_that_fits_nowhere_is_refused_with_what_helps() -> None:
    """405 billion at 16 bits are 810 GB; eight L4 have 192."""
    _, plan = plan_of(L4, service(model="huge-405b"))
    (refusal,) = (each.refusal for each in plan.services)

    assert refusal is not None
    assert refusal.code == "NoProfile"
    assert "tonnage profile estimate" in refusal.words


def test_types_without_a_data_sheet_are_not_estimated() -> None:
    _, plan = plan_of(gpu_type("odd", product="ODD"), service(model="x-8b"))

    assert plan.services[0].refusal is not None
    assert "data sheet" in plan.services[0].refusal.words


def test_two_services_with_other_facts_of_one_name_have_estimates_of_their_own() -> None:
    seen = observed([
        H100,
        service("small", model="x", modelFacts={"billionParameters": 8}),
        service("large", model="x", modelFacts={"billionParameters": 70}),
    ])  # fmt: skip
    large, small = (each.own_profiles for each in seen.snapshot.services)

    assert {each.model for each in (*small, *large)} == {"x"}
    assert small[0].gpus_per_instance == 1
    assert large[0].gpus_per_instance > 1


def test_lengths_beyond_the_usual_ones_are_estimated_too() -> None:
    asked = {"requestsPerSecond": 1, "inputTokens": [100_000], "outputTokens": [4000], "histogram": [[1.0]]}
    _, plan = plan_of(H100, service(model="x-8b", demand=asked, slo={"tpot": "100ms"}))

    assert plan.services[0].refusal is None
    assert plan.services[0].instances


def test_adapters_take_memory_from_the_cache_and_so_requests_from_each_instance() -> None:
    """An L4 has 24 GiB · 0.9, less 16 GB of weights. 20 adapters of 100 MiB each take that share of the rest."""
    facts = {"modelFacts": {"billionParameters": 8}, "slo": {"tpot": "120ms"}}
    plain = observed([L4, service(model="x", **facts)]).snapshot.services[0].own_profiles[0]
    loaded = (
        observed([L4, service(model="x", adapters=[f"a{n}" for n in range(20)], adapterMemory="100Mi", **facts)])
        .snapshot.services[0]
        .own_profiles[0]
    )
    room = 24 * 2**30 * 0.9 - 2 * usual_card(8e9).parameters
    kept = 1 - 20 * 100 * 2**20 / room

    assert loaded.requests_per_s == pytest.approx(plain.requests_per_s * kept)
    assert loaded.cache_tokens == pytest.approx((plain.cache_tokens or 0) * kept)


def test_an_estimate_with_less_memory_sustains_no_less_than_its_share() -> None:
    """The rule by which adapters count: throughput is concave in the requests in flight."""
    chip, card, engine = read_catalogue(None).chip("l4"), usual_card(8e9), roofline.ENGINES["vllm"]
    assert chip is not None
    grid = roofline.grid_up_to(16384)
    whole = roofline.sustained(card, chip, engine, 1, grid, 0.12)
    for share in (0.9, 0.7, 0.4):
        weights = card.weight_bytes()
        less = replace(chip, memory_bytes=(weights + share * (chip.memory_bytes * 0.9 - weights)) / 0.9)
        cut = roofline.sustained(card, less, engine, 1, grid, 0.12)
        # A whole request less, where memory is for few of them, is more than the share.
        rounded = whole.in_flight * share - 1
        floor = whole.requests_per_s * rounded / whole.in_flight.clip(1)
        assert (cut.requests_per_s >= floor - 1e-9).all()


def test_adapters_of_a_measured_model_count_where_its_profile_has_the_memory() -> None:
    known = {"cacheTokens": 100_000, "cacheBytesPerToken": 131_072}  # 13.1 GB
    with_memory = observed([gpu_type(), profile(**known), service(adapters=["a", "b=s3://b"], adapterMemory="1Gi")])
    (base,), (own,) = with_memory.snapshot.profiles, with_memory.snapshot.services[0].own_profiles

    assert own.requests_per_s == pytest.approx(base.requests_per_s * (1 - 2 * 2**30 / (100_000 * 131_072)))
    assert [each.reason.code for each in with_memory.notes] == []
    without = observed([gpu_type(), profile(), service(adapters=["a"])])
    assert [each.reason.code for each in without.notes] == ["AdaptersNotCounted"]


def test_a_model_that_a_policy_will_measure_the_demand_of_is_estimated_without_it() -> None:
    asked = service(model="x-8b")
    del asked["spec"]["demand"]

    assert observed([H100, asked]).snapshot.services[0].own_profiles


TEMPLATE = {"spec": {"containers": [{"name": "server", "image": "example.com/server:1"}]}}


def scales(plan: Plan) -> dict[str, int]:
    return {
        kind.name: count
        for phase in plan.phases
        for step in phase.steps
        if isinstance(step.action, Scale)
        for kind, count in step.action.instances.items()
    }


def said_estimated(status: str) -> dict[str, Any]:
    return {
        "type": "ProfileEstimated",
        "status": status,
        "reason": "Estimated",
        "message": "",
        "lastTransitionTime": "2026-11-28T12:00:00Z",
    }


@pytest.mark.parametrize("now", ["True", "False"])
def test_what_an_estimate_started_goes_once_another_type_is_measured(now: str) -> None:
    status = {"replicas": {"l4": 1}, "conditions": [said_estimated(now)]}
    measured = profile("p", "h100", model="x-1b")

    _, plan = plan_of(H100, L4, measured, {**service(model="x-1b", template=TEMPLATE), "status": status})

    assert scales(plan)["l4"] == 0


@pytest.mark.parametrize("conditions", [[], [said_estimated("False")]])
def test_what_runs_by_measured_profiles_stays_where_these_are_gone(conditions: list[dict[str, Any]]) -> None:
    status = {"replicas": {"h100": 1}, "conditions": conditions}

    _, plan = plan_of(H100, L4, {**service(model="x-1b", template=TEMPLATE), "status": status})

    refusal = plan.services[0].refusal
    assert refusal is not None
    assert refusal.code == "NoProfile"
    assert scales(plan) == {}


def test_instances_of_a_model_that_a_service_has_no_more_go() -> None:
    written = service(model="x-1b", models=["y-2b"], template=TEMPLATE)
    status = {"replicas": {"z-3b/l4": 2}, "conditions": [said_estimated("True")]}

    _, plan = plan_of(H100, L4, {**written, "status": status})

    assert scales(plan)["z-3b/l4"] == 0


def test_a_status_names_the_instance_types_that_get_requests_and_no_others() -> None:
    status = status_of(H100, L4, service(model="a-8b", models=["b-8b", "c-8b"]))

    shares = [each["share"] for each in status["routing"]["weights"]]
    assert shares
    assert all(any(map(any, share)) for share in shares)


def test_a_deadline_with_a_fraction_of_a_second_keeps_its_progress() -> None:
    written = service(model="x-1b")
    written["spec"]["demand"]["batch"] = {"requests": 9, "deadline": "2026-11-28T12:00:00.5+00:00", "mostPerSecond": 5}
    done = {"done": 7.0, "time": "2026-11-28T11:00:00Z", "deadline": "2026-11-28T12:00:00Z"}

    (read,) = observed([H100, {**written, "status": {"batch": done}}]).snapshot.services

    assert read.deferred is not None
    assert read.deferred.done == 7.0


def test_a_pool_of_a_model_has_a_name_that_deployments_and_services_may_have() -> None:
    (read,) = observed([H100, service(model="Llama-3.1-8B", models=["x_1.b"])]).snapshot.services

    assert [each.pool for each in read.models] == ["llama-3-1-8b", "x-1-b"]


def test_a_pool_of_a_model_that_is_called_as_another_service_is_a_mistake() -> None:
    other = service(model="x-1b")
    other["metadata"] = {**other["metadata"], "name": "chat-y-2b"}

    with pytest.raises(ConfigError, match=r"chat-y-2b of y-2b, and so is another service"):
        observed([H100, service(model="x-1b", models=["y-2b"]), other])


def test_adapters_leave_nothing_of_a_cache_that_is_empty() -> None:
    written = profile("p", "h100", model="x-1b")
    written["spec"] |= {"cacheTokens": 0, "cacheBytesPerToken": 1000}

    (read,) = observed([H100, written, service(model="x-1b", adapters=["a"])]).snapshot.services

    assert not read.own_profiles[0].requests_per_s.any()
