"""Pipes between tool calls."""

import os
from pathlib import Path

from nodeagent.process_files import PipeEnds, feeding, pipe_ends


def ends(*, read: tuple[int, ...] = (), write: tuple[int, ...] = ()) -> PipeEnds:
    return PipeEnds(frozenset(read), frozenset(write))


def test_a_frozen_writer_feeds_a_running_reader() -> None:
    assert feeding({"frozen": ends(write=(7,))}, {"runs": ends(read=(7,))}) == {"frozen"}


def test_a_frozen_reader_holds_up_a_running_writer() -> None:
    assert feeding({"frozen": ends(read=(7,))}, {"runs": ends(write=(7,))}) == {"frozen"}


def test_an_output_that_both_inherited_ties_nobody() -> None:
    assert not feeding({"frozen": ends(write=(7,))}, {"runs": ends(write=(7,))})


def test_calls_without_a_common_pipe_are_not_tied() -> None:
    assert not feeding({"frozen": ends(write=(7,))}, {"runs": ends(read=(8,))})


def test_ends_are_told_by_their_direction() -> None:
    read, write = os.pipe()
    inode = os.fstat(read).st_ino

    found = pipe_ends([os.getpid()])
    os.close(write)
    later = pipe_ends([os.getpid()])
    os.close(read)

    assert inode in found.read
    assert inode in found.write
    assert inode in later.read
    assert inode not in later.write


def test_a_process_that_ended_holds_nothing(tmp_path: Path) -> None:
    assert pipe_ends([1], proc=tmp_path) == PipeEnds()
