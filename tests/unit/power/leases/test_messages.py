"""Messages: read as they were sent, and refused when they are of another kind or node, or no messages."""

from dataclasses import replace

import pytest

from power.leases.messages import DeviceReport, Lease, Refusal, Report, decoded, encoded, encoded_text

LEASE = Lease("n1", "life-1", 100.0, 10.0, 3, 7, 5000.0, {"g1": 300.0}, {"g1": 200.0})
REPORT = Report("n1", "life-1", 100.0, 3, 7, {"g1": DeviceReport(250.0, 0.5, 300.0)})


def refused(answer: object) -> str:
    assert isinstance(answer, Refusal)
    return answer.code


@pytest.mark.parametrize("message", [LEASE, REPORT], ids=lambda m: type(m).__name__)
def test_what_was_sent_is_read_as_it_was(message: Lease | Report) -> None:
    assert decoded(type(message), encoded(message), "n1") == message


def test_the_lease_of_another_node_is_refused() -> None:
    assert refused(decoded(Lease, encoded(replace(LEASE, node="n2")), "n1")) == "OtherNode"


def test_a_report_cannot_be_passed_off_as_a_lease() -> None:
    assert refused(decoded(Lease, encoded(REPORT), "n1")) == "Unreadable"


@pytest.mark.parametrize("travelled", [b"", b"\n\n", b"lease\n\n{}", b"\xff\n\xff\n\xff", b"lease"])
def test_rubbish_is_refused_and_raises_nothing(travelled: bytes) -> None:
    assert refused(decoded(Lease, travelled, "n1")) == "Unreadable"


@pytest.mark.parametrize(
    "text", [b"{", b'{"node": "\xff"}', b'{"node": ' + b"[" * 100_000], ids=["cut", "no text", "deep"]
)
def test_a_message_that_cannot_be_read_is_refused(text: bytes) -> None:
    """An agent sends what it likes: neither of the last two raises an error of the decoder's own."""
    assert refused(decoded(Report, encoded_text("report", text), "n1")) == "Unreadable"
