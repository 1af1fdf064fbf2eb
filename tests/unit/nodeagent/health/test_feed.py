"""Feed of health: bounded while no controller answers, fair between pods, and evidence sent when it changes."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from health.records.frames import LONGEST_FRAMES, Backlog, Evidence, HealthReport, Source, packed, report_in
from nodeagent.health.feed import GATHER_S, GATHERED_BYTES, HealthFeed
from nodeagent.health.pod_sockets import SOCKET, PodSockets
from nodeagent.health.processes import ProcessTable, Ranks, Senders
from power.leases.messages import LONGEST
from tests.clock import HandClock
from tests.unit.nodeagent.health.scripted_evidence import ScriptedEvidence
from tests.unit.nodeagent.health.test_pod_sockets import FRAME, POD, OneProcess, send

XID = Evidence(Source.KERNEL, "Xid79", "0000:3b:00", 0.0)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(100.0)


@pytest.fixture
def feed(short_path: Path, clock: HandClock) -> Iterator[HealthFeed]:
    def sockets(deliver):  # type: ignore[no-untyped-def]
        return PodSockets(short_path, Senders(OneProcess(POD), clock), deliver, clock)

    script = ScriptedEvidence([(110.0, XID)])
    made = HealthFeed("n1", "life", sockets, Ranks(ProcessTable()), [script], clock)
    yield made
    made.close()


def test_frames_leave_with_the_next_report_under_their_pod(
    feed: HealthFeed, clock: HandClock, short_path: Path
) -> None:
    (short_path / POD).mkdir()
    feed.turn(0)
    send(str(short_path / POD / SOCKET), FRAME)
    feed.turn(0)

    report = feed.next_report()

    assert report is not None
    assert report.frames == {POD: FRAME}
    assert report_in(packed(report)) == report


def test_frames_gather_between_reports_and_leave_at_once_where_they_are_many_or_with_evidence(
    feed: HealthFeed, clock: HandClock
) -> None:
    feed.outbox.add(POD, FRAME)
    assert feed.next_report() is not None  # the first does not wait
    feed.outbox.add(POD, FRAME)
    clock.now_s += GATHER_S / 2
    assert feed.next_report() is None
    feed.refresh()
    with_evidence = feed.next_report()
    assert with_evidence is not None
    assert with_evidence.frames == {POD: FRAME}
    feed.outbox.add(POD, FRAME)
    assert feed.next_report() is None
    feed.outbox.add(POD, bytes(GATHERED_BYTES))
    assert feed.next_report() is not None
    clock.now_s += GATHER_S
    feed.outbox.add(POD, FRAME)
    assert feed.next_report() is not None


def test_evidence_is_sent_when_it_changes_and_again_for_a_new_controller(feed: HealthFeed, clock: HandClock) -> None:
    feed.turn(0)
    assert feed.next_report() is not None  # nothing is known, and that is sent once
    assert feed.next_report() is None
    clock.now_s = 111.0
    feed.turn(0)

    report = feed.next_report()

    assert report is not None
    assert [(each.code, each.age_s) for each in report.evidence or ()] == [("Xid79", 1.0)]
    assert feed.next_report() is None
    feed.refresh()
    assert feed.next_report() is not None


def test_without_a_controller_the_fullest_pod_loses_its_oldest_frames() -> None:
    box = Backlog(nullcontext(), most_bytes=100)
    box.add("quiet", b"q" * 30)
    for number in range(10):
        box.add("loud", bytes([number]) * 20)

    taken = box.take(1000)

    assert sorted(taken) == [*(("loud", bytes([number]) * 20) for number in (7, 8, 9)), ("quiet", b"q" * 30)]
    assert box.dropped == 7
    assert box.waiting_bytes == 0


def test_pods_take_turns_in_a_report() -> None:
    box = Backlog(nullcontext(), most_bytes=10_000)
    for _ in range(10):
        box.add("loud", b"l" * 50)
    box.add("quiet", b"q" * 50)

    assert box.take(100) == [("loud", b"l" * 50), ("quiet", b"q" * 50)]


def test_the_longest_report_is_one_message() -> None:
    wordy = Evidence(Source.PROCESS, "Stopped", "process 4194304", 1e6, "w" * 200, POD, 4095, 0.5)
    frames = {f"{number:036}": b"f" * (LONGEST_FRAMES // 256) for number in range(256)}

    report = HealthReport("n" * 253, "l" * 16, 1 << 60, frames, (wordy,) * 256, {"malformed": 1 << 60})

    assert len(packed(report)) < LONGEST - 1024


def test_what_two_sources_say_alike_is_said_once_by_the_first(short_path: Path, clock: HandClock) -> None:
    def sockets(deliver):  # type: ignore[no-untyped-def]
        return PodSockets(short_path, Senders(OneProcess(POD), clock), deliver, clock)

    later = Evidence(Source.DEVICE, "Xid79", "0000:3b:00", 0.0)
    other = Evidence(Source.DEVICE, "Xid79", "0000:5d:00", 0.0)
    sources = [ScriptedEvidence([(90.0, XID)]), ScriptedEvidence([(95.0, later), (95.0, other)])]
    feed = HealthFeed("n1", "life", sockets, Ranks(ProcessTable()), sources, clock)
    feed.turn(0)

    report = feed.next_report()

    feed.close()
    assert report is not None
    assert [(each.source, each.age_s) for each in report.evidence or ()] == [
        (Source.KERNEL, 10.0),
        (Source.DEVICE, 5.0),
    ]
