"""The benchmark of batch planning: its cases are what they say, its check finds what is wrong, and it runs."""

import pytest

from benchmarks.plan import plan
from cluster.errors import ConfigError
from cluster.workloads import Gang
from tests.builders.fleet import node, pod, world
from tests.builders.plan_check import Seat, usd_per_hour, wrongs
from tests.builders.plan_fleets import ASKS, HeavyCase, churned, fleet, heavy_batch, odd_asks, with_batch

RACK = "topology.tonnage.dev/rack"


@pytest.mark.parametrize(
    ("seats", "word"),
    [
        ([(0, 0, 0b1), (1, 0, 0b1)], "thousandths full"),
        ([(0, 0, 0b11)], "asked 1 devices"),
        ([(0, 0, 0b100)], "asked 1 devices"),
        ([(0, 0, 0b1), (0, 0, 0b10)], "sits twice"),
        ([(2, 1, 0)], "too little CPU"),
        ([(3, 0, 0)], "1 of 2 members"),
        ([(3, 0, 0), (4, 1, 0)], "spread over"),
        ([(5, 0, 0b1)], "may not use"),
    ],
)
def test_the_check_finds_what_must_not_be(seats: list[Seat], word: str) -> None:
    nodes = [
        node("a", gpus=2, labels={RACK: "x"}),
        node("b", gpus=2, cpu_milli=4_000, labels={RACK: "y"}),
    ]
    pods = [
        *(pod(f"p{i}", gpus=1) for i in range(2)),
        pod("wide", cpu_milli=5_000),
        *(pod(f"g{i}", gang="g") for i in range(2)),
        pod("picky", gpus=1, gpu_types=("H100",)),
    ]
    seen = world(nodes, pods, gangs=[Gang("g", 2, within=RACK)])

    assert any(word in wrong for wrong in wrongs(seen, seats))


def test_a_plan_that_keeps_every_rule_is_not_found_wrong() -> None:
    seen = world([node("a", gpus=2)], [pod("p", gpus=1), pod("q", gpus=1, gpu_milli=500)], prices={"A100": 9.0})

    assert wrongs(seen, [(0, 0, 0b1), (1, 0, 0b10)]) == []
    assert usd_per_hour(seen, [(0, 0, 0b1)]) == pytest.approx(18.0)


@pytest.mark.parametrize("asks", [ASKS, odd_asks(3)], ids=("even", "odd"))
def test_churn_changes_some_pods_and_breaks_no_gang(asks: tuple[object, ...]) -> None:
    before = with_batch(fleet(60, asks), 600, 1, asks)  # type: ignore[arg-type]

    after = churned(before, 0.02, 7, asks)  # type: ignore[arg-type]

    kept = len(set(before.pods.names) & set(after.pods.names))
    assert len(after.pods) == len(before.pods)
    assert 0.9 * len(before.pods) <= kept < len(before.pods)
    members = [int((after.pods.gang == number).sum()) for number in range(len(after.gangs))]
    assert members == [gang.min_members for gang in after.gangs]


def test_no_rival_is_below_the_proven_bound() -> None:
    (row,) = plan(pods=(200,), mixes=("odd",), churns=1, rivals=("bfd",))

    assert row["cold"]["gap_pct"] >= 0
    assert row["bfd"]["usd_per_hour"] >= row["cold"]["bound_usd_per_hour"]


def test_a_mix_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="strange"):
        next(plan(mixes=("strange",)))


def test_cases_with_heavy_tails_are_whole_and_the_same_for_the_same_seed() -> None:
    case = HeavyCase(nodes=30, pods=200, classes=15, in_use_share=0.5)

    seen = heavy_batch(case, 5)

    again = heavy_batch(case, 5)
    assert seen.pods.node.tolist() == again.pods.node.tolist()
    assert (seen.free().cpu_milli >= 0).all()
    for number, gang in enumerate(seen.gangs):
        members = seen.pods.node[seen.pods.gang == number]
        assert len(members) == gang.min_members
        assert len({node >= 0 for node in members.tolist()}) == 1, "a gang runs or waits as a whole"
