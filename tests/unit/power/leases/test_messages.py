"""Sealed messages: opened as they were sent, and refused when forged, of another node or without a known key."""

from dataclasses import replace

import pytest

from power.leases.messages import DeviceReport, Keys, Lease, Refusal, Report, node_secret, opened, sealed, sealed_text

KEYS = Keys("new", {"old": b"former", "new": b"secret"})
LEASE = Lease("n1", "life-1", 100.0, 10.0, 3, 7, 5000.0, {"g1": 300.0}, {"g1": 200.0})
REPORT = Report("n1", "life-1", 100.0, 3, 7, {"g1": DeviceReport(250.0, 0.5, 300.0)})


def refused(answer: object) -> str:
    assert isinstance(answer, Refusal)
    return answer.code


@pytest.mark.parametrize("message", [LEASE, REPORT], ids=lambda m: type(m).__name__)
def test_what_was_sealed_is_opened_as_it_was(message: Lease | Report) -> None:
    assert opened(type(message), sealed(message, KEYS, "n1"), KEYS, "n1") == message


def test_a_forged_lease_is_refused() -> None:
    travelled = sealed(LEASE, KEYS, "n1").replace(b"300.0", b"400.0")

    assert refused(opened(Lease, travelled, KEYS, "n1")) == "Forged"


def test_a_lease_of_someone_without_the_key_is_refused() -> None:
    assert refused(opened(Lease, sealed(LEASE, Keys("new", {"new": b"guessed"}), "n1"), KEYS, "n1")) == "Forged"


def test_the_lease_of_another_node_is_refused() -> None:
    other = replace(LEASE, node="n2")

    assert refused(opened(Lease, sealed(other, KEYS, "n2"), KEYS, "n1")) == "Forged"
    assert refused(opened(Lease, sealed(other, KEYS, "n1"), KEYS, "n1")) == "Forged"


def test_a_report_cannot_be_passed_off_as_a_lease() -> None:
    assert refused(opened(Lease, sealed(REPORT, KEYS, "n1"), KEYS, "n1")) == "Forged"


def test_a_former_key_holds_until_it_is_removed() -> None:
    travelled = sealed(LEASE, replace(KEYS, newest="old"), "n1")

    assert opened(Lease, travelled, KEYS, "n1") == LEASE
    assert refused(opened(Lease, travelled, Keys("new", {"new": b"secret"}), "n1")) == "UnknownKey"


@pytest.mark.parametrize("travelled", [b"", b"\n\n", b"new\n\n{}", b"\xff\n\xff\n\xff", b"new"])
def test_rubbish_is_refused_and_raises_nothing(travelled: bytes) -> None:
    assert refused(opened(Lease, travelled, KEYS, "n1")) in ("Forged", "UnknownKey")


def test_a_node_that_knows_its_own_secret_cannot_speak_for_another() -> None:
    assert node_secret(b"fleet", "n1") != node_secret(b"fleet", "n2")


@pytest.mark.parametrize(
    "text", [b"{", b'{"node": "\xff"}', b'{"node": ' + b"[" * 100_000], ids=["cut", "no text", "deep"]
)
def test_a_signed_message_that_cannot_be_read_is_refused(text: bytes) -> None:
    """An agent signs what it likes: neither of the last two raises an error of the decoder's own."""
    assert refused(opened(Report, sealed_text("report", text, KEYS, "n1"), KEYS, "n1")) == "Unreadable"
