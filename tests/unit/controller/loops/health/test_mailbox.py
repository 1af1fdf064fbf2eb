"""Mailbox of agents' reports about health: in order, once, and bounded by dropping the oldest."""

from controller.loops.health.loop import ReportMailbox


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


def test_a_node_that_floods_displaces_its_own_reports_alone() -> None:
    mailbox = ReportMailbox(most_bytes=100, most_of_node=10)
    mailbox.heard("quiet", b"first")
    for _ in range(50):
        mailbox.heard("loud", b"12345")

    assert mailbox.take() == (("quiet", b"first"), ("loud", b"12345"), ("loud", b"12345"))
    assert mailbox.dropped == 48


def test_where_all_are_loud_the_loudest_loses_first() -> None:
    mailbox = ReportMailbox(most_bytes=10)
    mailbox.heard("a", b"12")
    mailbox.heard("b", b"123456")
    mailbox.heard("b", b"1")
    mailbox.heard("a", b"34")

    assert mailbox.take() == (("a", b"12"), ("b", b"1"), ("a", b"34"))
