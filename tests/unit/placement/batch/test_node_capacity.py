"""Capacity by class: as many pods as fit can be dealt, device by device."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cluster.capacity import Free
from placement.batch.assignment_table import Table, deal
from placement.batch.column_generation import dealt_pattern
from placement.batch.problem import batch_of, device_counts
from tests.builders.fleet import GIB, node, pod, shape, world


def free(*devices: int, cpu_milli: int = 64_000) -> Free:
    return Free(np.array([cpu_milli]), np.array([512 * GIB]), np.array([devices], dtype=np.int64))


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    st.integers(1, 3),
    st.sampled_from((100, 250, 300, 500, 700, 1000)),
)
def test_as_many_pods_as_fit_can_be_dealt_and_one_more_cannot(left: list[int], gpus: int, milli: int) -> None:
    asks = shape(gpus, gpu_milli=milli, cpu_milli=0, memory_bytes=0)
    room = free(*left)
    count = room.copies(asks)

    dealt = deal(room, asks, np.array([0]), count)

    assert len(dealt.node) == count[0]
    assert (room.gpu_milli >= 0).all()
    assert all(bin(mask).count("1") == gpus for mask in dealt.devices.tolist())
    assert not room.copies(asks)[0]


def test_cpu_and_memory_limit_the_copies_too() -> None:
    assert free(1000, cpu_milli=8000).copies(shape(1, gpu_milli=100, cpu_milli=3000)).tolist() == [2]
    assert free().copies(shape(cpu_milli=1, memory_bytes=200 * GIB)).tolist() == [2]


def test_returned_placements_restore_the_free_capacity() -> None:
    seen = world([node("a", gpus=3)], [pod(f"p{n}", gpus=1, gpu_milli=300) for n in range(4)])
    table = Table(batch_of(seen), seen.free())
    table.fit(0)

    table.take_back(0, range(4))

    assert table.free.gpu_milli.tolist() == [[1000, 1000, 1000]]
    assert table.free.cpu_milli.tolist() == seen.free().cpu_milli.tolist()
    assert table.left.tolist() == [4]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6))
def test_no_device_holds_shares_that_count_more_than_one(shares: list[int]) -> None:
    """Whatever fits one device in sum counts at most 1 by both measures, so neither excludes a packing."""
    held: list[int] = []
    for share in shares:
        if sum(held) + share <= 1000:
            held.append(share)

    counts = device_counts(np.ones(len(held), dtype=np.int64), np.array(held))

    assert (counts.sum(axis=0) <= 1).all()


@pytest.mark.parametrize(
    ("pattern", "devices", "fits"),
    [
        ([2, 0], 2, True),
        ([2, 1], 2, False),  # no device is left for the share
        ([0, 4], 2, True),  # two of 0.4 on each
        ([0, 5], 2, False),  # in sum exactly 2.0, but a third 0.4 fits no device that holds two
        ([1, 2], 2, True),
    ],
)
def test_a_pattern_fits_device_by_device_not_in_sum(pattern: list[int], devices: int, fits: bool) -> None:
    pods = [pod("whole", gpus=1), pod("share", gpus=1, gpu_milli=400)]
    batch = batch_of(world([node("a", gpus=devices)], pods))
    asked = [pattern[not each.is_whole_gpu] for each in batch.shapes]

    assert (dealt_pattern(batch, np.array(asked), 0).tolist() == asked) is fits
