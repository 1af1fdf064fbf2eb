"""The benchmark of batches on a rented fleet: its check finds what is wrong, and the price of idle nodes pays."""

import pytest

from benchmarks.plan import plan_rented
from cluster.errors import ConfigError
from cluster.workloads import Gang
from tests.builders.fleet import node, pod, world
from tests.builders.plan_check import Seat, usd_per_hour, wrongs

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


def test_the_price_of_idle_nodes_saves_nodes_and_leaves_no_pod_out() -> None:
    (row,) = plan_rented(mixes=("odd",), pods=(200,), seeds=(1,), policies=("tonnage",))

    assert row["with"]["usd_per_hour"] < 0.9 * row["without"]["usd_per_hour"]
    assert row["with"]["left_out"] == row["without"]["left_out"] == 0


def test_a_mix_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="strange"):
        next(plan_rented(mixes=("strange",)))
