"""Messages between a tool call's client and the node agent: one JSON object a packet, at most 4 KiB.

A client names no path, no pid, no priority and no call: which process asks, and for which sandbox, the kernel says.
"""

import math
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cluster.errors import UNREADABLE
from isolation.orders import Verdict
from isolation.state import Reason

LONGEST_BYTES = 4096
Word = Annotated[str, Meta(max_length=256)]


class Ask(msgspec.Struct, tag="ask", forbid_unknown_fields=True):
    """The connected process wants to become a tool call."""

    command: Annotated[tuple[Word, ...], Meta(max_length=16)] = ()
    """First words of its command, of which only the class is kept."""
    mem: str | int | float | None = None
    """Most memory that it will hold."""
    wait_s: float | None = None
    """Time after which it is refused; 0: at once."""


class Resume(msgspec.Struct, tag="resume", forbid_unknown_fields=True):
    """The connected process had a call with a node agent that is gone; a pidfd of the call's process comes with it."""


class Exited(msgspec.Struct, tag="exited", forbid_unknown_fields=True):
    """The call's main process ended; its client asks for the verdict."""

    code: Annotated[int, Meta(ge=-128, le=255)]
    """As Python's subprocess has it: negative for a signal."""


class End(msgspec.Struct, tag="end", forbid_unknown_fields=True):
    """The client wants all of its own call to be killed."""


Message = Ask | Resume | Exited | End
_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class BadMessageError(Exception):
    """A packet is none of these messages."""


def message_from(packet: bytes) -> Message:
    """The message in a packet. Raises BadMessageError."""
    if len(packet) > LONGEST_BYTES:
        raise BadMessageError(f"packets have at most {LONGEST_BYTES} bytes")
    try:
        return _DECODER.decode(packet)
    except UNREADABLE as error:
        raise BadMessageError(str(error)[:200]) from error


def bounded_wait_s(wait_s: float | None, longest_s: float) -> float:
    """Time in the queue that a client asked for, within the node's bound; no number means the bound."""
    if wait_s is None or math.isnan(wait_s):
        return longest_s
    return min(max(0.0, wait_s), longest_s)


def state_packet(state: str, reason: Reason, **figures: Any) -> bytes:
    """One state of a call: queued, admitted, throttled, frozen, thawed, shrink, killed."""
    return msgspec.json.encode({"state": state, "reason": reason, **figures})


def verdict_packet(verdict: Verdict, left: int = 0) -> bytes:
    """Last word on a call. left: processes that it left behind, which its client may still end."""
    return msgspec.json.encode({"state": "ended", "verdict": verdict, "left": left})
