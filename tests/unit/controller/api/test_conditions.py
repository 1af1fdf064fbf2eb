"""Conditions: status, reason and transition time, as `kubectl wait` reads them."""

from cluster.plans import Reason
from controller.api.conditions import LONGEST_MESSAGE, READY, Claim, Condition, condition_of, conditions_after
from controller.api.model_service import ModelServiceStatus, RoutingStatus

NOON_S = 1_772_366_400.0  # 2026-03-01T12:00:00Z


def ready(status: str = "True", *, at_s: float = NOON_S, since: tuple[Condition, ...] = ()) -> tuple[Condition, ...]:
    match status:
        case "True" | "False" | "Unknown":
            claim: Claim = (READY, status, Reason("Because", "so it is"))
            return conditions_after(since, [claim], generation=3, at_s=at_s)
    raise AssertionError(status)


def test_a_condition_says_everything_that_kubernetes_asks_of_one() -> None:
    (said,) = ready()

    assert said.plain() == {
        "type": "Ready",
        "status": "True",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
        "reason": "Because",
        "message": "so it is",
    }


def test_a_condition_that_stays_keeps_the_time_since_when_it_holds() -> None:
    later = ready(at_s=NOON_S + 60, since=ready())

    assert later == ready()


def test_a_condition_that_turns_moves_its_time() -> None:
    (turned,) = ready("False", at_s=NOON_S + 60, since=ready())

    assert turned.plain()["lastTransitionTime"] == "2026-03-01T12:01:00Z"


def test_another_reason_for_the_same_status_does_not_move_the_time() -> None:
    (said,) = conditions_after(ready(), [(READY, "True", Reason("Other", ""))], generation=4, at_s=NOON_S + 60)

    assert (said.reason, said.observed_generation, said.last_transition_time) == ("Other", 4, NOON_S)


def test_the_other_conditions_stay_as_they_are_and_in_their_order() -> None:
    both = conditions_after(ready(), [("Planned", "True", Reason("Because", ""))], generation=3, at_s=NOON_S)

    turned = ready("False", at_s=NOON_S + 60, since=both)

    assert [each.type for each in turned] == ["Ready", "Planned"]
    assert condition_of(turned, "Planned") == condition_of(both, "Planned")


def test_a_message_too_long_for_the_api_server_is_cut() -> None:
    (said,) = conditions_after((), [(READY, "True", Reason("Because", "x" * 40_000))], generation=1, at_s=NOON_S)

    assert len(said.message) == LONGEST_MESSAGE
    assert said.message.endswith("x…")


def test_a_condition_is_read_back_as_it_was_written_and_fields_of_later_versions_are_left_alone() -> None:
    (said,) = ready()

    assert Condition.model_validate({**said.plain(), "severity": "high"}) == said


def test_a_status_is_written_without_its_empty_maps_and_lists() -> None:
    """Server-side apply makes null of those that had keys before."""
    routing = RoutingStatus(input_tokens=(1,), output_tokens=(1,), weights=())

    written = ModelServiceStatus(replicas={}, routing=routing).plain()

    assert written == {"routing": {"inputTokens": [1], "outputTokens": [1]}}
