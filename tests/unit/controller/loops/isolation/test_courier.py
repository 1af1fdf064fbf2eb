"""Courier between the operator and the nodes: orders once they are known, reports while they are fresh."""

import json
from dataclasses import asdict

import msgspec
import pytest

from controller.loops.isolation.coverage import STALE_S, SandboxCourier
from isolation.orders import NodeReport, Orders, SandboxOrder, SandboxReport
from tests.clock import HandClock

ORDER = SandboxOrder("cri-o://a", "p/team-a")


def sent(courier: SandboxCourier, node: str) -> Orders:
    text = courier.mail_for(node)
    assert text is not None
    return msgspec.json.decode(text, type=Orders)


def test_before_the_cluster_was_seen_no_node_is_told_to_release_its_pods() -> None:
    courier = SandboxCourier(HandClock(0.0), lambda: 7)
    assert courier.mail_for("n1") is None

    courier.set_orders({})
    assert sent(courier, "n1") == Orders("n1", 7, 0, {})

    courier.set_orders(None)
    assert courier.mail_for("n1") is None


def test_orders_are_numbered_when_they_change_and_begin_again_with_a_new_leader() -> None:
    epoch = [7]
    courier = SandboxCourier(HandClock(0.0), lambda: epoch[0])
    courier.set_orders({"n1": {"u": ORDER}})
    first, again = sent(courier, "n1"), sent(courier, "n1")
    courier.set_orders({})
    later = sent(courier, "n1")
    epoch[0] = 8
    led = sent(courier, "n1")

    assert first == again
    assert [(each.epoch, each.sequence) for each in (first, later, led)] == [(7, 0), (7, 1), (8, 0)]
    assert led.is_newer_than(later)
    assert later.is_newer_than(first)


def test_a_report_counts_while_it_is_fresh_and_for_its_own_node_only() -> None:
    clock = HandClock(0.0)
    courier = SandboxCourier(clock, lambda: 1)
    report = NodeReport("n1", "l", "full", "")

    assert courier.heard("n1", msgspec.json.encode(report)) == ""
    assert "names node n1" in courier.heard("n2", msgspec.json.encode(report))
    for odd in (b"{", b'{"node": "\xff"}', b'{"node": ' + b"[" * 100_000):
        assert "cannot be read" in courier.heard("n1", odd)
    assert dict(courier.reports()) == {"n1": report}
    clock.now_s = STALE_S + 1
    assert dict(courier.reports()) == {}


@pytest.mark.parametrize(
    "odd",
    [
        NodeReport("n1", "life", "full", "", sandboxes={"u": SandboxReport(happened={"Frozen/X": 10**400})}),
        NodeReport("n1", "life", "full", "", sandboxes={"u": SandboxReport(running=-1)}),
        NodeReport("n1", "life", "full", "", budget_bytes=2**63),
        NodeReport("n1", "x" * 1000, "full", ""),
    ],
)
def test_a_report_with_numbers_that_cannot_be_is_refused(odd: NodeReport) -> None:
    """10^400 is no float: reporting failed for all nodes, and so did /metrics."""
    courier = SandboxCourier(HandClock(0.0), lambda: 7)

    assert "the report on sandboxes" in courier.heard("n1", written(odd))
    assert courier.reports() == {}


def written(report: NodeReport) -> bytes:
    """As an agent may write it, which need not use our encoder."""
    return json.dumps(asdict(report)).encode()
