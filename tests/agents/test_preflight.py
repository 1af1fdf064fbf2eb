"""Preflight of real processes on loopback: sound, one throttled, one that does not come, one that dies."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from health.records.frames import decoded
from tonnage.records import AccusedPart, Kind, checked

RANKS = 4
Process = subprocess.Popen[str]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


THROTTLED = """
import sys, time
from tonnage import preflight

def held_up(multiply, is_equal, speed=preflight._speed):
    return speed(lambda: time.sleep(0.2) or multiply(), is_equal)

preflight._speed = held_up
sys.exit(preflight.main())
"""
"""A process that is held up for 0.2 s before each matrix product, of a few milliseconds."""


def begun(
    folder: Path, *more: str, ranks: Sequence[int] = range(RANKS), wait_s: float = 120.0, throttled: int = -1
) -> list[Process]:
    meet = f"127.0.0.1:{free_port()}"
    words = ["--ranks", str(RANKS), "--meet", meet, "--wait", str(wait_s), "--socket", str(folder / "agent"), *more]
    programs = [["-c", THROTTLED] if rank == throttled else ["-m", "tonnage.preflight"] for rank in ranks]
    return [
        subprocess.Popen([sys.executable, *program, "--rank", str(rank), *words], stdout=subprocess.PIPE, text=True)  # noqa: S603
        for rank, program in zip(ranks, programs, strict=True)
    ]


def ended(processes: Sequence[Process]) -> list[tuple[int, str]]:
    """Exit status and the line of each."""
    return [(each.returncode, words) for each in processes for words, _ in (each.communicate(timeout=180),)]


@contextmanager
def agent(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(folder / "agent"))
        heard.setblocking(False)
        yield heard


def accused(heard: socket.socket) -> set[tuple[int, int]]:
    """AccusedPart and rank of all that was told to the agent."""
    found = set()
    while True:
        try:
            frame = heard.recv(1 << 16)
        except BlockingIOError:
            return found
        assert checked(frame) == ""
        rows = decoded(frame).rows
        assert set(rows["kind"]) == {Kind.PREFLIGHT}
        found |= {(int(row["op"]), int(row["seq"])) for row in rows}


def test_ranks_that_are_alike_begin(tmp_path: Path) -> None:
    """One try of three: where other processes take the machine's cores, a rank or a path is held up for a while."""
    sound = [(0, f"preflight of {RANKS} ranks: nothing found\n")] * RANKS
    for _ in range(3):
        with agent(tmp_path) as heard:
            results, said = ended(begun(tmp_path)), accused(heard)
        if results == sound:
            break
        (tmp_path / "agent").unlink()

    assert results == sound
    assert said == {(AccusedPart.NOBODY, rank) for rank in range(RANKS)}


def test_a_throttled_rank_is_named_to_all_and_to_the_agent_and_nobody_begins(tmp_path: Path) -> None:
    with agent(tmp_path) as heard:
        results = ended(begun(tmp_path, throttled=2))

        assert [status for status, _ in results] == [1] * RANKS
        assert all("rank 2: matrix products at" in words for _, words in results)
        assert {rank for fault, rank in accused(heard) if fault} == {2}


def test_with_warn_they_begin_nevertheless(tmp_path: Path) -> None:
    results = ended(begun(tmp_path, "--warn", throttled=1))

    assert [status for status, _ in results] == [0] * RANKS
    assert "rank 1: matrix products at" in results[0][1]


def test_who_does_not_come_is_named_and_accused_of_nothing(tmp_path: Path) -> None:
    with agent(tmp_path) as heard:
        results = ended(begun(tmp_path, ranks=(0, 1, 3), wait_s=5.0))

        assert results == [(1, f"preflight of {RANKS} ranks: did not come within 5 s: rank 2\n")] * 3
        assert {fault for fault, _ in accused(heard)} == {AccusedPart.NOBODY}


def test_a_rank_that_is_killed_is_named_and_accused_of_nothing_and_the_others_end(tmp_path: Path) -> None:
    with agent(tmp_path) as heard:
        processes = begun(tmp_path, wait_s=30.0)
        time.sleep(1.0)  # it multiplies by then; on a very busy machine it has not come, and is named as that
        processes[3].kill()
        processes[3].communicate()
        results = ended(processes[:3])

        assert [status for status, _ in results] == [1] * 3
        assert "rank 3" in results[0][1]
        assert {fault for fault, _ in accused(heard)} == {AccusedPart.NOBODY}
