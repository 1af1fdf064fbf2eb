"""Events: each decision is said once, many at a time, and one that is lost holds up none of the others."""

import asyncio

from cluster.plans import Reason
from controller.kube_apply import Applier
from controller.kube_events import AT_A_TIME, Events, Said
from controller.kube_write import Write
from tests.kube_writer import ScriptedWriter, refused


def bound(number: int, words: str = "on a") -> Said:
    return Said("Pod", f"ns/p{number}", "Binding", Reason("LeastCost", words))


def written(writer: ScriptedWriter, *rounds: list[Said]) -> Events:
    """After all that was said has been written, round by round."""

    async def work() -> Events:
        events = Events(Applier(writer, lambda: True), lambda _, name: f"uid-{name}", lambda: 0.0, "here")
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
    writer = ScriptedWriter()

    written(writer, [bound(n) for n in range(100)])

    assert {write.body["regarding"]["name"] for write in writer.sent if write.body} == {f"p{n}" for n in range(100)}
    assert writer.most_in_flight == AT_A_TIME


def test_what_was_said_is_not_said_again() -> None:
    writer = ScriptedWriter()

    written(writer, [bound(1)], [bound(1)], [bound(1, "on b")])

    assert [write.body["note"] for write in writer.sent if write.body] == ["on a", "on b"]


def test_an_event_that_cannot_be_written_is_counted_and_the_next_is_written() -> None:
    def answer(write: Write) -> bytes | Exception:
        return refused(500) if write.body and write.body["regarding"]["name"] == "p0" else b"{}"

    writer = ScriptedWriter(answer)

    events = written(writer, [bound(0)], [bound(1)])

    assert events.lost == 1
    assert len(writer.sent) == 2
