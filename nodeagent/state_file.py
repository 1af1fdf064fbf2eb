"""The agent's memory on disk: the limits that were there before it, and the lease that it holds.

On the host, so that it outlives the pod. A crash can be undone, and a restart goes on under the lease that it had.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cluster.errors import ConfigError, Mistake
from power.devices.original_limits import Previous
from power.leases.holder import Holder


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered."""

    previous: dict[str, Previous] = field(default_factory=dict)
    """By device uuid."""
    boot: str = ""
    """Which start of the machine this was written in: after another one, clocks and limits began anew."""
    holder: Holder | None = None


def read_record(path: Path) -> Record:
    """What was written last; an empty record where nothing was.

    Raises ConfigError for a file that is not ours: taking it as empty would forget what is to be restored.
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
    """On disk when this returns, whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as file:
        # Not JSON: it has no infinity, which is when the lease of a new holder ends.
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
    """Tells one start of the machine from another."""
    return path.read_text(encoding="ascii").strip()
