"""Record format of the recorder: fixed records of 32 bytes, little-endian, in frames of one header and its records.

A frame is one datagram. Nothing in it is a pointer, a length-prefixed text or a pickle, so a reader needs no trust in
its sender: `checked` accepts a datagram whole or not at all. Readers with numpy view it through `FIELDS`.
"""

import hashlib
import re
import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from math import log2

VERSION = 1
MAGIC = 0xF7
RECORD_BYTES = 32
FRAME_RECORDS = 1000
"""Most records of a frame: 32 kB, well under the 208 kB that Linux lets a datagram of a Unix socket have by default."""

FIELDS = (
    ("kind", "<u1"),
    ("op", "<u1"),
    ("group", "<u2"),
    ("seq", "<u4"),
    ("at_ns", "<i8"),
    ("for_ns", "<i8"),
    ("step", "<u4"),
    ("peer", "<u2"),
    ("size", "<u1"),
    ("phase", "<u1"),
)
"""Names and numpy formats of a record's fields, in order; the table of `Kind` states their meaning."""
RECORD = struct.Struct("<BBHIqqIHBB")
HEADER = struct.Struct("<BBHIqqII")
_STACK = struct.Struct("<BBHI24s")
STACK_BYTES = 24
"""Bytes of text in a STACK record."""
STACK_PIECES = 64
"""Most records of one text: 1.5 kB."""
NO_PEER = 0xFFFF
_U4 = 0xFFFFFFFF
_I8_MAX = (1 << 63) - 1


class Kind(IntEnum):
    """Meaning of a record.

    | kind | op | group | seq | at_ns | for_ns | step | peer | size | phase |
    |---|---|---|---|---|---|---|---|---|---|
    | OPERATION (finished) | `Op` | group | of the operation | enter | exit - enter | step | index in group | size class | before it |
    | BEAT | - | operations in flight | of the beat | now | since the last exit | step | - | - | now |
    | IN_FLIGHT (after its BEAT) | `Op` | group | of the operation | enter | age | step | index in group | size class | now |
    | ERROR | `Op` | group | of the operation | when raised | since its enter | step | index in group | `Failure` | now |
    | END | - | - | - | now | - | step | - | - | now |
    | MEMBER | `Role` | group | own index | group key | - | members | - | - | - |
    | PLACE | `Times` | - | pipeline stage | replica | - | ranks in the job | - | - | - |
    | PREFLIGHT | `AccusedPart` | - | rank that is accused, or speaks | - | - | ranks in the gang | other end | percent of the usual speed | - |
    | STACK | number of the piece | pieces | of the sample | 24 bytes of text in place of all further fields ||||||

    Instants are nanoseconds of the sender's monotonic clock. A header has MAGIC, VERSION, number of records, rank, now,
    wall clock minus monotonic clock, incarnation of the job, and records dropped since the recorder started.
    """  # noqa: E501

    OPERATION = 1
    BEAT = 2
    IN_FLIGHT = 3
    ERROR = 4
    END = 5
    MEMBER = 6
    PLACE = 7
    STACK = 8
    PREFLIGHT = 9


LAST_KIND = int(max(Kind))


class AccusedPart(IntEnum):
    """What a preflight accuses."""

    NOBODY = 0
    """The rank takes part."""
    DEVICE = 1
    NIC = 2
    LINK = 3


class Op(IntEnum):
    """Operation of a process group."""

    OTHER = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BROADCAST = 4
    REDUCE = 5
    ALL_TO_ALL = 6
    BARRIER = 7
    GATHER = 8
    SCATTER = 9
    SEND = 10
    RECEIVE = 11


class Phase(IntEnum):
    """What a rank does between operations."""

    COMPUTE = 0
    CHECKPOINT = 1
    EVALUATION = 2
    COMPILE = 3


class Times(IntEnum):
    """Whose times the operations of a rank bear."""

    HOST = 0
    """The host's, which waits for each operation."""
    QUEUED = 1
    """The host's, which queues operations ahead on a device: not when they ran."""
    DEVICE = 2


class Role(IntEnum):
    """Purpose of a process group."""

    OTHER = 0
    WORLD = 1
    TENSOR = 2
    DATA = 3
    PIPELINE = 4
    EXPERT = 5


