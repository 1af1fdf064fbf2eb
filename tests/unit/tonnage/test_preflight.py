"""Preflight: who is accused by what was measured, and that all ranks meet each other once."""

from itertools import combinations

import pytest

from tonnage.pairs import PairSpeed
from tonnage.preflight import Accused, main, place_of, slow_devices, slow_paths, tournament
from tonnage.records import AccusedPart

GPU = "NVIDIA H100"


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 33])
def test_each_rank_meets_each_other_once_and_none_two_at_once(ranks: int) -> None:
    rounds = tournament(ranks)

    assert sorted(tuple(sorted(pair)) for each in rounds for pair in each) == list(combinations(range(ranks), 2))
    for each in rounds:
        names = [rank for pair in each for rank in pair]
        assert len(names) == len(set(names))


def pairs(ranks: int, slow: dict[object, float], rounds: int = 99) -> dict[tuple[str, str], PairSpeed]:
    """1 GB/s, or as much of it as the slower of two ranks, or their path, leaves; 0 for none."""
    made = {}
    for a, b in (pair for each in tournament(ranks)[:rounds] for pair in each):
        share = min(slow.get(a, 1.0), slow.get(b, 1.0), slow.get((a, b), 1.0))
        made[str(a), str(b)] = PairSpeed(1e-4, share * 1e9, lost=share == 0)
    return made


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ({}, []),
        ({5: 0.5}, ["rank 5: network at 50 % of what is usual"]),
        ({5: 0.0}, ["rank 5: network at 0 % of what is usual"]),
        ({5: 0.9}, []),
        ({5: 0.5, 2: 0.0}, ["rank 2: network at 0 % of what is usual", "rank 5: network at 50 % of what is usual"]),
        ({(7, 3): 0.1}, ["rank 7 and rank 3: the path between them at 10 % of what is usual"]),
        ({(7, 3): 0.7}, []),  # paths share cables
        ({(7, 3): 0.1, 0: 0.6}, ["rank 0: network at 60 % of what is usual",
                                 "rank 7 and rank 3: the path between them at 10 % of what is usual"]),
        ({0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}, []),  # a rack behind a slow uplink: uneven, and nobody's fault here
    ],
)  # fmt: skip
def test_a_slow_network_or_path_is_named_and_no_innocent_end(slow: dict[object, float], said: list[str]) -> None:
    assert sorted(map(str, slow_paths(pairs(16, slow)))) == said


def test_eight_rounds_of_many_ranks_name_a_network() -> None:
    found = slow_paths(pairs(500, {5: 0.5, 77: 0.0, 300: 0.7}, rounds=8))

    assert sorted(each.rank for each in found) == [5, 77, 300]


def test_two_ranks_alone_accuse_nobody_by_their_speed() -> None:
    assert slow_paths(pairs(2, {1: 0.5})) == []


def test_a_device_is_held_to_others_of_its_kind_and_a_wrong_product_needs_none() -> None:
    assert slow_devices({0: {GPU: [100.0, 99.0]}, 1: {GPU: [101.0, 70.0]}, 2: {"A10": [10.0]}}) == [
        Accused(AccusedPart.DEVICE, 1, share=70 / 99.5)
    ]
    assert slow_devices({0: {GPU: [100.0]}, 1: {GPU: [50.0]}}) == []  # which of two is slow?
    assert slow_devices({0: {GPU: [100.0]}, 1: {GPU: [0.0]}}) == [Accused(AccusedPart.DEVICE, 1)]


def test_a_processor_has_other_work_too() -> None:
    assert slow_devices({n: {"processor X": [100.0 if n else 70.0]} for n in range(4)}) == []
    assert [each.rank for each in slow_devices({n: {"processor X": [100.0 if n else 40.0]} for n in range(4)})] == [0]


@pytest.mark.parametrize(
    ("host", "variables", "known"),
    [
        ("train-3.train.ml.svc.cluster.local", {}, {"rank": "3", "meet": "train-0.train.ml.svc.cluster.local:29477"}),
        ("set-workers-1-12.set.ml.svc", {}, {"rank": "12", "meet": "set-workers-1-0.set.ml.svc:29477"}),
        ("train-3", {}, {}),  # without a subdomain nobody finds it by its name
        ("train-x7k2p.train.ml.svc", {}, {}),
        (
            "llm-0-2.llm.ml.svc",
            {"LWS_GROUP_SIZE": "4", "LWS_WORKER_INDEX": "2", "LWS_LEADER_ADDRESS": "llm-0.llm.ml"},
            {"ranks": "4", "rank": "2", "meet": "llm-0.llm.ml:29477"},
        ),
    ],
)
def test_a_pods_place_follows_from_its_kind(host: str, variables: dict[str, str], known: dict[str, str]) -> None:
    assert place_of(host, variables) == known


def test_a_pod_that_knows_no_place_says_what_it_is_to_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--ranks", "4"])

    assert "--rank, --meet" in capsys.readouterr().err
