"""Node requirements of a pod: operators of core/v1, invalid operands, and all nodes at once as one by one."""

from typing import Any, get_args

import pytest
from hypothesis import given, settings, strategies as st

from cluster.nodes import LabelMatches, NodeFilter, NodeTaint, meets, meets_terms
from cluster.workloads import Operator, PodShape, Requirement, Toleration
from tests.builders.fleet import node, world
from tests.builders.tolerations import tolerates_all


@pytest.mark.parametrize(
    ("operator", "operand", "label", "met"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "-5", "-6", True),
        ("Lt", "5", None, False),
        ("Gt", "5", "six", False),
    ],
)
def test_gt_and_lt_compare_integers(operator: str, operand: str, label: str | None, *, met: bool) -> None:
    assert meets({} if label is None else {"x": label}, Requirement("x", operator, (operand,))) is met  # type: ignore[arg-type]


@pytest.mark.parametrize("operand", ["", "much", "1.5", " 5", "5_000", "٣", "1" * 5000])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_beyond_what_is_no_integer_no_node_is(operator: str, operand: str) -> None:
    """The API server takes such pods. One of them must not end the plans of all others."""
    assert not meets({"x": "7"}, Requirement("x", operator, (operand,)))  # type: ignore[arg-type]


def test_beyond_nothing_no_node_is() -> None:
    assert not meets({"x": "7"}, Requirement("x", "Gt", ()))


VALUES = st.sampled_from(("", "1", "2", "x"))
REQUIREMENTS = st.builds(
    Requirement, st.sampled_from("ab"), st.sampled_from(get_args(Operator)), st.lists(VALUES, max_size=2).map(tuple)
)
TAINTS = st.builds(
    NodeTaint, st.sampled_from("ab"), VALUES, st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))
)
TOLERATIONS = st.builds(
    Toleration,
    st.sampled_from(("", "a", "b")),
    st.sampled_from(("Equal", "Exists")),
    VALUES,
    st.sampled_from(("", "NoSchedule", "NoExecute")),
)


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from("ab"), VALUES), st.lists(TAINTS, max_size=2), st.booleans())),
    st.lists(st.lists(REQUIREMENTS, max_size=2).map(tuple), max_size=2).map(tuple),
    st.lists(TOLERATIONS, max_size=2).map(tuple),
)
@settings(deadline=None)
def test_all_nodes_at_once_are_as_eligible_as_each_by_itself(
    fleet: list[tuple[dict[str, str], list[NodeTaint], bool]],
    terms: tuple[tuple[Requirement, ...], ...],
    tolerations: tuple[Toleration, ...],
) -> None:
    nodes = [
        node(f"n{i}", labels=labels, taints=tuple(taints), schedulable=ready)
        for i, (labels, taints, ready) in enumerate(fleet)
    ]
    shape = PodShape(node_terms=terms, tolerations=tolerations)

    together = NodeFilter(world(nodes).nodes, ()).eligible(shape).tolist()

    assert together == [
        ready and meets_terms(labels, shape) and tolerates_all(tuple(taints), tolerations)
        for labels, taints, ready in fleet
    ]


@pytest.mark.parametrize(
    ("effect", "kept_away"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)]
)
def test_every_taint_but_a_preference_keeps_pods_away(effect: str, *, kept_away: bool) -> None:
    assert tolerates_all((NodeTaint("spot", "yes", effect),), ()) is not kept_away


def test_a_toleration_of_one_effect_tolerates_no_other() -> None:
    toleration = Toleration("spot", "Exists", effect="NoSchedule")

    assert tolerates_all((NodeTaint("spot", "yes", "NoSchedule"),), (toleration,))
    assert not tolerates_all((NodeTaint("spot", "yes", "NoExecute"),), (toleration,))


def test_a_toleration_of_a_value_tolerates_no_other() -> None:
    assert tolerates_all((NodeTaint("spot", "yes"),), (Toleration("spot", "Equal", "yes"),))
    assert not tolerates_all((NodeTaint("spot", "yes"),), (Toleration("spot", "Equal", "no"),))


def test_terms_are_alternatives_and_each_is_met_whole() -> None:
    zone_a, ssd = Requirement("zone", "In", ("a",)), Requirement("disk", "In", ("ssd",))
    asked = PodShape(node_terms=((zone_a, ssd), (Requirement("zone", "In", ("b",)),)))

    assert meets_terms({"zone": "b"}, asked)
    assert meets_terms({"zone": "a", "disk": "ssd"}, asked)
    assert not meets_terms({"zone": "a", "disk": "hdd"}, asked)


def test_not_in_and_does_not_exist_hold_where_the_label_is_missing() -> None:
    assert meets({}, Requirement("zone", "NotIn", ("a",)))
    assert meets({}, Requirement("zone", "DoesNotExist"))


def test_of_all_nodes_at_once_terms_are_alternatives_and_each_is_met_whole() -> None:
    zone_a, ssd = Requirement("zone", "In", ("a",)), Requirement("disk", "In", ("ssd",))
    labels = [{"zone": "a", "disk": "ssd"}, {"zone": "a"}, {"disk": "ssd"}, {"zone": "b"}, {}]
    nodes = world([node(f"n{n}", labels=each) for n, each in enumerate(labels)]).nodes
    asked = PodShape(node_terms=((zone_a, ssd), (Requirement("zone", "In", ("b",)),)))

    assert NodeFilter(nodes, ()).eligible(asked).tolist() == [True, False, False, True, False]


def test_what_was_known_of_other_labels_is_not_used() -> None:
    ssd = PodShape(node_terms=((Requirement("disk", "In", ("ssd",)),),))
    before, after = (world([node("n", labels={"disk": disk})]).nodes for disk in ("hdd", "ssd"))
    known = NodeFilter(before, ())
    assert not known.eligible(ssd).any()

    assert NodeFilter(after, (), known.matches).eligible(ssd).all()


def test_what_no_plan_asked_again_is_forgotten() -> None:
    nodes = world([node("n", labels={"disk": "ssd"})]).nodes
    terms = ((Requirement("disk", "In", ("ssd",)),),)
    known = LabelMatches(nodes.labels)
    known.meets_terms(terms)

    known.for_next(nodes.labels).for_next(nodes.labels).meets_terms(terms)

    assert known.evaluated == 2


class Counted(dict[str, str]):
    """Labels that count how often one of them is looked up."""

    looked_up = 0

    def get(self, *key: object) -> Any:
        self.looked_up += 1
        return super().get(*key)  # type: ignore[call-overload]


def test_labels_that_no_node_has_are_looked_up_once_for_all() -> None:
    labels = (Counted(disk="ssd"), Counted())
    matches = LabelMatches(labels)

    for n in range(100):
        assert matches.meets_terms(((Requirement(f"k{n}", "DoesNotExist"),),)).all()
        assert not matches.meets_terms(((Requirement(f"k{n}", "Exists"),),)).any()
    assert matches.meets_terms(((Requirement("disk", "Exists"),),)).tolist() == [True, False]

    # Once for the labels that no node has, and once for `disk`.
    assert [each.looked_up for each in labels] == [2, 2]
