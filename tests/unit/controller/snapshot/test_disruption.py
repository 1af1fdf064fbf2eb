"""Disruption budgets: which pods they cover, and how many of those may be stopped."""

from typing import Any

import pytest

from cluster.arrays import Names
from cluster.disruption import BudgetsLeft, DisruptionBudget
from controller.api import core_v1, structs
from controller.objects.read import Read
from controller.snapshot.builder import SnapshotBuilder
from controller.snapshot.pod_rules import allowed_by


def budget(name: str = "web", selector: Any = None, generation: int = 1, **rest: Any) -> structs.BudgetObject:
    metadata = {"name": name, "namespace": "ns", "generation": generation}
    spec = {"selector": selector} if selector is not None else {}
    spec |= {key: rest.pop(key) for key in ("minAvailable", "maxUnavailable") if key in rest}
    content = {"metadata": metadata, "spec": spec, **({"status": rest} if rest else {})}
    return structs.object_from(content, structs.BudgetObject)


def pod(name: str, node: str = "a", namespace: str = "ns", **labels: str) -> Read[structs.Pod]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return Read(structs.object_from({"metadata": metadata, "spec": {"nodeName": node}}, structs.Pod), core_v1.POD)


ALL: dict[str, Any] = {}
SEEN = {"observedGeneration": 1}


def test_a_budget_covers_the_running_pods_of_its_namespace_that_its_selector_selects() -> None:
    builder = SnapshotBuilder()
    for each in (
        pod("web-0", app="web"), pod("web-1", app="web"), pod("waits", node="", app="web"),
        pod("db-0", app="db"), pod("web-0", namespace="other", app="web"),
    ):  # fmt: skip
        builder.put_pod(each.name, each)
    builder.put_budget("ns/web", budget(selector={"matchLabels": {"app": "web"}}, disruptionsAllowed=1, **SEEN))
    known = builder.build(0.0).snapshot.budgets

    assert known == (DisruptionBudget("ns/web", 1, ("ns/web-0", "ns/web-1")),)


def test_pods_that_come_and_go_and_change_their_labels_are_followed() -> None:
    builder = SnapshotBuilder()
    selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}
    builder.put_budget("ns/web", budget(selector=selector, disruptionsAllowed=0, **SEEN))
    for each in (pod("a", app="web"), pod("b", app="db"), pod("c")):
        builder.put_pod(each.name, each)
    assert builder.build(0.0).snapshot.budgets[0].pods == ("ns/a", "ns/c")

    builder.put_pod("ns/b", pod("b", app="web"))
    builder.put_pod("ns/a", None)
    assert builder.build(0.0).snapshot.budgets[0].pods == ("ns/b", "ns/c")

    builder.put_budget("ns/web", None)
    assert builder.build(0.0).snapshot.budgets == ()


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        ({"minAvailable": 3}, 1),
        ({"minAvailable": "50%"}, 1),  # of 5 pods 2.5, rounded up to 3; 4 run
        ({"maxUnavailable": 0}, 0),
        ({"maxUnavailable": 2}, 1),  # one of 5 does not run yet
        ({"maxUnavailable": "30%"}, 1),  # 1.5, rounded up to 2
        ({}, 3),
        ({"minAvailable": "many"}, 0),
    ],
)
def test_without_a_status_a_budget_allows_what_its_specification_does(written: dict[str, Any], allowed: int) -> None:
    assert allowed_by(budget(selector=ALL, **written), expected=5, healthy=4) == allowed


def test_a_budget_that_was_changed_since_its_controller_saw_it_allows_none() -> None:
    stale = budget(selector=ALL, generation=2, disruptionsAllowed=3, **SEEN)

    assert allowed_by(stale, expected=5, healthy=5) == 0
    assert allowed_by(budget(selector=ALL, disruptionsAllowed=3, **SEEN), expected=5, healthy=5) == 3


def test_a_budget_without_a_selector_covers_no_pod_and_an_empty_selector_all() -> None:
    builder = SnapshotBuilder()
    builder.put_pod("ns/a", pod("a"))
    builder.put_budget("ns/none", budget("none", disruptionsAllowed=0, **SEEN))
    builder.put_budget("ns/all", budget("all", selector=ALL, disruptionsAllowed=0, **SEEN))

    assert [each.name for each in builder.build(0.0).snapshot.budgets] == ["ns/all"]


def test_a_plan_uses_a_budget_up_and_gives_back_what_it_does_not_stop() -> None:
    names = Names(["ns/a", "ns/b", "ns/c"])
    left = BudgetsLeft((DisruptionBudget("ns/web", 1, ("ns/a", "ns/b")), DisruptionBudget("ns/c", 9, ("ns/c",))), names)
    web = left.budgets[0]

    assert left.forbidding((0,)) is None
    assert left.forbidding((0, 1)) == web
    left.count(0, stopped=True)
    assert left.forbidding((1, 2)) == web
    assert left.forbidding((0,)) is None, "it is stopped already"
    left.count(0, stopped=False)
    assert left.forbidding((1, 2)) is None


def test_a_pod_of_two_budgets_may_not_be_stopped() -> None:
    both = tuple(DisruptionBudget(name, 9, ("ns/a",)) for name in ("ns/one", "ns/two"))

    assert BudgetsLeft(both, Names(["ns/a"])).blocked() == [0]
