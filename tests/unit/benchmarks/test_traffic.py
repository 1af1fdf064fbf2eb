"""Benchmark of gangs' traffic: rank order crosses the least, and all orders are over the same nodes."""

from benchmarks.traffic import ORDERS, traffic


def test_rank_order_crosses_as_few_uplinks_as_its_nodes_allow() -> None:
    random, packed, ordered = traffic(seeds=(1,), gangs=6, near=0.0)

    assert [random["order"], packed["order"], ordered["order"]] == list(ORDERS)
    assert ordered["uplinks_per_gang"] == ordered["uplinks_at_least"] == packed["uplinks_at_least"]
    assert float(str(random["uplinks_per_gang"])) > float(str(packed["uplinks_per_gang"]))
    assert float(str(packed["uplinks_per_gang"])) > float(str(ordered["uplinks_per_gang"]))
