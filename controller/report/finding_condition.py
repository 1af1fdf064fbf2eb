"""Condition Found: a decider's finding in the status of the object that it is about."""

from collections.abc import Mapping
from typing import Any

from cluster.plans import Reason
from controller.api.conditions import FOUND, ConditionStatus, ObservedStatus, set_condition

Status = Mapping[str, Any]


def found_after(before: Status, finding: Reason | None, generation: int, at_s: float) -> Status:
    """The status with a decider's finding as its condition Found; False once the finding is gone, absent before any."""
    old = ObservedStatus.model_validate({key: before[key] for key in ("conditions",) if key in before})
    if finding is None and all(each.type != FOUND for each in old.conditions):
        return before
    reason = finding or Reason("NothingFound", "no decider states anything about it now")
    status: ConditionStatus = "True" if finding else "False"
    conditions = set_condition(
        old.conditions, FOUND, status, reason.code, reason.words, generation=generation, at_s=at_s
    )
    return {**before, "conditions": ObservedStatus(conditions=conditions).plain()["conditions"]}
