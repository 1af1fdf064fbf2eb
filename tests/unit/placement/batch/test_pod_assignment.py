"""Scarce placements of a batch: gangs whole, and what a gang cannot use goes to others."""

import numpy as np

from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from placement.batch.assignment_table import Table, deal_by_best_fit
from placement.batch.pod_assignment import seat_pods
from placement.batch.problem import batch_of
from tests.builders.fleet import node, pod, world


def started(seen: Snapshot, table: Table) -> set[str]:
    seats, filled = seat_pods(seen, table, np.ones(len(seen.pods), dtype=np.bool_))
    assert len(seats) == int(filled.content.sum())
    return {seen.pods.names[row] for row in seats.row.tolist()}


def dealt(seen: Snapshot) -> Table:
    return deal_by_best_fit(batch_of(seen), seen.free())


def test_a_large_gang_is_not_lost_for_one_placement_that_a_small_gang_holds() -> None:
    """Seven of eight pods fit. Served first, the gang of two leaves five for the gang of six: four pods fewer start."""
    pods = [
        *(pod(f"s{i}", gpus=1, gang="small") for i in range(2)),
        *(pod(f"l{i}", gpus=1, gang="large") for i in range(6)),
    ]
    seen = world([node("a", gpus=7)], pods, gangs=[Gang("small", 2), Gang("large", 6)])

    assert started(seen, dealt(seen)) == {f"l{i}" for i in range(6)}


def test_small_gangs_start_where_a_large_one_would_waste_more() -> None:
    """Six of eleven fit: the gangs of three fill them, the gang of five would leave one empty."""
    pods = [pod(f"{g}{i}", gpus=1, gang=g) for g, size in (("a", 3), ("b", 3), ("c", 5)) for i in range(size)]
    seen = world([node("n", gpus=6)], pods, gangs=[Gang("a", 3), Gang("b", 3), Gang("c", 5)])

    assert started(seen, dealt(seen)) == {"a0", "a1", "a2", "b0", "b1", "b2"}


def test_a_gang_takes_the_resources_that_another_gang_could_not_use() -> None:
    """Neither gang is whole as dealt; on five GPUs three pods of two never fit, but four of one do."""
    pods = [
        *(pod(f"w{i}", gpus=2, gang="wide") for i in range(3)),
        *(pod(f"n{i}", gpus=1, gang="narrow") for i in range(4)),
    ]
    seen = world([node("a", gpus=5)], pods, gangs=[Gang("wide", 3), Gang("narrow", 4)])

    # Best fit deals two wide pods and one narrow one onto five GPUs: neither gang is whole.
    assert started(seen, dealt(seen)) == {f"n{i}" for i in range(4)}


def test_what_no_gang_can_use_goes_to_single_pods_of_its_priority_before_less_important_gangs() -> None:
    pods = [
        *(pod(f"g{i}", gpus=2, gang="g", priority=5) for i in range(3)),
        *(pod(f"p{i}", gpus=1, priority=5) for i in range(3)),
        *(pod(f"h{i}", gpus=1, gang="h") for i in range(2)),
    ]
    seen = world([node("a", gpus=4)], pods, gangs=[Gang("g", 3, priority=5), Gang("h", 2)])

    assert started(seen, dealt(seen)) == {"p0", "p1", "p2"}
