"""Sender: bounded, ordered for each object, only as leader, and retried only where the server asks for it."""

import asyncio

import pytest
from structlog.testing import capture_logs

from cluster.errors import ActionError
from controller.kube.leader_election import LeaseTimes
from controller.kube.request import KubeWriteError, Refusal
from controller.kube.sender import Applier, Leader, NotLeadingError, Write, WriteJob, may_have_happened
from tests.builders.leading import Leading
from tests.clock import run_in_no_time
from tests.unit.controller.kube.fake_writer import FakeWriter, SilentWriter, refused


def job(about: str, path: str = "/x") -> WriteJob:
    return WriteJob(about, Write("POST", path))


def sent(
    writer: FakeWriter, jobs: list[WriteJob], leader: Leader | None = None, concurrency: int = 32
) -> tuple[list[bytes | ActionError], list[float]]:
    """The answers, and how long was waited between."""
    waits: list[float] = []

    async def sleep(for_s: float) -> None:
        waits.append(for_s)

    return asyncio.run(Applier(writer, leader or Leading(), sleep, concurrency).send(jobs)), waits


def test_answers_stand_in_the_order_of_the_jobs() -> None:
    writer = FakeWriter(lambda write: write.path.encode())

    answers, _ = sent(writer, [job(f"Pod/{n}", f"/{n}") for n in range(100)])

    assert answers == [f"/{n}".encode() for n in range(100)]


def test_no_more_than_so_many_are_in_flight() -> None:
    writer = FakeWriter()

    sent(writer, [job(f"Pod/{n}") for n in range(100)], concurrency=7)

    assert writer.most_in_flight == 7


def test_after_a_failure_the_later_writes_of_an_object_are_not_sent() -> None:
    writer = FakeWriter(lambda write: refused(409) if write.path == "/2" else b"{}")

    answers, _ = sent(writer, [job("Pod/a", "/1"), job("Pod/a", "/2"), job("Pod/a", "/3"), job("Pod/b", "/4")])

    assert [isinstance(answer, ActionError) for answer in answers] == [False, True, True, False]
    assert sorted(write.path for write in writer.sent) == ["/1", "/2", "/4"]


def test_what_is_to_be_deleted_and_is_not_there_is_deleted() -> None:
    writer = FakeWriter(lambda write: refused(404) if write.path == "/1" else b"{}")
    gone = [WriteJob("Pod/a", Write("DELETE", "/1")), job("Pod/a", "/2")]

    assert sent(writer, gone)[0] == [b"", b"{}"]
    assert isinstance(sent(writer, [job("Pod/a", "/1")])[0][0], ActionError)


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_names_a_time_is_asked_once_more(status: int) -> None:
    answers = iter([refused(status, 1.0), b"done"])
    writer = FakeWriter(lambda _: next(answers))

    (answer,), waits = sent(writer, [job("Pod/a")])

    assert (answer, waits) == (b"done", [1.0])


@pytest.mark.parametrize(
    ("status", "retry_after_s"),
    [(409, None), (404, None), (500, None), (500, 1.0), (429, None), (429, 10.0), (0, None)],
)
def test_nothing_is_sent_blindly_again(status: int, retry_after_s: float | None) -> None:
    writer = FakeWriter(lambda _: refused(status, retry_after_s))

    (answer,), waits = sent(writer, [job("Pod/a")])

    assert isinstance(answer, ActionError)
    assert (len(writer.sent), waits) == (1, [])


def test_who_does_not_hold_the_lease_sends_nothing() -> None:
    writer = FakeWriter()

    answers, _ = sent(writer, [job("Pod/a"), job("Pod/b")], Leading(leads=False))

    assert all(isinstance(answer, NotLeadingError) for answer in answers)
    assert writer.sent == []


def test_a_lease_that_is_lost_in_the_middle_ends_the_sending_there() -> None:
    class LeadingForFour(Leading):
        def may_write(self) -> bool:
            return len(writer.sent) < 4

    writer = FakeWriter()

    sent(writer, [job(f"Pod/{n}") for n in range(10)], LeadingForFour(), concurrency=1)

    assert len(writer.sent) == 4


