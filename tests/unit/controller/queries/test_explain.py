"""Explanations of single objects."""

from cluster.plans import Plan
from controller.queries.explain import PodWhy, explain
from placement.engine.packer import Packer
from placement.policies.published import BestFit
from tests.builders.fleet import daemon_pods, node, world


def test_a_pod_pinned_to_its_node_is_explained_with_that_node() -> None:
    seen = world([node("a"), node("b")], daemon_pods(["a", "b"], "d/daemon"))

    why = explain(seen, Plan(), "Pod/d/daemon-b", lambda shown: Packer(shown, BestFit()))

    assert isinstance(why, PodWhy)
    assert [why.nodes[each.node] for each in why.seats.candidates] == ["b"]
