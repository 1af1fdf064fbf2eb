"""Capacity by class: as many pods as fit can be dealt, device by device."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cluster.arrays import IntArray
from cluster.snapshot import Free
from placement.batch.assignment_table import FreeCapacity, copies_in
from placement.batch.column_generation import fits_devices
from placement.batch.problem import device_counts
from tests.builders.fleet import GIB, shape


def free(*devices: int, cpu_milli: int = 64_000) -> Free:
    return Free(np.array([cpu_milli]), np.array([512 * GIB]), np.array([devices], dtype=np.int64))


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    st.integers(1, 3),
    st.sampled_from((100, 250, 300, 500, 700, 1000)),
)
def test_as_many_pods_as_fit_can_be_dealt_and_one_more_cannot(left: list[int], gpus: int, milli: int) -> None:
    asks = shape(gpus, gpu_milli=milli, cpu_milli=0, memory_bytes=0)
    room = FreeCapacity(free(*left), np.zeros(1, dtype=np.bool_))
    count = copies_in(asks, room.free)

    dealt = room.deal(asks, np.array([0]), count)

    assert len(dealt.node) == count[0]
    assert (room.free.gpu_milli >= 0).all()
    assert all(bin(mask).count("1") == gpus for mask in dealt.devices.tolist())
    assert not copies_in(asks, room.free)[0]


def test_cpu_and_memory_limit_the_copies_too() -> None:
    assert copies_in(shape(1, gpu_milli=100, cpu_milli=3000), free(1000, cpu_milli=8000)).tolist() == [2]
    assert copies_in(shape(cpu_milli=1, memory_bytes=200 * GIB), free()).tolist() == [2]


def test_returned_placements_restore_the_free_capacity() -> None:
    room = FreeCapacity(free(1000, 600, 0), np.zeros(1, dtype=np.bool_))
    dealt = room.deal(shape(1, gpu_milli=300), np.array([0]), np.array([4]))

    room.give_back(shape(1, gpu_milli=300), dealt)

    assert room.free.gpu_milli.tolist() == [[1000, 600, 0]]
    assert room.free.cpu_milli.tolist() == [64_000]


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
    gpus: IntArray = np.array([1, 1])

    assert fits_devices(np.array(pattern), gpus, np.array([1000, 400]), devices) is fits
