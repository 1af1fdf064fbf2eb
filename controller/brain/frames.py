"""Frames: a snapshot or a plan as one run of bytes, with untouched columns, to be sent between processes.

A frame is a small head (MessagePack, typed) followed by the columns, each aligned for the processor. Reading one copies
no column: the result is read-only and refers to the frame's own bytes. Unlike a pickle, a frame cannot make its reader
run code: a process with the right to write to a cluster reads plans from a process without it.

Size: 60,000 pods on 6,000 nodes, 4 MB, 30 ms to make and read (benchmarks/brain.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_origin

import msgspec
import numpy as np

from cluster.actions import ACTIONS, Action
from cluster.arrays import Names
from cluster.demand import ExpectedDemand
from cluster.plans import Certificate, Finding, Phase, Plan, Reason, Refused, ServicePlan, Step, Unplaced
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType

FORM = 3
"""Version of the format, raised whenever an older reader could misread a new frame."""
OLDEST = 1
"""Oldest version that is still read: support bundles keep frames across versions. A field that was added since has a
default; raise this where one cannot."""
LAST_BY_GPU_TYPE = 2
"""Last version in which instances were counted by GPU type, instead of by instance type."""
MARK = b"TNGF"
ALIGNED = 64
"""Alignment of columns, in bytes: a cache line."""

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)
"""Errors of decoding invalid bytes: besides msgspec's own, text that is no UTF-8, numbers beyond 64 bits, and values
that nest too deep."""


class FrameError(ValueError):
    """Error for bytes that are no frame, or a frame of another version of Tonnage."""


class _Column(msgspec.Struct, array_like=True, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Bytes from the first byte after the head."""


_StepHead = tuple[str, msgspec.Raw, Reason]
"""Action's kind, encoded action, reason."""


@dataclass(frozen=True, slots=True)
class _PhaseHead:
    name: str
    steps: tuple[_StepHead, ...]
    whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class _PlanHead:
    """Plan whose steps name their action's kind, because a union of dataclasses does not."""

    phases: tuple[_PhaseHead, ...]
    unplaced: tuple[Unplaced, ...]
    services: tuple[ServicePlan, ...]
    refused: tuple[tuple[_StepHead, Reason], ...]
    certificates: dict[str, Certificate]
    findings: tuple[Finding, ...] = ()
    cut_short: tuple[Reason, ...] = ()
    expected: tuple[ExpectedDemand, ...] = ()


def snapshot_frame(snapshot: Snapshot) -> bytes:
    """The frame of a snapshot, to be read by `snapshot_from_frame`."""
    return _frame(snapshot)


def snapshot_from_frame(frame: Buffer) -> Snapshot:
    """The snapshot in a frame. Raises FrameError."""
    return _read(Snapshot, frame)


def plan_frame(plan: Plan) -> bytes:
    """The frame of a plan, to be read by `plan_from_frame`."""
    encode = msgspec.msgpack.Encoder(enc_hook=_no_columns).encode

    def head(step: Step) -> _StepHead:
        return type(step.action).__name__, msgspec.Raw(encode(step.action)), step.reason

    phases = tuple(_PhaseHead(p.name, tuple(head(step) for step in p.steps), p.whole) for p in plan.phases)
    refused = tuple((head(each.step), each.reason) for each in plan.refused)
    certificates = dict(plan.certificates)
    findings, cut_short, expected = plan.findings, plan.cut_short, plan.expected
    return _frame(_PlanHead(phases, plan.unplaced, plan.services, refused, certificates, findings, cut_short, expected))


def plan_from_frame(frame: Buffer, kinds: Sequence[type[Action]] = ACTIONS) -> Plan:
    """The plan in a frame, whose actions are of these kinds. Raises FrameError."""
    read = _read(_PlanHead, frame)
    decoders = {kind.__name__: msgspec.msgpack.Decoder(kind) for kind in kinds}

    def step(head: _StepHead) -> Step:
        name, action, reason = head
        if name not in decoders:
            raise FrameError(f"the plan has an unknown action {name!r}; the brain runs another version of Tonnage")
        return Step(decoders[name].decode(action), reason)

    try:
        return Plan(
            phases=tuple(Phase(p.name, tuple(step(head) for head in p.steps), p.whole) for p in read.phases),
            unplaced=read.unplaced,
            services=read.services,
            refused=tuple(Refused(step(head), reason) for head, reason in read.refused),
            certificates=read.certificates,
            findings=read.findings,
            cut_short=read.cut_short,
            expected=read.expected,
        )
    except FrameError:
        raise
    except UNREADABLE as error:
        raise FrameError(f"the plan cannot be read: {error}") from error


def _frame(what: object) -> bytes:
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
        if isinstance(value, np.generic):
            return value.item()
        return _no_columns(value)

    head = msgspec.msgpack.Encoder(enc_hook=outside).encode(what)
    start = MARK + FORM.to_bytes(4, "little") + len(head).to_bytes(8, "little")
    parts: list[Buffer] = [start, head, bytes(_padded(len(start) + len(head)) - len(start) - len(head))]
    for column in columns:
        parts += [column.data.cast("B") if column.size else b"", bytes(_padded(column.nbytes) - column.nbytes)]
    return b"".join(parts)


def _read(kind: type[T], frame: Buffer) -> T:
    view = memoryview(frame).toreadonly()
    if bytes(view[:4]) != MARK or not OLDEST <= int.from_bytes(view[4:8], "little") <= FORM:
        raise FrameError("not a frame, or a frame of another version of Tonnage; run one version everywhere")
    length = int.from_bytes(view[8:16], "little")
    columns = view[_padded(16 + length) :]

    def inside(wanted: Any, value: Any) -> Any:
        if wanted is Names:
            return Names(msgspec.convert(value, tuple[str, ...]))
        if get_origin(wanted) is np.ndarray:
            return _column(msgspec.convert(value, _Column), columns)
        raise NotImplementedError(f"frames hold no {wanted}")

    try:
        head = view[16 : 16 + length]
        if int.from_bytes(view[4:8], "little") <= LAST_BY_GPU_TYPE:
            head = memoryview(_with_instance_types(head))
        return msgspec.msgpack.Decoder(kind, dec_hook=inside).decode(head)
    except UNREADABLE as error:
        raise FrameError(f"the frame cannot be read: {error}") from error


def _with_instance_types(head: Buffer) -> bytes:
    """Head of a frame by GPU types, with instance types of one device in their place."""

    def upgraded(value: Any, name: str = "") -> Any:
        if isinstance(value, list):
            return [upgraded(each) for each in value]
        if not isinstance(value, dict):
            return value
        if name in ("instances", "replicas"):
            return {InstanceType(gpu_type): count for gpu_type, count in value.items()}
        if name == "routing":
            value["instance_types"] = [InstanceType(gpu_type) for gpu_type in value.pop("gpu_types")]
        return {key: upgraded(each, key) for key, each in value.items()}

    return msgspec.msgpack.encode(upgraded(msgspec.msgpack.decode(head)))


def _column(column: _Column, columns: memoryview) -> np.ndarray[Any, Any]:
    dtype = np.dtype(column.dtype)
    if dtype.hasobject:
        raise FrameError("the frame has a column of objects")
    count = int(np.prod(column.shape, dtype=np.int64))
    if column.offset < 0 or column.offset + count * dtype.itemsize > len(columns):
        raise FrameError("the frame has a column that is cut off")
    flat: np.ndarray[Any, Any] = np.frombuffer(columns, dtype, count, column.offset)
    return flat.reshape(column.shape)


def _padded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _no_columns(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"frames hold no {type(value).__name__}")
