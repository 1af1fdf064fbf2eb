"""What controller and node agents say to each other about watts, and how each knows that the other one said it.

An agent reports, the controller answers with a lease. A lease names the report that it answers, by the agent's own
clock: so it ends by that clock at a time that both can work out, and no two clocks need agree. A report names the
newest lease that its agent has heard, by the controller's clock: so the controller knows how old a reading can be at
most, however long the network kept it.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, TypeVar

import msgspec

from cluster.power import NEVER_S

Kind = Literal["inventory", "report", "lease"]

FORM = b"tonnage-watts-1"
"""The form of messages. It is signed with them, so that no other form's messages can be passed off as these."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One device, as its agent found it."""

    draw_w: float
    age_s: float
    """Seconds between measuring the draw and sending the report."""
    cap_w: float
    """The limit in force, read back from the device; for a lease that allows bursts the lease's watts."""
    phase: int = -1


@dataclass(frozen=True, slots=True)
class Found:
    """What an agent discovered of one device; see the columns of `PowerDeviceTable`."""

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
    """What an agent says first on every line: which devices it has."""

    node: str
    life: str
    devices: Mapping[str, Found]


@dataclass(frozen=True, slots=True)
class Report:
    """What an agent says after each look at its devices."""

    node: str
    life: str
    """Tells the lives of an agent apart: another one after a restart that lost its record."""
    sent_s: float
    """By the agent's clock, which runs on while it restarts and starts anew with the machine."""
    epoch: int
    """Of the newest lease that was accepted and put in force; -1: none in this life."""
    sequence: int
    devices: Mapping[str, Heard]
    answered_epoch: int = -1
    """Of the newest lease that was accepted in this life, in force already or not."""
    answered_s: float = NEVER_S
    """`issued_s` of that lease."""
    since_s: float = 0.0
    """Seconds of the agent's clock between accepting it and sending this report."""
    meter_w: float | None = None
    """What the whole node draws by its own meter; None where nobody reads one."""
    meter_age_s: float = 0.0
    """Seconds between reading it and sending this report."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What the controller answers: so many watts for each device of a node, for so long."""

    node: str
    life: str
    """Of the report that it answers: an agent in another life refuses it."""
    echo_s: float
    """`sent_s` of the report that it answers. The lease ends `for_s` after that, by the agent's clock."""
    for_s: float
    epoch: int
    sequence: int
    issued_s: float
    """By the controller's clock."""
    caps_w: Mapping[str, float]
    safe_w: Mapping[str, float]
    """Where to go when the lease has ended."""
    burst_j: Mapping[str, float] = field(default_factory=dict)
    """Joules above the cap (power/bursts/burst_credit.py); devices that are not named may not burst."""
    burst_to_w: Mapping[str, float] = field(default_factory=dict)
    """The highest limit of a burst that begins now; the device's own highest where none is named."""
    credit_back_s: float = 300.0
    """In so long credit for bursts that was used up comes back."""
    only_lower: bool = False
    """No cap is raised by it, whatever it names: a controller that starts anew takes over what it finds."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Secrets by name: several while one is being replaced."""

    newest: str
    secrets: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message is not acted on."""

    code: str
    words: str


Message = TypeVar("Message", Inventory, Report, Lease)


def node_secret(secret: bytes, node: str) -> bytes:
    """The secret of one node, made of the fleet's. A node that knows its own only can speak for no other one."""
    return hmac.new(secret, FORM + b" node " + node.encode(), sha256).digest()


def sealed(message: Inventory | Report | Lease, keys: Keys, node: str) -> bytes:
    """The message as it travels: key's name, signature, text. keys: as the node knows them (see `node_secret`)."""
    text = msgspec.json.encode(message)
    return b"\n".join(
        (keys.newest.encode(), _signature(_KINDS[type(message)], keys.secrets[keys.newest], node, text), text)
    )


def opened(kind: type[Message], travelled: bytes, keys: Keys, node: str) -> Message | Refusal:
    """The message, when it was sealed for this node by someone who has a key, and is of this kind.

    A lease cannot be passed off as a report, nor one node's as another's: both are signed with the text.
    """
    name, _, rest = travelled.partition(b"\n")
    signature, _, text = rest.partition(b"\n")
    secret = keys.secrets.get(name.decode("utf-8", "replace"))
    if secret is None:
        return Refusal("UnknownKey", "it is sealed with a key that is not known here, or no longer")
    if not hmac.compare_digest(signature, _signature(_KINDS[kind], secret, node, text)):
        return Refusal("Forged", f"its signature does not fit a {_KINDS[kind]} of {node}")
    try:
        made = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        return Refusal("Unreadable", f"it is signed, and yet no {_KINDS[kind]}: {error}")
    if made.node != node:
        return Refusal("Forged", f"it speaks of {made.node}, not of {node}")
    return made


_KINDS: Mapping[type, Kind] = {Inventory: "inventory", Report: "report", Lease: "lease"}


def _signature(kind: Kind, secret: bytes, node: str, text: bytes) -> bytes:
    signed = b"\n".join((FORM, kind.encode(), node.encode(), text))
    return hmac.new(secret, signed, sha256).hexdigest().encode()
