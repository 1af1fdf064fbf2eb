"""Decoding: frames of records as one structured array, without a loop over frames."""

from collections import Counter, deque
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

import msgspec
import numpy as np

from cluster import arrays, frame
from tonnage.records import FIELDS, FRAME_RECORDS, LAST_KIND, MAGIC

RECORD = np.dtype(list(FIELDS))
HEADER = np.dtype(
    [
        ("magic", "<u1"),
        ("version", "<u1"),
        ("count", "<u2"),
        ("rank", "<u4"),
        ("at_ns", "<i8"),
        ("wall_minus_ns", "<i8"),
        ("incarnation", "<u4"),
        ("dropped", "<u4"),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Records of several frames in the order of their arrival, and the frames' headers."""

    rows: arrays.Array
    """Shape (records,), dtype RECORD."""
    rank: arrays.IntArray
    """Shape (records,), the rank whose frame each came in."""
    headers: arrays.Array
    """Shape (frames,), dtype HEADER."""

    def of_kind(self, *kinds: int) -> "Records":
        chosen = np.isin(self.rows["kind"], kinds)
        return Records(self.rows[chosen], self.rank[chosen], self.headers)


def frame_starts(frames: bytes, starts: arrays.IntArray) -> arrays.IntArray | None:
    """Rows at which frames begin, rising; None unless the chunks that begin at these rows hold whole frames alone.

    starts: shape (chunks,), rising, from 0.
    """
    rows = np.frombuffer(frames, dtype=RECORD)
    kind = rows["kind"]
    at = np.flatnonzero(kind == MAGIC)
    count = rows[at].view(HEADER)["count"]
    whole = (
        len(at) > 0
        and np.array_equal(np.diff(at, append=len(rows)) - 1, count)
        and int(count.max()) <= FRAME_RECORDS
        and int(np.count_nonzero(kind > LAST_KIND)) == len(at)
        and bool(np.isin(starts, at).all())
    )
    return at if whole else None


def decoded(frames: frame.Buffer) -> Records:
    """Records of whole frames, one after another; each was accepted by `tonnage.records.checked`.

    25 million records a second on one core.
    """
    rows = np.frombuffer(frames, dtype=RECORD)
    at = np.flatnonzero(rows["kind"] == MAGIC)
    headers = rows[at].view(HEADER)
    lengths = np.diff(at, append=len(rows)) - 1
    body = np.ones(len(rows), dtype=np.bool_)
    body[at] = False
    return Records(rows[body], np.repeat(headers["rank"].astype(np.int64), lengths), headers)


PROBE_KIND = "probe"
"""Kind of the orders on the agents' link."""
MOST_PEERS = 4
"""Peers in one order, and tokens."""


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


@dataclass(frozen=True, slots=True)
class ProbeAddress:
    """Where an agent admits probes."""

    host: str
    port: int


REPORT_KIND = "health"
"""Kind of these messages on the agents' link."""
LONGEST_FRAMES = 96 * 1024
"""Bytes of frames in one report; a message of the agents' protocol holds 256 KiB."""
MOST_EVIDENCE = 256
"""Pieces of evidence in one report."""


class Source(StrEnum):
    """Where a node agent found a piece of evidence; none is written by a pod."""

    KERNEL = "kernel"
    NIC = "nic"
    DEVICE = "device"
    PROCESS = "process"
    CGROUP = "cgroup"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact about a node, its devices or the process of a rank, as its agent read it."""

    source: Source
    code: str
    """What was found, in CamelCase: `Xid79`, `LinkDown`, `Throttled`, `Gone`."""
    subject: str
    """Device, NIC or process that it is about."""
    age_s: float
    """Seconds since it was first seen, when the report was made."""
    words: str = ""
    pod: str = ""
    """UID of the pod that it is about; empty for the whole node."""
    rank: int = -1
    speed_share: float = 1.0
    """Speed that a throttle leaves, as a share of full speed."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Message of an agent, several a second while its pods record."""

    node: str
    life: str
    """Session of the agent."""
    sequence: int
    """Number of the report in this session, rising: a repeated one is refused."""
    frames: Mapping[str, bytes] = field(default_factory=dict)
    """Whole frames by the UID of the pod that wrote them, as the kernel names it."""
    evidence: tuple[Evidence, ...] | None = None
    """All that is known now; None: nothing has changed since the last report."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Datagrams that were not forwarded since the agent started, by cause."""
    probes_at: ProbeAddress | None = None
    """Where this agent admits pair probes; None where it takes no part in them."""
    probed: tuple[ProbeResult, ...] = ()
    """Pairs that it measured of late; each is sent several times."""


def packed(message: HealthReport | ProbeOrder) -> bytes:
    """A report or an order as it is sent."""
    return msgspec.msgpack.encode(message)


def report_in(body: bytes) -> HealthReport:
    """A report that was received. Raises errors of UNREADABLE for anything else."""
    return msgspec.msgpack.decode(body, type=HealthReport)


def order_in(body: bytes) -> ProbeOrder:
    """An order that was received. Raises errors of UNREADABLE for anything else."""
    return msgspec.msgpack.decode(body, type=ProbeOrder)


class Backlog:
    """What several senders have on its way: bounded, the oldest of whoever has most dropped first, taken in turns.

    lock: lets one thread add or take at a time.
    """

    def __init__(self, lock: AbstractContextManager[object], most_bytes: int, most_of_one: float = inf) -> None:
        self._lock, self._most, self._most_of_one = lock, most_bytes, most_of_one
        self._waiting: dict[str, deque[bytes]] = {}
        self._bytes: Counter[str] = Counter()
        self.waiting_bytes = self.dropped = 0

    def add(self, sender: str, body: bytes) -> None:
        """Adds what a sender has sent; drops what no longer fits."""
        with self._lock:
            self._waiting.setdefault(sender, deque()).append(body)
            self._bytes[sender] += len(body)
            self.waiting_bytes += len(body)
            while self._bytes[sender] > self._most_of_one or self.waiting_bytes > self._most:
                floods = self._bytes[sender] > self._most_of_one
                self._popped(sender if floods else max(self._bytes, key=self._bytes.__getitem__))
                self.dropped += 1

    def take(self, most_bytes: float = inf) -> list[tuple[str, bytes]]:
        """The oldest of each sender in turn, together at most this long."""
        taken: list[tuple[str, bytes]] = []
        with self._lock:
            senders = deque(self._waiting)
            while senders and len(self._waiting[senders[0]][0]) <= most_bytes:
                taken.append((senders[0], self._popped(senders[0])))
                most_bytes -= len(taken[-1][1])
                if senders[0] in self._waiting:
                    self._waiting[senders[0]] = self._waiting.pop(senders[0])  # who was served waits behind the others
                    senders.append(senders[0])
                senders.popleft()
        return taken

    def _popped(self, sender: str) -> bytes:
        """The oldest of a sender, who is forgotten with the last one."""
        body = self._waiting[sender].popleft()
        self._bytes[sender] -= len(body)
        self.waiting_bytes -= len(body)
        if not self._waiting[sender]:
            del self._waiting[sender], self._bytes[sender]
        return body
