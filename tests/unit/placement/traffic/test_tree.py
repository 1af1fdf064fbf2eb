"""The network's tree: crossings of a ring, the least that there can be, and the order of names."""

from itertools import permutations

from hypothesis import given, strategies as st

from placement.network_tree import LEVELS, Path, crossings, levels_of, natural, path_of


def test_a_ring_counts_every_domain_that_an_edge_leaves() -> None:
    a, b, far = ("s1", "l1", "n1"), ("s1", "l1", "n2"), ("s2", "l3", "n9")

    assert crossings([a]) == crossings([a, a]) == 0
    assert crossings([a, b]) == 2, "there and back, between two nodes of a leaf"
    assert crossings([a, b, far]) == 1 + 3 + 3


def test_a_missing_label_is_a_domain_of_its_own() -> None:
    assert path_of("n1", {"rack": "r1"}, ("zone", "rack")) == ("", "r1", "n1")


def test_labels_that_a_gang_names_come_below_those_that_are_known() -> None:
    assert levels_of((None, "topology.kubernetes.io/zone")) == LEVELS
    assert levels_of(("pod", "rack"))[-2:] == ("pod", "rack")


def test_names_are_in_the_order_in_which_people_count() -> None:
    names = ["w-10", "w-9", "w-2-1", "w-2", "a-11"]

    assert sorted(names, key=natural) == ["a-11", "w-2", "w-2-1", "w-9", "w-10"]


seats = st.lists(
    st.tuples(st.sampled_from("xy"), st.sampled_from("pqr"), st.sampled_from("12")), min_size=2, max_size=6
)


@given(seats)
def test_no_order_crosses_less_than_depth_first(paths: list[Path]) -> None:
    depth_first = sorted(paths, key=lambda path: tuple(map(natural, path)))

    assert crossings(depth_first) == min(crossings(order) for order in permutations(paths))
