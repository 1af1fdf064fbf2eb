"""The agent's record on disk: the original limits of devices, and the lease that it holds.

Both are on the host, so that they outlive the pod. A crash can be undone, and a restarted agent resumes its lease. The
lease has a file of its own, since it changes all the time and need not survive the machine.
"""

import asyncio
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import structlog

from cluster.errors import UNREADABLE, ConfigError, Mistake
from power.devices.backend import OriginalLimit, tell_the_same
from power.leases.holder import Holder


@dataclass(frozen=True, slots=True)
class AcceptedEpoch:
    """Newest epoch of which a node has accepted a lease."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Record:
    """Contents of the record."""

    previous: dict[str, OriginalLimit] = field(default_factory=dict)
    """Original limits by device UUID."""
    boot: str = ""
    """Start of the machine in which this was written; clocks and limits started again at the next one."""
    holder: Holder | None = None
    heard: AcceptedEpoch | None = None
    """What is known of a lease that was lost, if anything."""


def newest_epoch_in(record: Record) -> AcceptedEpoch | None:
    """The newest epoch that this record tells of."""
    return record.heard if record.holder is None else AcceptedEpoch(record.holder.node, record.holder.epoch)


def read_record(path: Path) -> Record:
    """The record last written; an empty one where there is no file.

    Raises ConfigError for an unreadable file: treating it as empty would lose the limits to be restored. An unreadable
    lease is no lease.
    """
    try:
        record = msgspec.msgpack.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return Record()
    except (OSError, *UNREADABLE) as error:
        raise ConfigError(
            Mistake(
                f"record {path}",
                f"cannot be read: {error}",
                "restore the devices' limits by hand (nvidia-smi -pl), then remove it",
            )
        ) from error
    holder = _read_lease(lease_path(path), record)
    return record if holder is None else replace(record, holder=holder, heard=None)


def write_record(path: Path, record: Record, known: Record | None = None) -> None:
    """Writes what differs from `known`, each file completely or not at all. Raises OSError.

    Original limits, limits of ours that were not on record, and a new epoch are on disk before this returns; what the
    record tells already is not written again. A lease need only outlive this process, since it ends with the start of
    the machine: it is not synchronised. A lease that cannot be written is removed: an older one may allow more.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lease, is_new = lease_path(path), known is None or (record.holder, record.boot) != (known.holder, known.boot)
    try:
        newest = newest_epoch_in(record)
        is_known = known is not None and (known.boot, newest_epoch_in(known)) == (record.boot, newest)
        if known is None or not (is_known and tell_the_same(known.previous, record.previous)):
            # Not JSON: it has no infinity, which is the end of a new holder's lease.
            _write(path, msgspec.msgpack.encode(replace(record, holder=None, heard=newest)), durably=True)
        if is_new:
            _write(lease, msgspec.msgpack.encode(_Lease(record.boot, record.holder)), durably=False)
    except OSError:
        if is_new:
            lease.unlink(missing_ok=True)
        raise


def lease_path(path: Path) -> Path:
    """The file with the lease, beside the record."""
    return path.with_name(f"{path.name}.lease")


@dataclass(frozen=True, slots=True)
class _Lease:
    boot: str
    holder: Holder | None


def _read_lease(path: Path, record: Record) -> Holder | None:
    """The lease beside this record; None where it is of an earlier start, or of an epoch before the newest."""
    try:
        lease = msgspec.msgpack.decode(path.read_bytes(), type=_Lease)
    except (OSError, *UNREADABLE):
        return None
    if lease.holder is None or lease.boot != record.boot:
        return None
    return lease.holder if record.heard is None or lease.holder.epoch >= record.heard.epoch else None


def _write(path: Path, content: bytes, *, durably: bool) -> None:
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        if durably:
            os.fsync(file.fileno())
    scratch.replace(path)
    if not durably:
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Identifier of this start of the machine."""
    return path.read_text(encoding="ascii").strip()


log = structlog.get_logger(__name__)
PATIENCE_S = 0.5
"""Time for one write; a disk that needs longer counts as failed, and its write goes on in the background."""


class RecordWriter:
    """Writes one record after the other, and says whether each is on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: asyncio.Future[str] | None = None
        self._on_disk: Record | None = None
        """What the files hold; None where that is unknown."""
        self._why = ""

    async def write(self, record: Record) -> bool:
        """Whether this record is on disk. False at once while an earlier write hangs."""
        if self._running is not None and not self._running.done():
            return False
        if record == self._on_disk:
            return True
        known, self._on_disk = self._on_disk, None
        self._running = running = asyncio.get_running_loop().create_future()
        # A daemon: a thread that hangs in the kernel must not keep the process from ending.
        threading.Thread(target=self._write, args=(record, known, running), daemon=True).start()
        await asyncio.wait({running}, timeout=PATIENCE_S)
        why = running.result() if running.done() else "no answer within the time limit"
        if not why:
            self._on_disk = record
        if why and not self._why:
            log.error("record not written: no limit is raised until it is", path=str(self._path), why=why)
        elif self._why and not why:
            log.info("record written again", path=str(self._path))
        self._why = why
        return not why

    def _write(self, record: Record, known: Record | None, running: "asyncio.Future[str]") -> None:
        why = ""
        try:
            write_record(self._path, record, known)
        except Exception as error:  # noqa: BLE001 - whatever it was, the writer waits for an answer
            why = f"{type(error).__name__}: {error}"
        with suppress(RuntimeError):  # the loop was closed while the disk hung
            running.get_loop().call_soon_threadsafe(running.set_result, why)
