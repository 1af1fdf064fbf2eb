"""What is said of a service whose prefill and decode are apart: its pools are part of its own status and Events."""

from cluster.actions import Scale
from cluster.plans import Reason, Step
from controller.ports import Outcome
from controller.report.events import decisions_of, of_whole_services
from controller.report.service_status import facts_of_services, service_status_after
from controller.settings import settings_from
from tests.mix_exact.comparison import planned
from tests.unit.placement.mix.test_phases import fleet


def test_the_status_of_a_service_has_the_instances_the_cost_and_the_routing_of_its_pools() -> None:
    snapshot, plan = planned(fleet(ttft="500ms", whole=0.5), settings_from({}))
    facts = facts_of_services(snapshot, plan, Outcome(), {"default/s": 1}, lambda _: False, {})

    assert set(facts) == {"default/s"}
    status = service_status_after({}, *facts["default/s"], 0.0)

    assert status["costPerHour"] == sum(each.cost_per_hour for each in plan.services) > 0
    assert status["gap"] <= 0.001
    assert status["mix"] == {"decode/cheap": 3, "prefill/dear": 2}
    (said,) = (each["message"] for each in status["conditions"] if each["type"] == "Planned")
    assert said == "3 × decode/cheap, 2 × prefill/dear at 11.00 $/h"
    weights = {(each["phase"], each["gpuType"]): each["share"] for each in status["routing"]["weights"]}
    assert weights == {("prefill", "dear"): [[1]], ("decode", "cheap"): [[1]]}


def test_what_is_done_about_a_pool_is_said_of_its_service() -> None:
    snapshot, plan = planned(fleet(ttft="500ms", whole=0.5), settings_from({}))
    done = tuple(Step(Scale(each.service, each.instances), Reason("CheapestMix", "")) for each in plan.services)
    said = of_whole_services(decisions_of(plan, Outcome(done)), snapshot)

    assert {each.name for each in said if each.action == "Scaling"} == {"default/s"}
