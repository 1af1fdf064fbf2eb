"""Fence: a new leader waits until the API server refuses its predecessor's writes, and recognizes its own refusal."""

import asyncio

import pytest

from controller.kube.request import KubeWriteError, Refusal
from controller.kube.sender import (
    SETTLE_S,
    WITHIN_S,
    Applier,
    Fence,
    NotLeadingError,
    Write,
    WriteJob,
    is_fenced,
    may_have_happened,
)
from tests.builders.leading import Leading
from tests.clock import HandClock
from tests.unit.controller.kube.fake_writer import FakeWriter, refused

DENIED = "ValidatingAdmissionPolicy 'tonnage-fence' denied request: tonnage.dev/epoch is 3, that of the Lease is 4"


def fenced(words: str = DENIED) -> KubeWriteError:
    return KubeWriteError("writing", Refusal(403, "Forbidden", words))


def stands(writer: FakeWriter, clock: HandClock, epoch: int = 4) -> bool:
    return asyncio.run(Fence(writer, "tonnage-system", clock, clock.sleep).is_enforced(epoch))


def test_the_fence_stands_when_a_write_of_the_epoch_before_is_refused() -> None:
    writer, clock = FakeWriter(lambda _: fenced()), HandClock()

    assert stands(writer, clock)
    (write,) = writer.sent
    assert write.body is not None
    assert write.body["metadata"]["annotations"] == {"tonnage.dev/epoch": "3"}
    assert write.query == {"dryRun": "All"}, "nothing of it is kept"
    assert clock.sleeps_s == [SETTLE_S], "what was written before has time to be seen"


def test_it_is_awaited_while_the_server_does_not_know_the_new_epoch_yet() -> None:
    answers = iter([b"{}", b"{}", fenced()])
    clock = HandClock()

    assert stands(FakeWriter(lambda _: next(answers)), clock)
    assert len(clock.sleeps_s) == 3


@pytest.mark.parametrize("answer", [b"{}", refused(403), refused(500), fenced("events is forbidden: no RBAC")])
def test_without_a_policy_the_wait_ends(answer: bytes | KubeWriteError) -> None:
    clock = HandClock()

    assert not stands(FakeWriter(lambda _: answer), clock)
    assert clock.now_s == pytest.approx(WITHIN_S, abs=0.1)


def test_a_stale_write_that_the_server_refuses_is_counted_and_frees_what_it_would_hold() -> None:
    leader = Leading()
    applier = Applier(FakeWriter(lambda _: fenced()), leader)

    (answer,) = asyncio.run(applier.send([WriteJob("Pod/a", Write("POST", "/x"))]))

    assert isinstance(answer, NotLeadingError)
    assert not may_have_happened(answer)
    assert leader.refused == 1


def test_a_refusal_of_rbac_is_not_taken_for_the_fence() -> None:
    assert not is_fenced(refused(403))
    assert not is_fenced(KubeWriteError("writing", Refusal(409, "Conflict", DENIED)))
