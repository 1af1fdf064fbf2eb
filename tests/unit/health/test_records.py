"""Rules of frames as columns, and of the layout behind them."""

import tracemalloc

import numpy as np
from hypothesis import given, strategies as st

from health.records.frames import decoded
from health.records.layout import MOST_PAIRS, SMALL_GROUP, Layout, layout_from
from tests.rigs.health.job import NUMBERS, TrainingJob
from tonnage import records
from tonnage.records import Kind, Op, Role


def frame(rank: int, *rows: bytes) -> bytes:
    return records.frame(rows, rank=rank, at_ns=10, wall_minus_ns=20, incarnation=1, dropped=0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=20))
def test_each_record_belongs_to_the_rank_of_its_frame(frames: list[tuple[int, int]]) -> None:
    data = b"".join(
        frame(rank, *[records.packed(Kind.BEAT, seq=seq) for seq in range(count)]) for rank, count in frames
    )

    found = decoded(data)

    assert found.rank.tolist() == [rank for rank, count in frames for _ in range(count)]
    assert found.rows["seq"].tolist() == [seq for _, count in frames for seq in range(count)]
    assert found.headers["rank"].tolist() == [rank for rank, _ in frames]


def test_groups_are_joined_by_their_key_in_the_order_of_their_members() -> None:
    job = TrainingJob(tensor=2, data=2, pipeline=2, gpus_per_node=2)

    layout = layout_from(job.introductions(), node=job.node, nic=job.nic)

    assert {tuple(members.tolist()) for members in layout.groups} == {
        *[(0, 1), (2, 3), (4, 5), (6, 7)],
        *[(0, 2), (1, 3), (4, 6), (5, 7)],
        *[(0, 4), (1, 5), (2, 6), (3, 7)],
        tuple(range(8)),
    }
    assert layout.stage.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert layout.replica.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


def test_introductions_that_come_twice_change_nothing() -> None:
    job = TrainingJob(tensor=2, data=2, pipeline=1, gpus_per_node=2)
    once = job.introductions()
    twice = type(once)(np.concatenate([once.rows] * 2), np.concatenate([once.rank] * 2), once.headers)

    layout = layout_from(twice, node=job.node, nic=job.nic)

    assert sorted(len(members) for members in layout.groups) == [2, 2, 2, 2, 4]


def without_role(ranks: int) -> Layout:
    """All ranks in one group of no known role, such as one for the writing of checkpoints."""
    every, nothing = np.arange(ranks), np.zeros(ranks, np.int64)
    return Layout(
        node=nothing,
        nic=every,
        stage=nothing,
        replica=every,
        group_of=nothing[:, None],
        index_of=every[:, None],
        role=np.array([Role.OTHER]),
        groups=(every,),
    )


def test_in_small_groups_any_two_may_send_and_in_larger_ones_neighbours() -> None:
    assert len(without_role(SMALL_GROUP).pair_codes) == SMALL_GROUP * (SMALL_GROUP - 1)
    ranks = SMALL_GROUP + 1
    ahead = [rank * ranks + (rank + 1) % ranks for rank in range(ranks)]
    behind = [rank * ranks + (rank - 1) % ranks for rank in range(ranks)]
    assert without_role(ranks).pair_codes.tolist() == sorted(ahead + behind)


def test_a_large_group_of_no_known_role_takes_no_memory_for_each_pair() -> None:
    """Pairs of all members took 0.5 GB with 4,096 ranks."""
    layout = without_role(2048)
    tracemalloc.start()
    try:
        pairs = len(layout.pair_codes)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert pairs == 2 * 2048
    assert peak_bytes < 1_000_000


def test_a_job_that_claims_many_small_groups_has_a_bounded_number_of_pairs() -> None:
    """A hundred groups of eight for each of 128 ranks."""
    ranks, numbers = 128, 100
    every = np.arange(ranks)
    orders = [np.random.default_rng(number).permutation(every) for number in range(numbers)]
    groups = tuple(members for order in orders for members in np.split(order, ranks // 8))
    layout = Layout(
        node=every,
        nic=every,
        stage=every,
        replica=every,
        group_of=np.zeros((ranks, numbers), np.int64),
        index_of=np.zeros((ranks, numbers), np.int64),
        role=np.full(len(groups), int(Role.OTHER)),
        groups=groups,
    )

    assert len(layout.pair_codes) <= MOST_PAIRS * ranks


def test_a_send_and_its_receive_are_one_path_and_both_directions_one_span() -> None:
    job = TrainingJob(tensor=1, data=2, pipeline=2, gpus_per_node=1)
    layout = layout_from(job.introductions(), node=job.node, nic=job.nic)
    number = NUMBERS[int(Role.PIPELINE)]
    sends = [records.packed(Kind.OPERATION, op=Op.SEND, group=number, peer=1)]
    receives = [records.packed(Kind.OPERATION, op=Op.RECEIVE, group=number, peer=0)]
    back = [records.packed(Kind.OPERATION, op=Op.SEND, group=number, peer=0)]
    found = decoded(frame(0, *sends) + frame(2, *receives) + frame(2, *back))

    path, index = layout.located(found.rank, found.rows)

    assert path[0] == path[1] != path[2]
    assert index.tolist() == [0, 1, 0]
    assert layout.span[path[0]] == layout.span[path[2]]


def test_operations_in_groups_that_were_never_introduced_have_no_path() -> None:
    job = TrainingJob(tensor=2, data=2, pipeline=1, gpus_per_node=4)
    layout = layout_from(job.introductions(), node=job.node, nic=job.nic)
    strange = [records.packed(Kind.OPERATION, op=Op.ALL_REDUCE, group=group) for group in (2, 9, 65535)]
    strange += [records.packed(Kind.OPERATION, op=Op.SEND, group=0, peer=65535)]

    path, _ = layout.located(*_parts(frame(0, *strange)))

    assert path.tolist() == [-1, -1, -1, -1]


def _parts(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    found = decoded(data)
    return found.rank, found.rows


def test_only_paths_between_nodes_cross() -> None:
    job = TrainingJob(tensor=2, data=2, pipeline=1, gpus_per_node=2, world=False)
    layout = layout_from(job.introductions(), node=job.node, nic=job.nic)

    crossing = {tuple(layout.ranks_on(path).tolist()) for path in np.flatnonzero(layout.crosses).tolist()}

    assert crossing == {(0, 2), (1, 3)}
