"""Packets of clients: what is understood, and that nothing else does harm."""

import math

import pytest
from hypothesis import given, strategies as st

from isolation.orders import refused
from nodeagent.sandboxes.sockets import (
    LONGEST_BYTES,
    BadMessageError,
    CallRequest,
    End,
    Exited,
    Resume,
    bounded_wait_s,
    message_from,
    verdict_packet,
)


def test_the_four_messages_are_read() -> None:
    asked = message_from(b'{"type":"ask","command":["pytest","-q"],"mem":"2Gi","wait_s":30}')

    assert asked == CallRequest(("pytest", "-q"), "2Gi", 30.0)
    assert message_from(b'{"type":"exited","code":-9}') == Exited(-9)
    assert isinstance(message_from(b'{"type":"end"}'), End)
    assert isinstance(message_from(b'{"type":"resume"}'), Resume)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"null",
        b"[" * 4000,
        b'{"type":"ask","pid":1}',
        b'{"type":"resume","call":"another"}',
        b'{"type":"ask","priority":1000}',
        b'{"type":"ask","path":"/sys/fs/cgroup"}',
        b'{"type":"ask","sandbox":"another"}',
        b'{"type":"ask","mem":NaN}',
        b'{"type":"ask","command":"pytest"}',
        b'{"type":"ask","command":["' + b"x" * 300 + b'"]}',
        b'{"type":"ask","command":[' + b'"x",' * 20 + b'"x"]}',
        b'{"type":"exited","code":1e300}',
        b'{"type":"exited","code":true}',
        b'{"type":"kill","call":"another"}',
        b"\xff\xfe",
        b" " * (LONGEST_BYTES + 1),
    ],
)
def test_what_is_no_message_is_refused(packet: bytes) -> None:
    with pytest.raises(BadMessageError):
        message_from(packet)


@given(st.binary(max_size=LONGEST_BYTES))
def test_no_packet_raises_anything_else(packet: bytes) -> None:
    try:
        message_from(packet)
    except BadMessageError:
        return


@pytest.mark.parametrize(
    ("asked", "granted"), [(None, 300.0), (30.0, 30.0), (-5.0, 0.0), (1e300, 300.0), (math.nan, 300.0), (0.0, 0.0)]
)
def test_a_wait_stays_within_the_node_s_bound(asked: float | None, granted: float) -> None:
    assert bounded_wait_s(asked, 300.0) == granted


def test_a_verdict_is_json_with_reason_advice_and_retry() -> None:
    packet = verdict_packet(refused("WAITED_TOO_LONG", 12.0))

    assert b'"reason":"WAITED_TOO_LONG"' in packet
    assert b'"retry_after_s":12.0' in packet
    assert b'"advice":"try again later' in packet
