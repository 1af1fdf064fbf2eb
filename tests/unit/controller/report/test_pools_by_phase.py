"""Status of a service whose prefill and decode are apart: the cost and the proof of its pools, named in a condition."""

from controller.ports import Outcome
from controller.report.service_status import facts_of_services, service_status_after
from controller.settings import settings_from
from tests.mix_exact.comparison import planned
from tests.unit.placement.mix.test_phases import fleet


def test_the_status_of_a_service_has_the_cost_and_the_words_of_its_pools() -> None:
    snapshot, plan = planned(fleet(ttft="500ms", whole=0.5), settings_from({}))
    facts = facts_of_services(snapshot, plan, Outcome(), {"default/s": 1}, lambda _: False)

    assert set(facts) == {"default/s"}
    status = service_status_after({}, *facts["default/s"], 0.0)

    assert status["costPerHour"] == sum(each.cost_per_hour for each in plan.services) > 0
    assert status["gap"] <= 0.001
    (said,) = (each["message"] for each in status["conditions"] if each["type"] == "Planned")
    assert said.startswith("prefill: ")
    assert "decode: " in said
