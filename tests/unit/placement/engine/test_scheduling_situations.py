"""Where a pod may run in the situations that unit tests of kube-scheduler's filters examine."""

import pytest

from tests.builders.scheduling_situations import (
    IS_A,
    NAMESPACE,
    OTHER_NAMESPACE,
    SITUATIONS,
    TWO_ZONES,
    Situation,
    apart,
    container,
    near,
    node,
    pod,
    term,
    with_room,
)
from tests.controlplane.oracle.ours import allowed_by_tonnage


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_a_pod_may_run_where_kube_scheduler_lets_it(situation: Situation) -> None:
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
        for name in (NAMESPACE, OTHER_NAMESPACE)
        for labels in (situation.namespaces.get(name, {}),)
    ]
    said = allowed_by_tonnage([*namespaces, *situation.nodes, *situation.running, situation.pod])

    found = said[f"{NAMESPACE}/{situation.pod['metadata']['name']}"]
    assert "".join(sorted(found.allowed)) == situation.allowed, found.why


def test_a_pod_with_a_nominated_node_keeps_others_away_and_is_no_company_yet() -> None:
    """kube-scheduler asks its filters with and without the pods that are nominated to a node."""
    nominated = {**pod("nominated", labels="app=a"), "status": {"nominatedNodeName": "a"}}
    alone = pod("alone", affinity=apart(term("zone", IS_A)))
    together = pod("together", affinity=near(term("zone", IS_A)))

    said = allowed_by_tonnage([*TWO_ZONES, nominated, alone, together])

    assert said[f"{NAMESPACE}/alone"].allowed == {"c"}
    assert said[f"{NAMESPACE}/together"].allowed == set()


def test_a_node_whose_pods_hold_too_much_of_a_resource_takes_pods_that_ask_for_none_of_it() -> None:
    full = with_room(node("a"), cpu="2")
    holds = pod("holds", "a", containers=[container(cpu="3")])  # as after a resize in place
    asks, asks_not = (
        pod("asks", containers=[container(cpu="1m")]),
        pod("asks-not", containers=[container(memory="1Gi")]),
    )

    said = allowed_by_tonnage([full, holds, asks, asks_not])

    assert said[f"{NAMESPACE}/asks"].allowed == set()
    assert said[f"{NAMESPACE}/asks-not"].allowed == {"a"}
