"""What holds for every mix, whatever the question."""

import math
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

from cluster.plans import Reason
from cluster.workloads import InstanceType, ModelService, Requirement
from placement.budget import stopped
from placement.mix.feasibility import violations
from placement.mix.heuristics import best_single_type
from placement.mix.optimizer import answer_mix
from placement.mix.planner import MixSettings, plan_mix
from placement.mix.problem import MixAnswer, MixQuestion, mix_cost, total_cost
from tests.builders.fleet import node, world
from tests.builders.mix import ample, need, profile, question, service
from tests.rigs.textbook_mix import solve_textbook

PRICES = st.sampled_from([0.7, 1.01, 1.5, 3.67, 7.516])
THROUGHPUTS = st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0, 3.5, 8.0])


@st.composite
def questions(draw: Any, needs: int = 2) -> MixQuestion:
    """Up to two services, three types and four buckets; small enough for every solver."""
    types = draw(st.integers(1, 3))
    prices = [draw(PRICES) for _ in range(types)]
    asked = []
    for k in range(draw(st.integers(1, needs))):
        columns = draw(st.integers(1, 4))
        tables = [[[draw(THROUGHPUTS) for _ in range(columns)]] for _ in range(types)]
        weights = np.array([draw(st.integers(0, 3)) for _ in range(columns)], dtype=np.float64) + 0.01
        asked.append(
            need(
                {f"g{g}": (prices[g], tables[g]) for g in range(types)},
                draw(st.sampled_from([0.5, 2.0, 7.0])),
                (weights / weights.sum())[None, :].tolist(),
                slice_factor=draw(st.sampled_from([1, 2, 4, None])),
                headroom_share=draw(st.sampled_from([None, 0.0, 0.2])),
                service=f"ns/{k}",
            )
        )
    stock = {f"g{g}": draw(st.integers(0, 12)) for g in range(types) if draw(st.booleans())}
    return question(*asked, stock=stock)


MANY = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(questions())
def test_an_answer_is_feasible_and_lies_above_its_bound(asked: MixQuestion) -> None:
    answer = answer_mix(asked, ample())

    if isinstance(answer, MixAnswer):
        assert violations(asked, answer.mixes) == ()
        assert answer.cost_per_hour == total_cost(asked, answer.mixes)
        assert answer.certificate.bound <= answer.certificate.objective


@MANY
@given(questions(needs=1))
def test_a_mix_is_never_dearer_than_the_best_single_type(asked: MixQuestion) -> None:
    single = best_single_type(asked.needs[0], asked.stock)
    answer = answer_mix(asked, ample())

    if single is not None:
        assert isinstance(answer, MixAnswer)
        assert answer.cost_per_hour <= mix_cost(asked.needs[0], single) + 1e-9


@settings(MANY, max_examples=40)
@given(questions(needs=1))
def test_the_counted_model_costs_what_the_textbook_costs(asked: MixQuestion) -> None:
    (wanted,) = asked.needs
    if wanted.headroom_share is None or wanted.slice_factor is None:
        return
    answer = answer_mix(asked, ample())
    if isinstance(answer, Reason) and answer.code == "BucketUnserved":
        return

    textbook = solve_textbook(asked, limit_s=20, clock=stopped)

    if isinstance(answer, Reason):
        assert textbook.cost_per_hour is None
    else:
        assert textbook.cost_per_hour is not None
        assert abs(answer.cost_per_hour - textbook.cost_per_hour) < 1e-6


@settings(MANY, max_examples=40)
@given(
    rates=st.lists(st.floats(0.1, 20), min_size=1, max_size=3),
    tables=st.lists(st.tuples(THROUGHPUTS, THROUGHPUTS), min_size=1, max_size=3),
    inventory=st.lists(st.one_of(st.none(), st.integers(0, 30)), min_size=3, max_size=3),
)
def test_the_second_plan_of_an_obeying_world_changes_nothing(
    rates: list[float],
    tables: list[tuple[float, float]],
    inventory: list[int | None],
) -> None:
    profiles = [profile(f"g{g}", (row,)) for g, row in enumerate(tables)]
    services = [
        service(f"ns/{n}", rate, ((0.3, 0.7),), headroom_share=None if n % 2 else 0.1) for n, rate in enumerate(rates)
    ]
    prices = {f"g{g}": 1.0 + 0.7 * g for g in range(len(tables))}
    snapshot = world([], services=services, profiles=profiles, prices=prices)
    types = tuple(
        type(t)(t.name, t.memory_bytes, t.price_per_hour, None, inventory[g]) for g, t in enumerate(snapshot.gpu_types)
    )
    terms = MixSettings(explain=False)
    limited = type(snapshot)(
        at_s=0.0,
        gpu_types=types,
        nodes=snapshot.nodes,
        pods=snapshot.pods,
        services=snapshot.services,
        profiles=snapshot.profiles,
    )

    first = plan_mix(limited, ample(), terms)
    second = plan_mix(limited.after(first.actions), ample(), terms)

    assert second.actions == ()


@MANY
@given(st.data())
def test_instances_of_services_kept_to_some_nodes_all_find_a_device(data: Any) -> None:
    zones = "abcd"
    nodes = [node(zone, gpus=data.draw(st.integers(0, 3)), labels={"zone": zone}) for zone in zones]
    subsets = st.sets(st.sampled_from(zones), min_size=1).map(lambda chosen: tuple(sorted(chosen)))
    services = [
        service(
            f"ns/{k}",
            data.draw(st.sampled_from([0.5, 1.0, 2.0, 3.0])),
            node_terms=((Requirement("zone", "In", data.draw(subsets)),),),
        )
        for k in range(data.draw(st.integers(1, 4)))
    ]
    snapshot = world(nodes, services=services, profiles=[profile("A100", [[1.0]])], prices={"A100": 1.0})

    plan = plan_mix(snapshot, ample(), MixSettings(explain=False))

    wanted = [
        s for s, p in zip(services, plan.services, strict=True) for _ in range(p.instances.get(InstanceType("A100"), 0))
    ]
    devices = [each.labels["zone"] for each in nodes for _ in range(each.gpus)]
    assert _matched(wanted, devices) == len(wanted)
    refused = [s for s, p in zip(services, plan.services, strict=True) if p.refusal]
    for one in refused:
        # Each could not have been served beside those that are: nobody is refused for nothing.
        more = [*wanted, *[one] * math.ceil(one.demand.rate_per_s)]  # type: ignore[union-attr]
        assert _matched(more, devices) < len(more)


def _matched(wanted: list[ModelService], devices: list[str]) -> int:
    """How many of these find a device in one of their zones, at most (augmenting paths)."""
    holder: dict[int, int] = {}

    def placed(one: int, tried: set[int]) -> bool:
        for device, zone in enumerate(devices):
            if zone in wanted[one].node_terms[0][0].values and device not in tried:
                tried.add(device)
                if device not in holder or placed(holder[device], tried):
                    holder[device] = one
                    return True
        return False

    return sum(placed(one, set()) for one in range(len(wanted)))
