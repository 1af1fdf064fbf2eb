"""The agent's record on disk: the original limits of devices, and the lease that it holds.

It is on the host, so that it outlives the pod. A crash can be undone, and a restarted agent resumes its lease.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cluster.errors import ConfigError, Mistake
from power.devices.original_limits import OriginalLimit
from power.leases.holder import Holder


@dataclass(frozen=True, slots=True)
class Record:
    """Contents of the record."""

    previous: dict[str, OriginalLimit] = field(default_factory=dict)
    """Original limits by device UUID."""
    boot: str = ""
    """Start of the machine in which this was written; clocks and limits started again at the next one."""
    holder: Holder | None = None


def read_record(path: Path) -> Record:
    """The record last written; an empty one where there is no file.

    Raises ConfigError for an unreadable file: treating it as empty would lose the limits to be restored.
    """
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return Record()
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            Mistake(
                f"record {path}",
                f"cannot be read: {error}",
                "restore the devices' limits by hand (nvidia-smi -pl), then remove it",
            )
        ) from error


def write_record(path: Path, record: Record) -> None:
    """Writes the record to disk before returning, completely or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as file:
        # Not JSON: it has no infinity, which is the end of a new holder's lease.
        file.write(msgspec.msgpack.encode(record))
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def boot_id(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Identifier of this start of the machine."""
    return path.read_text(encoding="ascii").strip()
