"""Where a pod may run in the situations that unit tests of kube-scheduler's filters examine."""

import pytest

from tests.builders.scheduling_situations import NAMESPACE, OTHER_NAMESPACE, SITUATIONS, Situation
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
