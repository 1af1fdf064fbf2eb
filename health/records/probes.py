"""Pair probes as messages: the controller's signed order to an agent, and what the agent measured."""

from dataclasses import dataclass

import msgspec

KIND = "probe"
"""Kind of the orders on the agents' link."""
MOST_PEERS = 4
"""Peers in one order, and tokens."""
MOST_BYTES = 16 * 1024 * 1024
"""Bytes of one burst, each way."""
MOST_BURST_S = 0.3
BURSTS = 3
"""Bursts each way; the best counts, since other traffic only slows them."""
PINGS = 20
PAIR_S = 4.0
"""Longest time of one pair with all its bursts."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another agent that is to be measured."""

    node: str
    host: str
    port: int
    token: str
    """Secret of this one measurement, hexadecimal; its peer has it from the controller as well."""


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """What one agent is to do in one round."""

    node: str
    life: str
    """Session of the agent that it is for."""
    answers: int
    """Number of the report that it answers: an older one has been overtaken, or is a recording."""
    number: str
    """Name of the round, in the results."""
    measure: tuple[Peer, ...] = ()
    admit: tuple[str, ...] = ()
    """Tokens of agents that may measure this one, each once."""
    burst_bytes: int = MOST_BYTES
    burst_s: float = MOST_BURST_S


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One measured pair."""

    number: str
    peer: str
    age_s: float
    """Seconds between measuring and reporting."""
    rtt_s: float = 0.0
    """Median round trip."""
    out_bytes_per_s: float = 0.0
    """To the peer, as the peer counted it."""
    in_bytes_per_s: float = 0.0
    failure: str = ""
    """Why there is no measurement; `unreachable` and `silent` speak of the network, others do not."""


LOST = ("unreachable", "silent")


@dataclass(frozen=True, slots=True)
class ProbeAddress:
    """Where an agent admits probes."""

    host: str
    port: int


def packed_order(order: ProbeOrder) -> bytes:
    return msgspec.msgpack.encode(order)


def order_in(text: bytes) -> ProbeOrder:
    """An order that was received. Raises errors of UNREADABLE for anything else."""
    return msgspec.msgpack.decode(text, type=ProbeOrder)
