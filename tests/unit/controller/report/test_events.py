"""Events: one per decision; a repeated decision is one Event with a count."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from cluster.plans import Reason
from controller.kube.sender import Applier, Write
from controller.report.events import (
    AT_A_TIME,
    LONGEST_NOTE,
    UNPLACED,
    WAITING_AT_ONCE,
    WAITING_PER_MINUTE,
    Events,
    ReportedDecision,
)
from tests.builders.leading import Leading
from tests.clock import HandClock
from tests.unit.controller.kube.fake_writer import FakeWriter, refused


def held_back(words: str = "no room", code: str = "NoGpuFree", name: str = "ns/p") -> ReportedDecision:
    return ReportedDecision("Pod", name, "Placing", Reason(code, words), is_warning=True)


@dataclass
class Bench:
    """Says things at instants of a clock set by hand and keeps what was written."""

    loop: asyncio.Runner
    writer: FakeWriter = field(default_factory=FakeWriter)
    uids: dict[str, str] = field(default_factory=lambda: {"ns/p": "uid-1"})
    clock: HandClock = field(default_factory=HandClock)

    def __post_init__(self) -> None:
        applier = Applier(self.writer, Leading())
        self.events = Events(applier, lambda _, name: self.uids.get(name), self.clock, lambda: 7, "me")

    def say(self, said: ReportedDecision, at_s: float) -> list[Write]:
        """What this makes the server hear."""
        return self.say_all([said], at_s)

    def say_all(self, said: Sequence[ReportedDecision], at_s: float) -> list[Write]:
        """What these make the server hear."""
        before, self.clock.now_s = len(self.writer.sent), at_s

        async def once() -> None:
            self.events.say(said)
            task = asyncio.create_task(self.events.write())
            for _ in range(10 + len(said)):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        self.loop.run(once())
        return self.writer.sent[before:]


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    """Makes one with a loop that ends with the test."""
    with asyncio.Runner() as loop:
        yield lambda *writer: Bench(loop, *writer)


def test_a_decision_is_one_event_with_the_epoch_of_its_leader(make: Callable[..., Bench]) -> None:
    (write,) = make().say(held_back(), 0.0)

    assert write.method == "POST"
    assert write.body is not None
    assert (write.body["reason"], write.body["note"], write.body["type"]) == ("NoGpuFree", "no room", "Warning")
    assert write.body["regarding"]["uid"] == "uid-1"
    assert write.body["metadata"]["annotations"] == {"tonnage.dev/epoch": "7"}


def test_what_is_said_again_is_counted_and_told_after_a_minute_then_ever_less_often(make: Callable[..., Bench]) -> None:
    bench = make()

    heard = {at_s: writes for at_s in range(0, 3600, 10) if (writes := bench.say(held_back(), float(at_s)))}

    # First after a minute; then when as long again has passed as it had lasted: 60, 120, 240, 480, 960, 1920.
    assert list(heard) == [0, 60, 120, 240, 480, 960, 1920]
    (last,) = heard[1920]
    (first,) = heard[0]
    assert first.body is not None
    assert last.method == "PATCH"
    assert last.path == f"{first.path}/{first.body['metadata']['name']}"
    assert last.body is not None
    assert last.body["series"] == {"count": 193, "lastObservedTime": "1970-01-01T00:32:00.000000Z"}  # 0, 10, ... 1920


def test_new_words_for_the_same_reason_do_not_make_an_event_each(make: Callable[..., Bench]) -> None:
    bench = make()

    heard = [at_s for at_s in range(0, 60, 10) if bench.say(held_back(f"{at_s} of 8 free"), float(at_s))]
    later = bench.say(held_back("1 of 8 free"), 61.0)

    assert heard == [0]
    assert [write.method for write in later] == ["POST"]


def test_another_reason_is_another_event(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.say(held_back(), 0.0)

    (write,) = bench.say(held_back(code="NoNode"), 1.0)

    assert write.method == "POST"


def test_another_pod_of_the_same_name_is_told_of_anew(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.say(held_back(), 0.0)
    bench.uids["ns/p"] = "uid-2"

    (write,) = bench.say(held_back(), 1.0)

    assert write.method == "POST"


def test_what_is_gone_is_not_spoken_of(make: Callable[..., Bench]) -> None:
    assert make().say(held_back(name="ns/gone"), 0.0) == []


def test_an_event_that_has_expired_is_said_anew(make: Callable[..., Bench]) -> None:
    bench = make(FakeWriter(lambda write: refused(404) if write.method == "PATCH" else b"{}"))
    bench.say(held_back(), 0.0)
    bench.say(held_back(), 60.0)

    (write,) = bench.say(held_back(), 61.0)

    assert write.method == "POST"


def test_a_note_is_no_longer_than_the_server_takes(make: Callable[..., Bench]) -> None:
    (write,) = make().say(held_back("x" * 5000), 0.0)

    assert write.body is not None
    assert len(write.body["note"]) == LONGEST_NOTE


def bound(number: int) -> ReportedDecision:
    return ReportedDecision("Pod", f"ns/p{number}", "Binding", Reason("LeastCost", "on a"))


def written(writer: FakeWriter, *rounds: list[ReportedDecision]) -> Events:
    """After all that was said has been written, round by round."""

    async def work() -> Events:
        events = Events(Applier(writer, Leading()), lambda _, name: f"uid-{name}", lambda: 0.0, lambda: 7, "here")
        writing = asyncio.create_task(events.write())
        for several in rounds:
            events.say(several)
            for _ in range(1000):  # turns of the loop, not time
                await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        return events

    return asyncio.run(work())


def test_every_decision_is_told_and_as_many_at_a_time_as_may_be() -> None:
    writer = FakeWriter()

    written(writer, [bound(n) for n in range(100)])

    assert {write.body["regarding"]["name"] for write in writer.sent if write.body} == {f"p{n}" for n in range(100)}
    assert writer.most_in_flight == AT_A_TIME


def test_an_event_that_cannot_be_written_is_counted_and_the_next_is_written() -> None:
    def answer(write: Write) -> bytes | Exception:
        return refused(500) if write.body and write.body["regarding"]["name"] == "p0" else b"{}"

    writer = FakeWriter(answer)

    events = written(writer, [bound(0)], [bound(1)])

    assert events.lost == 1
    assert len(writer.sent) == 2


def unplaced(name: str, words: str = "no room") -> ReportedDecision:
    return ReportedDecision("Pod", name, "Placing", Reason("NoNodeFits", words), is_warning=True, event=UNPLACED)


def regarding(writes: Sequence[Write]) -> Counter[str]:
    """Events by the kind and namespace of what they are about."""
    about = [write.body["regarding"] for write in writes if write.body and "regarding" in write.body]
    return Counter(f"{each['kind']} {each['namespace']}" for each in about)


def test_events_of_waiting_pods_are_bounded_whatever_waits_and_each_namespace_has_its_turn(
    make: Callable[..., Bench],
) -> None:
    """1,000 waiting pods were 780 writes in a minute, and as many again for each new leader."""
    waiting = [unplaced(f"flood/{n}") for n in range(1000)] + [unplaced(f"good/{n}") for n in range(5)]
    bench = make()
    bench.uids = {each.name: f"uid-{each.name}" for each in waiting} | {"flood": "flood", "good": "good"}

    first = bench.say_all(waiting, 1000.0)
    later = [write for n in range(1, 11) for write in bench.say_all(waiting, 1000.0 + 60 * n)]

    assert len(first) <= WAITING_AT_ONCE
    assert regarding(first)["Pod good"] == 5
    assert regarding(first)["Namespace flood"] == 1, "those of which nothing was said are counted"
    assert len(later) <= 10 * WAITING_PER_MINUTE
    placed = bench.say_all(
        [ReportedDecision("Pod", f"flood/{n}", "Binding", Reason("LeastCost", "x")) for n in range(300)], 1600.0
    )
    assert len(placed) == 300, "what was done is told of at once"


def test_an_event_about_a_namespace_is_in_it(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.uids = {"ns": "ns"}

    (write,) = bench.say(ReportedDecision("Namespace", "ns", "Placing", Reason("ManyWait", "3 more")), 0.0)

    assert write.path == "/apis/events.k8s.io/v1/namespaces/ns/events"
    assert write.body is not None
    about = {"apiVersion": "v1", "kind": "Namespace", "namespace": "ns", "name": "ns", "uid": "ns"}
    assert write.body["regarding"] == about


def test_events_of_refused_objects_are_bounded_as_those_of_waiting_ones(make: Callable[..., Bench]) -> None:
    bench = make()
    bad = [
        ReportedDecision("Pod", f"ns/p{n}", "Accepting", Reason("BadInput", "no"), is_warning=True) for n in range(500)
    ]
    bench.uids = {each.name: each.name for each in bad} | {"ns": "ns"}

    at_once = bench.say_all(bad, 0.0)
    in_a_minute = sum(len(bench.say_all(bad, float(at_s))) for at_s in range(1, 61))

    assert len(at_once) <= WAITING_AT_ONCE
    assert in_a_minute <= WAITING_PER_MINUTE


def test_a_stop_is_told_although_the_pod_is_gone_at_once_and_what_failed_on_one_that_is_gone_is_not(
    make: Callable[..., Bench],
) -> None:
    bench = make()
    why = Reason("Preempted", "x")
    stopped = ReportedDecision("Pod", "ns/gone", "Evicting", why, event="Preempted", where="from node-7")
    failed = ReportedDecision("Pod", "ns/other", "Evicting", why, is_warning=True, event="FailedEvicting")

    (write,) = bench.say_all([stopped, failed], 0.0)

    assert write.body is not None
    assert write.body["regarding"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "gone"}
