"""Energy in plans: a mix by what its service counts, hardware that pays for power, and requests that wait."""

import io
import json
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np
import pytest

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from controller.api.notation import rfc3339
from controller.objects.manifests import read_manifests
from controller.report.fleet_metrics import draws_of
from controller.settings import settings_from
from controller.snapshot.from_manifests import snapshot_from
from controller.snapshot.services import with_batches
from tests.builders.day_ahead import BELGIUM
from tests.builders.manifests import Object, gpu_type, node, pod, profile, service
from tests.builders.power import Device, Domain, power_table
from tests.mix_exact.comparison import decider

START_S = 1_640_991_600.0  # 1 January 2022, 0:00 in Belgium
HOUR_S = 3600.0


def seen(*objects: Object, at_s: float = 0.0) -> Snapshot:
    text = io.StringIO(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return snapshot_from(read_manifests(["-"], text), at_s=at_s).snapshot


def planned(*objects: Object, at_s: float = 0.0) -> Plan:
    return decider(settings_from({}))(seen(*objects, at_s=at_s))


def table_of(watts: float | None, rate: float = 8.0) -> dict[str, Any]:
    rates = [[rate, rate / 2], [rate / 4, rate / 8]]
    return {"throughput": [{"slo": {"tpot": "40ms"}, "requestsPerSecond": rates, "watts": watts}]}


def two_types(**spec: Any) -> list[Object]:
    """A cheap type that draws much, and one of the same speed that costs more and draws little."""
    power = spec.pop("powerPrices", [])
    return [
        gpu_type("hot", price=1.0, powerPrices=power),
        gpu_type("cool", price=1.2, powerPrices=power),
        profile("m-hot", "hot", **table_of(1000)),
        profile("m-cool", "cool", **table_of(300)),
        service(**spec),
    ]


def types_of(plan: Plan) -> set[str]:
    (each,) = plan.services
    assert each.refusal is None
    return {kind.gpu_type for kind in each.instances}


def test_dollars_alone_choose_the_cheap_type_and_energy_the_cool_one() -> None:
    # Per instance and hour: hot 1.0 + 0.1 × 1.0 = 1.1, cool 1.2 + 0.1 × 0.3 = 1.23; at 0.4: 1.4 and 1.32.
    assert types_of(planned(*two_types())) == {"hot"}
    assert types_of(planned(*two_types(objective={"kWh": 0.1}))) == {"hot"}
    assert types_of(planned(*two_types(objective={"kWh": 0.4}))) == {"cool"}


def test_carbon_counts_by_what_power_has_of_it_at_that_time() -> None:
    power = [
        {"fromTime": rfc3339(START_S), "gramsPerKwh": 50.0},
        {"fromTime": rfc3339(START_S + HOUR_S), "gramsPerKwh": 700.0},
    ]
    fleet = two_types(objective={"kgCO2": 0.5}, powerPrices=power)

    # 0.7 kWh more an hour: 0.0175 dollars at 50 g, and 0.245 at 700 g; the cool type costs 0.2 more.
    assert types_of(planned(*fleet, at_s=START_S)) == {"hot"}
    assert types_of(planned(*fleet, at_s=START_S + HOUR_S)) == {"cool"}


def test_the_cost_of_a_mix_has_its_energy_and_stays_proven() -> None:
    (mix,) = planned(*two_types(objective={"dollars": 1, "kWh": 0.4})).services

    (count,) = mix.instances.values()
    assert mix.cost_per_hour == pytest.approx(count * (1.2 + 0.4 * 0.3))
    assert mix.certificate is not None
    assert mix.certificate.gap <= 1e-9


def test_a_type_whose_draw_nobody_knows_is_not_used_where_energy_counts() -> None:
    fleet = two_types(objective={"kWh": 0.1})
    fleet[3] = profile("m-cool", "cool", **table_of(None))
    assert types_of(planned(*fleet)) == {"hot"}

    fleet[2] = profile("m-hot", "hot", **table_of(None))
    (each,) = planned(*fleet).services
    assert each.refusal is not None
    assert "watts" in each.refusal.words


def owned(name: str, watts: float) -> Object:
    made = gpu_type(name, powerPrices=[
        {"fromTime": rfc3339(START_S + n * HOUR_S), "dollarsPerKwh": price} for n, price in enumerate(BELGIUM)
    ])  # fmt: skip
    made["spec"]["pricePerHour"] = {"owned": {"capital": 8766, "years": 1, "watts": watts, "dollarsPerKwh": 0.1}}
    return made


def test_owned_hardware_pays_for_power_what_it_costs_at_that_time() -> None:
    at = [seen(owned("a100", 1000), at_s=START_S + n * HOUR_S).gpu_types[0].price_per_hour for n in (0, 17, 51)]

    # A dollar an hour of capital, and a kW: 0.082, 0.15 and -0.0018 dollars per kWh.
    assert at == pytest.approx([1.082, 1.15, 0.9982])


def test_requests_that_wait_are_planned_in_the_cheap_hours_and_pay_less_for_power() -> None:
    batch = {
        "requests": 8 * 4 * HOUR_S,
        "begin": rfc3339(START_S + 7 * HOUR_S),
        "deadline": rfc3339(START_S + 31 * HOUR_S),
        "mostPerSecond": 8.0,
    }
    demand = {"requestsPerSecond": 0, "inputTokens": [100], "outputTokens": [10], "histogram": [[1.0]], "batch": batch}
    fleet = [owned("a100", 700), profile(**table_of(700)), service(demand=demand)]

    bill, done, running = 0.0, 0.0, []
    for hour in range(7, 31):
        fleet[2]["status"] = {"batch": {"done": done, "time": rfc3339(START_S + hour * HOUR_S)}}
        snapshot = seen(*fleet, at_s=START_S + hour * HOUR_S)
        (mix,) = decider(settings_from({}))(snapshot).services
        assert mix.refusal is None
        done += snapshot.services[0].deferred_per_s * HOUR_S
        running.append(sum(mix.instances.values()))
        bill += running[-1] * 0.7 * BELGIUM[hour]

    assert done == pytest.approx(batch["requests"])
    assert running.count(0) == 20
    busy = max(running)
    assert bill <= 0.7 * sum(busy * 0.7 * BELGIUM[hour] for hour in range(7, 11))


def test_what_the_stock_lacks_is_answered_later() -> None:
    batch = {"requests": 1e6, "deadline": rfc3339(START_S + HOUR_S), "mostPerSecond": 80.0}
    demand = {"requestsPerSecond": 0, "inputTokens": [100], "outputTokens": [10], "histogram": [[1.0]], "batch": batch}
    fleet = [gpu_type(), profile(), service(demand=demand), node(gpus=4)]

    (mix,) = planned(*fleet, at_s=START_S).services

    assert mix.refusal is None
    assert sum(mix.instances.values()) == 4
    assert any(note.code == "PartOfDemand" for note in mix.notes)


def test_the_joules_of_a_token_are_the_draw_of_its_instances_over_the_tokens_of_its_demand() -> None:
    labels = {"tonnage.dev/service": "chat", "tonnage.dev/gpu-type": "a100"}
    instances = [pod(f"chat-{n}", gpus=2, labels=labels, on="n1") for n in range(2)]
    snapshot = seen(gpu_type(), profile(), service(), node("n1", gpus=8), *instances)
    table = power_table([Domain("n1", kind="node")], [Device(f"g{n}", "n1") for n in range(8)])
    readings = replace(table.readings, draw_w=np.full(8, 300.0), at_s=np.zeros(8))

    (found,) = draws_of(replace(snapshot, power=replace(table, readings=readings))).items()

    # Four of eight devices; 6 requests/s of which 5/8 have up to 10 tokens (5), and 3/8 up to 100 (55): 142.5 tokens/s.
    assert found == ("default/chat", (1200.0, pytest.approx(1200 / (6 * (0.625 * 5 + 0.375 * 55)))))
    silent = replace(readings, at_s=table.readings.at_s)
    assert draws_of(replace(snapshot, power=replace(table, readings=silent))) == {}
    assert draws_of(snapshot) == {}


def waiting(**batch: Any) -> dict[str, Any]:
    about = {"requests": 8 * 4 * HOUR_S, "deadline": rfc3339(START_S + 31 * HOUR_S), "mostPerSecond": 8.0, **batch}
    return {"requestsPerSecond": 0, "inputTokens": [100], "outputTokens": [10], "histogram": [[1.0]], "batch": about}


def test_progress_of_a_batch_with_another_deadline_does_not_count() -> None:
    done = {"done": 8 * 4 * HOUR_S, "time": rfc3339(START_S), "deadline": rfc3339(START_S + 31 * HOUR_S)}

    def asked(deadline_s: float) -> float:
        written = service(demand=waiting(deadline=rfc3339(deadline_s)))
        fleet = [gpu_type(), profile(), {**written, "status": {"batch": done}}]
        return seen(*fleet, at_s=START_S).services[0].deferred_per_s

    assert asked(START_S + 31 * HOUR_S) == 0.0
    assert asked(START_S + 32 * HOUR_S) > 0.0


def test_a_service_and_its_pools_answer_what_waits_at_one_rate() -> None:
    """Whole requests and decode run on hardware with prices of power that change, prefill on a type without."""
    fleet = [
        owned("a100", 700),
        gpu_type("b200", price=9.0),
        profile(**table_of(700)),
        profile("on-b200", "b200", **table_of(900)),
        service(demand=waiting(), phases={"prefill": {"gpuTypes": ["b200"]}, "decode": {"gpuTypes": ["a100"]}}),
    ]

    for hour in range(0, 31, 3):
        rates = [each.deferred_per_s for each in seen(*fleet, at_s=START_S + hour * HOUR_S).services]
        assert len(rates) == 3
        assert len(set(rates)) == 1


def test_a_long_series_of_prices_costs_a_service_little() -> None:
    power = [
        {"fromTime": rfc3339(START_S + n * HOUR_S), "dollarsPerKwh": BELGIUM[n % len(BELGIUM)]} for n in range(1000)
    ]
    types = [owned(name, 700) for name in ("a100", "b200", "l4")]
    for each in types:
        each["spec"]["powerPrices"] = power
    fleet = [*types, *(profile(each, each, **table_of(700)) for each in ("a100", "b200", "l4"))]
    asked = service(demand=waiting(deadline=rfc3339(START_S + 999 * HOUR_S)))
    known = seen(*fleet, *({**asked, "metadata": {"name": f"s{n}"}} for n in range(20)), at_s=START_S)

    began_s = process_time()
    with_batches(known)

    assert process_time() - began_s < 0.2  # 20 services: 0.01 s here, and 4 s with each step's price looked up alone