@pytest.mark.parametrize(("status", "may"), [(0, True), (500, True), (504, True), (409, False), (429, False)])
def test_only_what_the_server_refused_certainly_did_not_happen(status: int, may: bool) -> None:
    assert may_have_happened(refused(status)) is may


def test_a_field_that_an_older_crd_lacks_does_not_cost_the_rest_of_the_status() -> None:
    words = (
        "failed to create typed patch object (default/g; tonnage.dev/v1alpha1, Kind=Gang): errors:\n"
        '  .status.roles[name="worker"].places: field not declared in schema\n'
        "  .status.later: field not declared in schema"
    )
    status = {"members": 2, "later": 1, "roles": [{"name": "worker", "places": 1}, {"name": "head"}]}
    write = Write("PATCH", "/gangs/g/status", {"kind": "Gang", "status": status})

    def answer(given: Write) -> bytes | Exception:
        assert given.body is not None
        is_whole = "later" in given.body["status"]
        return KubeWriteError("writing", Refusal(500, "InternalError", words)) if is_whole else b"{}"

    writer = FakeWriter(answer)
    with capture_logs() as lines:
        answers, _ = sent(writer, [WriteJob("Gang/a", write), WriteJob("Gang/b", write)])

    assert answers == [b"{}", b"{}"]
    assert writer.sent[-1].body == {
        "kind": "Gang",
        "status": {"members": 2, "roles": [{"name": "worker"}, {"name": "head"}]},
    }
    assert [line["field"] for line in lines] == [".status.later", '.status.roles[name="worker"].places']


def test_a_complaint_about_something_else_is_no_reason_to_send_again() -> None:
    words = ".status.gone: field not declared in schema"
    writer = FakeWriter(lambda _: KubeWriteError("writing", Refusal(500, "InternalError", words)))

    (answer,), _ = sent(writer, [WriteJob("Gang/a", Write("PATCH", "/x", {"status": {"members": 2}}))])

    assert isinstance(answer, ActionError)
    assert len(writer.sent) == 1


def test_a_write_that_rests_on_the_one_before_it_names_the_version_which_that_one_made() -> None:
    first = Write("PATCH", "/claim", {"metadata": {"resourceVersion": "7"}})
    second = Write("PATCH", "/claim/status", {"metadata": {"uid": "u"}}, on_version_of_answer=True)
    writer = FakeWriter(lambda _: b'{"metadata": {"name": "c", "resourceVersion": "8"}}')

    asyncio.run(Applier(writer, Leading()).send([WriteJob("Pod/p", first), WriteJob("Pod/p", second)]))

    assert [write.body for write in writer.sent] == [
        {"metadata": {"resourceVersion": "7"}},
        {"metadata": {"uid": "u", "resourceVersion": "8"}},
    ]


def test_a_write_that_rests_on_an_answer_without_a_version_is_not_sent() -> None:
    second = Write("PATCH", "/claim/status", {"metadata": {"uid": "u"}}, on_version_of_answer=True)
    writer = FakeWriter(lambda _: b"[]")

    answers = asyncio.run(
        Applier(writer, Leading()).send([WriteJob("Pod/p", Write("PATCH", "/c")), WriteJob("Pod/p", second)])
    )

    assert isinstance(answers[1], ActionError)
    assert len(writer.sent) == 1


def test_a_write_without_an_answer_is_given_up_before_another_process_may_lead() -> None:
    """A Lease lasts 15 s and a leader writes for 10 s after it last renewed: 5 s remain for a write in flight."""
    writer = SilentWriter()

    answer, took_s = run_in_no_time(Applier(writer, Leading()).send_one(Write("POST", "/x")))

    times = LeaseTimes()
    assert isinstance(answer, KubeWriteError)
    assert may_have_happened(answer)
    assert took_s < times.duration_s - times.renew_deadline_s


@pytest.mark.parametrize(
    ("words", "is_told"),
    [("Precondition failed: UID in precondition: a, UID in object meta: b", True), ("the object was modified", False)],
)
def test_a_refusal_for_another_uid_is_told(words: str, is_told: bool) -> None:
    writer, leader = FakeWriter(lambda _: KubeWriteError("writing", Refusal(409, "Conflict", words))), Leading()

    sent(writer, [job("Pod/p", "/p")], leader)

    assert leader.contradictions == ["/p"] * is_told
