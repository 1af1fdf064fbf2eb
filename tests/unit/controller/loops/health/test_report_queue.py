"""Mailbox of agents' reports about health: in turns, once, and bounded by dropping the oldest."""

from controller.loops.health.loop import ReportQueue


def test_reports_are_taken_once_and_in_turns() -> None:
    queue = ReportQueue()
    queue.receive("n1", b"first")
    queue.receive("n2", b"second")

    assert queue.arrived.is_set()
    assert queue.take() == [("n1", b"first"), ("n2", b"second")]
    assert queue.take() == []


def test_a_full_mailbox_drops_the_oldest_and_counts_them() -> None:
    queue = ReportQueue(most_bytes=10)
    for each in (b"oldest", b"old", b"newest"):
        queue.receive("n1", each)

    assert queue.take() == [("n1", b"old"), ("n1", b"newest")]
    assert queue.dropped == 1


def test_a_node_that_floods_displaces_its_own_reports_alone() -> None:
    queue = ReportQueue(most_bytes=100, most_of_node=10)
    queue.receive("quiet", b"first")
    for _ in range(50):
        queue.receive("loud", b"12345")

    assert queue.take() == [("quiet", b"first"), ("loud", b"12345"), ("loud", b"12345")]
    assert queue.dropped == 48


def test_where_all_are_loud_the_loudest_loses_first() -> None:
    queue = ReportQueue(most_bytes=10)
    queue.receive("a", b"12")
    queue.receive("b", b"123456")
    queue.receive("b", b"1")
    queue.receive("a", b"34")

    assert queue.take() == [("a", b"12"), ("b", b"1"), ("a", b"34")]
