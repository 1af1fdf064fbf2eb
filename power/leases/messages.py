"""Messages between controller and node agents about power limits, and their authentication.

An agent reports, and the controller answers with a lease. A lease names the report that it answers, by the agent's own
clock. It therefore ends, by that clock, at an instant that both sides can compute, and no two clocks need to agree. A
report names the newest lease that its agent has received, by the controller's clock. The controller therefore knows the
largest possible age of a reading, however long the network delayed it.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, Protocol, TypeVar

import msgspec

from cluster.errors import UNREADABLE
from cluster.power import NEVER_S

Kind = Literal["inventory", "report", "lease"]

FORM = b"tonnage-watts-1"
"""Version of the message format. It is signed with each message, so that messages of another format cannot be passed
off as these."""


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
class Keys:
    """Secrets by name: several while one is being replaced."""

    newest: str
    secrets: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a message is not acted on."""

    code: str
    words: str


Message = TypeVar("Message", Inventory, Report, Lease)


def node_secret(secret: bytes, node: str) -> bytes:
    """The secret of one node, derived from the fleet's. A node that knows only its own cannot impersonate another."""
    return hmac.new(secret, FORM + b" node " + node.encode(), sha256).digest()


def sealed(message: Inventory | Report | Lease, keys: Keys, node: str) -> bytes:
    """The message as it is sent: kind, key's name, signature, text. keys: as the node knows them (`node_secret`)."""
    return sealed_text(_KINDS[type(message)], msgspec.json.encode(message), keys, node)


def sealed_text(kind: str, text: bytes, keys: Keys, node: str) -> bytes:
    """Any message of a node's connection as it is sent; its kind is signed with it."""
    signature = _signature(kind, keys.secrets[keys.newest], node, text)
    return b"\n".join((kind.encode(), keys.newest.encode(), signature, text))


def kind_in(travelled: bytes) -> str:
    """The kind that a message says it has; true once `opened_text` has opened it as this kind."""
    return travelled.partition(b"\n")[0].decode("utf-8", "replace")


def opened(kind: type[Message], travelled: bytes, keys: Keys, node: str) -> Message | Refusal:
    """The message, if it was sealed for this node with a known key and is of this kind; otherwise the refusal.

    A lease cannot be passed off as a report, nor one node's message as another's: kind and node are signed with the
    text.
    """
    text = opened_text(_KINDS[kind], travelled, keys, node)
    if isinstance(text, Refusal):
        return text
    try:
        made = msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        return Refusal("Unreadable", f"message is correctly signed but not a valid {_KINDS[kind]}: {error}")
    if made.node != node:
        return Refusal("Forged", f"message names node {made.node}, not {node}")
    return made


def opened_text(kind: str, travelled: bytes, keys: Keys, node: str) -> bytes | Refusal:
    """The text of a message, if it was sealed as this kind for this node with a known key; otherwise the refusal."""
    said, _, rest = travelled.partition(b"\n")
    name, _, rest = rest.partition(b"\n")
    signature, _, text = rest.partition(b"\n")
    if said != kind.encode():
        return Refusal("Forged", f"message is not a {kind} of {node}")
    secret = keys.secrets.get(name.decode("utf-8", "replace"))
    if secret is None:
        return Refusal("UnknownKey", "message is signed with a key that is unknown here, or no longer valid")
    if not hmac.compare_digest(signature, _signature(kind, secret, node, text)):
        return Refusal("Forged", f"signature does not match a {kind} of {node}")
    return text


_KINDS: Mapping[type, Kind] = {Inventory: "inventory", Report: "report", Lease: "lease"}


def _signature(kind: str, secret: bytes, node: str, text: bytes) -> bytes:
    signed = b"\n".join((FORM, kind.encode(), node.encode(), text))
    return hmac.new(secret, signed, sha256).hexdigest().encode()


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
