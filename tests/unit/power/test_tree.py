"""The budget tree: watts go up every feed, twice-fed racks count on both, and what is wrong is named at once."""

from dataclasses import replace

import numpy as np
import pytest

from cluster.arrays import column
from cluster.errors import ConfigError
from cluster.power import BreakerCurve
from power.tree import tree_of
from tests.builders.power import Device, Domain, power_table

SITE = Domain("site", 2000.0)
TWICE_FED = [
    SITE,
    Domain("a", 1000.0, {"site": 1.0}),
    Domain("b", 1000.0, {"site": 1.0}),
    Domain("rack", feeds={"a": 1.0, "b": 1.0}, other_w=100.0),
    Domain("n1", feeds={"rack": 1.0}, other_w=50.0),
]


def test_a_domain_without_a_budget_groups_and_limits_nothing() -> None:
    tree = tree_of(power_table(TWICE_FED, [Device("g", "n1")]))

    assert [tree.table.domains.names[row] for row in tree.limit] == ["site", "a", "b"]


def test_a_rack_that_each_feed_must_carry_alone_counts_whole_on_both_and_once_above() -> None:
    tree = tree_of(power_table(TWICE_FED, [Device("g", "n1")]))

    # 300 W of the device, 150 W of the rack and the node besides it
    assert tree.through(np.array([300.0])).tolist() == [300.0, 300.0, 300.0]
    assert tree.other_w.tolist() == [150.0, 150.0, 150.0]


def test_a_rack_that_shares_its_feeds_counts_half_on_each_and_whole_above() -> None:
    halves = [*TWICE_FED[:3], Domain("rack", feeds={"a": 0.5, "b": 0.5}), Domain("n1", feeds={"rack": 1.0})]

    tree = tree_of(power_table(halves, [Device("g", "n1")]))

    assert tree.through(np.array([300.0])).tolist() == [300.0, 150.0, 150.0]


def test_the_worst_draw_of_a_cap_has_overshoot_fans_and_conversion_in_it() -> None:
    table = power_table(TWICE_FED, [Device("g", "n1", overshoot_share=0.1, overhead_share=0.2)])

    assert tree_of(table).burden.tolist() == pytest.approx([1.32])  # 1.1 · 1.2


def test_classes_are_served_by_rank_whatever_their_numbers() -> None:
    tree = tree_of(power_table(TWICE_FED, [Device("l", "n1"), Device("h", "n1", "high")]))

    assert tree.rank.tolist() == [1, 0]


def test_every_mistake_is_named_at_once() -> None:
    table = power_table([replace(SITE, budget_w=0.0)], [Device("g", "site", min_w=300.0, floor_w=200.0)])
    table = replace(table, curves=(BreakerCurve((0.9,), (10.0,)),))

    with pytest.raises(ConfigError) as caught:
        tree_of(table)

    assert [mistake.place for mistake in caught.value.mistakes] == ["power domain site", "device g", "breaker curve 0"]


def test_a_circle_of_feeds_is_refused() -> None:
    circle = [SITE, Domain("a", feeds={"b": 1.0}), Domain("b", feeds={"a": 1.0, "site": 1.0})]

    with pytest.raises(ConfigError, match="draws through itself"):
        tree_of(power_table(circle, []))


def test_a_reference_to_nothing_is_refused_before_anything_else() -> None:
    table = power_table([SITE], [Device("g", "site")])
    table = replace(table, devices=replace(table.devices, domain=column([7], np.int64)))

    with pytest.raises(ConfigError, match=r"devices.domain\[0\]: names row 7 of 1"):
        tree_of(table)