class Failure(IntEnum):
    """Class of an error that ended an operation."""

    OTHER = 0
    CONNECTION = 1
    TIMEOUT = 2
    OWN = 3
    """An exception of the rank itself, in no operation."""


def packed(
    kind: int,
    *,
    op: int = 0,
    group: int = 0,
    seq: int = 0,
    at_ns: int = 0,
    for_ns: int = 0,
    step: int = 0,
    peer: int = NO_PEER,
    size: int = 0,
    phase: int = 0,
) -> bytes:
    """One record; numbers too large for their field are cut to its width."""
    return RECORD.pack(
        kind & 0xFF,
        op & 0xFF,
        group & 0xFFFF,
        seq & _U4,
        at_ns,
        min(max(for_ns, 0), _I8_MAX),
        step & _U4,
        peer & 0xFFFF,
        size & 0xFF,
        phase & 0xFF,
    )


def text_pieces(text: bytes, seq: int) -> list[bytes]:
    """A text as STACK records; what is beyond STACK_PIECES of them is cut."""
    cut = [text[start : start + STACK_BYTES] for start in range(0, len(text), STACK_BYTES)][:STACK_PIECES]
    return [_STACK.pack(Kind.STACK, number, len(cut), seq & _U4, piece) for number, piece in enumerate(cut)]


def frame(
    records: Sequence[bytes], *, rank: int, at_ns: int, wall_minus_ns: int, incarnation: int, dropped: int
) -> bytes:
    """Datagram of at most FRAME_RECORDS records with their header."""
    numbers = len(records), rank & _U4, at_ns, wall_minus_ns, incarnation & _U4, min(dropped, _U4)
    return HEADER.pack(MAGIC, VERSION, *numbers) + b"".join(records)


def checked(datagram: bytes) -> str:
    """Reason why a datagram is no frame of this version; empty when it is one."""
    if len(datagram) < RECORD_BYTES or len(datagram) % RECORD_BYTES:
        return f"{len(datagram)} bytes are not whole records"
    magic, version, count = struct.unpack_from("<BBH", datagram)
    if magic != MAGIC:
        return "no header"
    if version != VERSION:
        return f"version {version}, not {VERSION}"
    if count > FRAME_RECORDS or count * RECORD_BYTES + RECORD_BYTES != len(datagram):
        return f"{count} records announced in {len(datagram)} bytes"
    kinds = datagram[RECORD_BYTES::RECORD_BYTES]
    if kinds and not (min(kinds) >= Kind.OPERATION and max(kinds) <= LAST_KIND):
        return "a record of unknown kind"
    return ""


def is_preflight(datagram: bytes) -> bool:
    """Whether a frame, or the first of several, is one of a preflight, whose ranks are pods."""
    return datagram[RECORD_BYTES : RECORD_BYTES + 1] == bytes([Kind.PREFLIGHT])


@lru_cache(4096)
def size_class(size_bytes: int) -> int:
    """Size in eighths of a doubling: 0 for nothing, 1 for one byte, 161 for 1 MiB; 9 % apart."""
    return min(255, 1 + round(8 * log2(size_bytes))) if size_bytes > 0 else 0


def group_key(name: str, ranks: Sequence[int]) -> int:
    """Key of a process group that all its members compute alike, so that no rank needs to send the members."""
    text = name + ":" + ",".join(map(str, ranks))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


_ROLES = (
    (Role.TENSOR, ("tp", "tensor")),
    (Role.PIPELINE, ("pp", "pipe")),
    (Role.EXPERT, ("ep", "expert")),
    (Role.DATA, ("dp", "data", "replicate", "shard", "ddp", "fsdp", "hsdp")),
)
"""Role of a group by how a word of its description begins: a device mesh calls its groups `mesh_tp` and the like."""


def role_of(description: str) -> Role:
    """Role of a group by its description; that of all ranks is the world's."""
    if description == "default_pg":
        return Role.WORLD
    said = re.split(r"[^a-z0-9]+", description.lower())
    found = (role for role, words in _ROLES if any(each.startswith(words) for each in said))
    return next(found, Role.OTHER)
