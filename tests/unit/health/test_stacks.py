"""Rules of stack samples: they say where ranks stand, and which of several absent ranks waits for nobody."""

import threading
from collections.abc import Mapping

import numpy as np
import pytest

from health.analysis.excess import Pulse
from health.analysis.last_words import Stack, Stacks, is_stack
from health.records.frames import RECORD, decoded
from health.records.layout import layout_from
from health.verdicts.stopped import on_hang
from health.verdicts.verdict import JobVerdict, Part, Syndrome
from tonnage import records
from tonnage.recorder import main_stack
from tonnage.records import STACK_BYTES, STACK_PIECES, Kind

LOADING = "loader.py:88 read\ntrain.py:12 step"
IN_STORE = "distributed/distributed_c10d.py:410 wait\ntrain.py:12 step"


def taken(stack_of: Mapping[int, str], at_s: float = 5.0) -> Stacks:
    """Samples as they arrive, one frame for each rank."""
    made = Stacks()
    for rank, text in stack_of.items():
        records_of = decoded(frame(rank, *records.text_pieces(text.encode(), seq=1)))
        made.take(records_of.rows, records_of.rank, at_s)
    return made


def frame(rank: int, *rows: bytes) -> bytes:
    return records.frame(rows, rank=rank, at_ns=10**9, wall_minus_ns=0, incarnation=0, dropped=0)


def hang_of(ranks: tuple[int, ...], stack_of: Mapping[int, str]) -> JobVerdict:
    rows = [records.packed(Kind.PLACE, seq=0, at_ns=rank, step=4) for rank in range(4)]
    group = [records.packed(Kind.MEMBER, op=1, group=0, seq=rank, at_ns=7, step=4) for rank in range(4)]
    introductions = decoded(b"".join(frame(rank, rows[rank], group[rank]) for rank in range(4)))
    layout = layout_from(introductions, node=np.arange(4), nic=np.arange(4))
    pulse = Pulse(layout)
    rows = np.zeros(8, RECORD)
    rows["kind"], rows["for_ns"], rows["seq"] = (Kind.BEAT, Kind.IN_FLIGHT) * 4, 4 * 10**9, 40
    rank = np.repeat(np.arange(4), 2)
    kept = ~np.isin(rank, ranks) | (rows["kind"] == Kind.BEAT)
    none = np.zeros(kept.sum(), np.int64)
    pulse.beat(rows[kept], rank[kept], none, rank[kept], np.full(kept.sum(), 40), 8.0)
    verdict = on_hang(pulse, layout, (), 8.0, taken(stack_of), causes=False)
    assert verdict is not None
    return verdict


def test_a_stack_arrives_as_it_was_sent() -> None:
    assert taken({2: LOADING}).of_rank[2].frames == ("loader.py:88 read", "train.py:12 step")


def test_pieces_in_any_order_make_one_stack() -> None:
    pieces = records.text_pieces(LOADING.encode(), seq=3)
    shuffled = decoded(frame(0, *reversed(pieces)))
    made = Stacks()
    made.take(shuffled.rows[:1], shuffled.rank[:1], 1.0)
    assert not made.of_rank
    made.take(shuffled.rows[1:], shuffled.rank[1:], 2.0)
    assert made.of_rank[0].frames[0] == "loader.py:88 read"
    assert made.of_rank[0].at_s == 2.0


def test_a_stack_is_bounded() -> None:
    assert len(records.text_pieces(b"x" * 10**6, seq=1)) == STACK_PIECES
    (frames,) = (taken({0: "x" * 10**6}).of_rank[0].frames,)
    assert sum(map(len, frames)) == STACK_PIECES * STACK_BYTES


@pytest.mark.parametrize("count", [0, STACK_PIECES + 1, 65_535])
def test_pieces_that_claim_too_many_are_left_out(count: int) -> None:
    forged = np.zeros(1, dtype=decoded(frame(0, *records.text_pieces(b"x", seq=1))).rows.dtype)
    forged["kind"], forged["group"] = Kind.STACK, count
    made = Stacks()
    made.take(forged, np.zeros(1, np.int64), 1.0)
    assert not made.of_rank
    assert not made._pieces


def test_what_a_job_writes_is_shown_without_control_characters() -> None:
    assert taken({0: 'a.py:1 f\x1b[31m\r"${x}'}).of_rank[0].frames == ("a.py:1 f??31m????x?",)


def test_a_rank_that_hangs_is_shown_with_its_stack() -> None:
    verdict = hang_of((3,), {0: IN_STORE, 1: IN_STORE, 2: IN_STORE, 3: LOADING})
    assert (verdict.part, verdict.ranks) == (Part.RANK, (3,))
    found = [line for line in verdict.evidence if is_stack(line)]
    assert found == [
        "stack: rank 3 in loader.py:88 read < train.py:12 step",
        "stack: 3 ranks, 0 among them, in distributed/distributed_c10d.py:410 wait < train.py:12 step",
    ]


def test_of_several_absent_ranks_the_one_that_waits_for_nobody_is_named() -> None:
    verdict = hang_of((1, 3), {1: IN_STORE, 3: LOADING})
    assert (verdict.syndrome, verdict.part, verdict.ranks) == (Syndrome.OTHER_HANG, Part.RANK, (3,))


@pytest.mark.parametrize("stack_of", [{}, {3: LOADING}, {1: LOADING, 3: LOADING}, {1: IN_STORE, 3: IN_STORE}])
def test_stacks_that_do_not_tell_leave_it_open(stack_of: Mapping[int, str]) -> None:
    verdict = hang_of((1, 3), stack_of)
    assert verdict.abstains
    assert verdict.probe


def test_samples_from_before_the_hang_say_nothing() -> None:
    assert taken({1: LOADING}, at_s=3.0).since(4.0) == {}


def test_lines_do_not_make_two_places_of_one() -> None:
    one, other = (Stack(0.0, (f"a.py:{line} f",)) for line in (1, 2))
    assert one.place == other.place


@pytest.fixture
def looked_at_elsewhere() -> list[str]:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(main_stack()))
    thread.start()
    thread.join()
    return found


def test_the_stack_is_that_of_the_main_thread_and_holds_no_values(looked_at_elsewhere: list[str]) -> None:
    lines = looked_at_elsewhere[0].split("\n")
    assert lines[0].startswith("python3.11/threading.py:") or "threading.py:" in lines[0]
    assert any("test_stacks.py:" in line and line.endswith(" looked_at_elsewhere") for line in lines)
