"""Channel between the operator and the nodes: orders once they are known, reports while they are fresh."""

import json
from dataclasses import asdict

import msgspec
import pytest

from controller.loops.isolation.coverage import STALE_S, SandboxChannel
from isolation.orders import IsolationReport, Orders, SandboxOrder, SandboxReport
from tests.builders.leading import Leading
from tests.clock import HandClock

ORDER = SandboxOrder("cri-o://a", "p/team-a")


def sent(channel: SandboxChannel, node: str) -> Orders:
    text = channel.message_to(node)
    assert text is not None
    return msgspec.json.decode(text, type=Orders)


def test_before_the_cluster_was_seen_no_node_is_told_to_release_its_pods() -> None:
    channel = SandboxChannel(HandClock(0.0), Leading(7))
    assert channel.message_to("n1") is None

    channel.set_orders({})
    assert sent(channel, "n1") == Orders("n1", 7, 0, {})

    channel.set_orders(None)
    assert channel.message_to("n1") is None


def test_orders_are_numbered_when_they_change_and_begin_again_with_a_new_leader() -> None:
    leader = Leading(7)
    channel = SandboxChannel(HandClock(0.0), leader)
    channel.set_orders({"n1": {"u": ORDER}})
    first, again = sent(channel, "n1"), sent(channel, "n1")
    channel.set_orders({})
    later = sent(channel, "n1")
    leader.epoch = 8
    led = sent(channel, "n1")

    assert first == again
    assert [(each.epoch, each.sequence) for each in (first, later, led)] == [(7, 0), (7, 1), (8, 0)]
    assert led.is_newer_than(later)
    assert later.is_newer_than(first)


def test_a_report_counts_while_it_is_fresh_and_for_its_own_node_only() -> None:
    clock = HandClock(0.0)
    channel = SandboxChannel(clock, Leading())
    report = IsolationReport("n1", "l", "full", "")

    assert channel.receive("n1", msgspec.json.encode(report)) == ""
    assert "names node n1" in channel.receive("n2", msgspec.json.encode(report))
    for odd in (b"{", b'{"node": "\xff"}', b'{"node": ' + b"[" * 100_000):
        assert "cannot be read" in channel.receive("n1", odd)
    assert dict(channel.reports()) == {"n1": report}
    clock.now_s = STALE_S + 1
    assert dict(channel.reports()) == {}


@pytest.mark.parametrize(
    "odd",
    [
        IsolationReport("n1", "life", "full", "", sandboxes={"u": SandboxReport(happened={"Frozen/X": 10**400})}),
        IsolationReport("n1", "life", "full", "", sandboxes={"u": SandboxReport(running=-1)}),
        IsolationReport("n1", "life", "full", "", budget_bytes=2**63),
        IsolationReport("n1", "x" * 1000, "full", ""),
    ],
)
def test_a_report_with_numbers_that_cannot_be_is_refused(odd: IsolationReport) -> None:
    """10^400 is no float: reporting failed for all nodes, and so did /metrics."""
    channel = SandboxChannel(HandClock(0.0), Leading(7))

    assert "the report on sandboxes" in channel.receive("n1", written(odd))
    assert channel.reports() == {}


def written(report: IsolationReport) -> bytes:
    """As an agent may write it, which need not use our encoder."""
    return json.dumps(asdict(report)).encode()
