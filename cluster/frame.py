"""Frame: a value of dataclasses and arrays as one run of bytes, with untouched columns, to be sent between processes.

A frame is a small head (MessagePack, typed) followed by the columns, each aligned for the processor. Reading one copies
no column: the result is read-only and refers to the frame's own bytes. Unlike a pickle, a frame cannot make its reader
run code: a process with the right to write to a cluster reads frames from a process without it.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar, get_origin

import msgspec
import numpy as np

from cluster.arrays import Names
from cluster.errors import UNREADABLE

FORM = 3
"""Version of the format, raised whenever an older reader could misread a new frame. Support bundles keep frames: a
field that is added has a default, so that old ones are still read."""
MARK = b"TNGF"
NUMBERS = re.compile(r"[<>|][biuf]\d{1,2}")
"""Types of columns, as numpy writes them: booleans, integers and floating point numbers."""
ALIGNED = 64
"""Alignment of columns, in bytes: a cache line."""

Buffer = bytes | bytearray | memoryview
NO_KINDS: Mapping[type, type] = MappingProxyType({})
T = TypeVar("T")


class FrameError(ValueError):
    """Error for bytes that are no frame, or a frame of another version of Tonnage."""


class _Column(msgspec.Struct, array_like=True, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Bytes from the first byte after the head."""


def framed(what: object) -> bytes:
    """The frame of a value, to be read by `unframed`. Raises NotImplementedError for a value of another kind."""
    columns: list[np.ndarray[Any, Any]] = []
    end = 0

    def outside(value: Any) -> Any:
        nonlocal end
        if isinstance(value, Names):
            return value[:]
        if isinstance(value, np.ndarray):
            columns.append(np.ascontiguousarray(value))
            column = _Column(value.dtype.str, value.shape, end)
            end += _padded(value.nbytes)
            return column
        return no_columns(value)

    head = msgspec.msgpack.Encoder(enc_hook=outside).encode(what)
    start = MARK + FORM.to_bytes(4, "little") + len(head).to_bytes(8, "little")
    parts: list[Buffer] = [start, head, bytes(_padded(len(start) + len(head)) - len(start) - len(head))]
    for column in columns:
        parts += [column.data.cast("B") if column.size else b"", bytes(_padded(column.nbytes) - column.nbytes)]
    return b"".join(parts)


def unframed(kind: type[T], frame: Buffer, kinds: Mapping[type, type] = NO_KINDS) -> T:
    """The value in a frame; kinds: class that is read for each base class in it. Raises FrameError."""
    view = memoryview(frame).toreadonly()
    if bytes(view[:4]) != MARK or int.from_bytes(view[4:8], "little") != FORM:
        raise FrameError("not a frame, or a frame of another version of Tonnage; run one version everywhere")
    length = int.from_bytes(view[8:16], "little")
    columns = view[_padded(16 + length) :]

    def inside(wanted: Any, value: Any) -> Any:
        if wanted is Names:
            return Names(msgspec.convert(value, tuple[str, ...]))
        if wanted in kinds:
            return msgspec.convert(value, kinds[wanted], dec_hook=inside)
        if get_origin(wanted) is np.ndarray:
            column = msgspec.convert(value, _Column)
            # Other names mean structures, objects or, to numpy's parser, anything: a comma alone ends in a SyntaxError.
            if not NUMBERS.fullmatch(column.dtype):
                raise FrameError("the frame has a column of something other than numbers")
            dtype = np.dtype(column.dtype)
            count = int(np.prod(column.shape, dtype=np.int64))
            if column.offset < 0 or column.offset + count * dtype.itemsize > len(columns):
                raise FrameError("the frame has a column that is cut off")
            flat: np.ndarray[Any, Any] = np.frombuffer(columns, dtype, count, column.offset)
            return flat.reshape(column.shape)
        raise NotImplementedError(f"frames hold no {wanted}")

    try:
        return msgspec.msgpack.Decoder(kind, dec_hook=inside).decode(view[16 : 16 + length])
    except UNREADABLE as error:
        raise FrameError(f"the frame cannot be read: {error}") from error


def _padded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def no_columns(value: Any) -> Any:
    """Encodes numbers of numpy, for values without columns."""
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"frames hold no {type(value).__name__}")
