"""Messages between controller and node agents about power limits.

An agent reports, and the controller answers with a lease. A lease names the report that it answers, by the agent's own
clock. It therefore ends, by that clock, at an instant that both sides can compute, and no two clocks need to agree. A
report names the newest lease that its agent has received, by the controller's clock. The controller therefore knows the
largest possible age of a reading, however long the network delayed it.

Both ends are authenticated by the connection: the controller by its certificate, the agent by a token of Kubernetes
that is bound to its pod and node. No message has a signature of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

import msgspec

from cluster.errors import UNREADABLE
from cluster.power import NEVER_S

Kind = Literal["inventory", "report", "lease"]

AUDIENCE = "tonnage-power"
"""Audience of agents' tokens, so that the API server and other services refuse one that was shown to the controller."""
LONGEST_TOKEN = 16 * 1024


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """State of one device, as measured by its agent."""

    draw_w: float
    age_s: float
    """Seconds between measuring the draw and sending the report."""
    cap_w: float
    """Limit in force, read back from the device; for a lease that allows bursts, the lease's cap."""
    phase: int = -1


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """Facts about one device, discovered by its agent; see the columns of `PowerDeviceTable`."""

    model: str
    min_w: float
    max_w: float
    default_w: float
    previous_w: float
    managed: bool
    """Whether the agent would limit it: the device can be limited and is not opted out."""
    why_not: str = ""
    ramp_w_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """First message of an agent on every connection: the devices that it has."""

    node: str
    life: str
    devices: Mapping[str, DeviceInventory]


@dataclass(frozen=True, slots=True)
class Report:
    """Message of an agent after each reading of its devices."""

    node: str
    life: str
    """Session of the agent: changes after a restart that lost its record."""
    sent_s: float
    """Instant of sending by the agent's clock, which continues while the agent restarts and starts again with the
    machine."""
    epoch: int
    """Epoch of the newest lease that was accepted and put in force; -1: none in this session."""
    sequence: int
    devices: Mapping[str, DeviceReport]
    answered_epoch: int = -1
    """Epoch of the newest lease accepted in this session, whether in force already or not."""
    answered_s: float = NEVER_S
    """`issued_s` of that lease."""
    since_s: float = 0.0
    """Seconds by the agent's clock between accepting that lease and sending this report."""
    meter_w: float | None = None
    """Draw of the whole node by its own meter, in watts; None where no meter is read."""
    meter_age_s: float = 0.0
    """Seconds between reading the meter and sending this report."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Answer of the controller: the power limit of each device of a node, and how long it applies."""

    node: str
    life: str
    """Session of the report that it answers; an agent in another session refuses it."""
    echo_s: float
    """`sent_s` of the report that it answers. The lease ends `for_s` after that, by the agent's clock."""
    for_s: float
    epoch: int
    sequence: int
    issued_s: float
    """Instant of issue by the controller's clock."""
    caps_w: Mapping[str, float]
    safe_w: Mapping[str, float]
    """Limits after the lease has ended."""
    burst_j: Mapping[str, float] = field(default_factory=dict)
    """Energy in joules above the cap (power/safety/bursts.py); devices that are not named may not burst."""
    burst_to_w: Mapping[str, float] = field(default_factory=dict)
    """Highest limit of a burst that begins now; the device's own highest limit where none is named."""
    credit_back_s: float = 300.0
    """Time in which used burst credit is restored."""
    hears: tuple[str, ...] = ()
    """Kinds of messages, besides power's reports, that the controller takes on this connection."""
    only_lower: bool = False
    """Whether caps may only be lowered by it, whatever it names: a controller that just started adopts the limits it
    finds."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a message is not acted on."""

    code: str
    words: str


Message = TypeVar("Message", Inventory, Report, Lease)


_KINDS: Mapping[type, Kind] = {Inventory: "inventory", Report: "report", Lease: "lease"}


def encoded(message: Inventory | Report | Lease) -> bytes:
    """The message as it is sent: its kind, and its text."""
    return encoded_text(_KINDS[type(message)], msgspec.json.encode(message))


def encoded_text(kind: str, text: bytes) -> bytes:
    """Any message of a node's connection as it is sent."""
    return kind.encode() + b"\n" + text


def kind_in(travelled: bytes) -> str:
    """The kind that a message says it has."""
    return travelled.partition(b"\n")[0].decode("utf-8", "replace")


def text_in(travelled: bytes) -> bytes:
    """The text of a message of whatever kind."""
    return travelled.partition(b"\n")[2]


def decoded(kind: type[Message], travelled: bytes, node: str) -> Message | Refusal:
    """The message, if it is of this kind and about this node; otherwise the refusal."""
    name = _KINDS[kind]
    if kind_in(travelled) != name:
        return Refusal("Unreadable", f"message is not a {name}")
    try:
        made = msgspec.json.decode(text_in(travelled), type=kind)
    except UNREADABLE as error:
        return Refusal("Unreadable", f"message is not a valid {name}: {error}")
    if made.node != node:
        return Refusal("OtherNode", f"message names node {made.node}, not {node}")
    return made


LONGEST = 256 * 1024
"""Longest message in bytes; a lease of 16 devices has 3 KiB."""


class MessageFrameError(Exception):
    """Error when the other process does not speak this protocol."""


class Reader(Protocol):
    """Byte stream to read from, such as asyncio.StreamReader."""

    async def readexactly(self, n: int, /) -> bytes:
        """Exactly n bytes. Raises EOFError (asyncio's IncompleteReadError is one) when the stream ends earlier."""
        ...


async def read_frame(stream: Reader, longest: int = LONGEST) -> bytes:
    """The next message. Raises EOFError at the end of the stream, MessageFrameError for an impossible length."""
    length = int.from_bytes(await stream.readexactly(4), "big")
    if not 0 < length <= longest:
        raise MessageFrameError(f"message length of {length} bytes is not allowed")
    return await stream.readexactly(length)


def framed(message: bytes) -> bytes:
    """The message with its length prefix, as it is sent."""
    return len(message).to_bytes(4, "big") + message
