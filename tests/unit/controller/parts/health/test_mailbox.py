"""Mailbox of agents' reports about health: in order, once, and bounded by dropping the oldest."""

from controller.parts.health.mailbox import ReportMailbox


def test_reports_are_taken_once_and_in_order() -> None:
    mailbox = ReportMailbox()
    mailbox.heard("n1", b"first")
    mailbox.heard("n2", b"second")

    assert mailbox.arrived.is_set()
    assert mailbox.take() == (("n1", b"first"), ("n2", b"second"))
    assert mailbox.take() == ()
    assert not mailbox.arrived.is_set()


def test_a_full_mailbox_drops_the_oldest_and_counts_them() -> None:
    mailbox = ReportMailbox(most_bytes=10)
    for each in (b"oldest", b"old", b"newest"):
        mailbox.heard("n1", each)

    assert mailbox.take() == (("n1", b"old"), ("n1", b"newest"))
    assert mailbox.dropped == 1
