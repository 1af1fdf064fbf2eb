"""The agent's memory on disk: the limits that were there before it, so that even a crash can be undone."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cluster.errors import ConfigError, Mistake
from power.previous import Previous


def read_previous(path: Path) -> dict[str, Previous]:
    """By device uuid; empty where nothing was written yet.

    Raises ConfigError for a file that is not ours: taking it as empty would forget what is to be restored.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Previous])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            Mistake(
                f"record {path}",
                f"cannot be read: {error}",
                "restore the devices' limits by hand (nvidia-smi -pl), then remove it",
            )
        ) from error


def write_previous(path: Path, previous: Mapping[str, Previous]) -> None:
    """On disk when this returns, whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as file:
        file.write(msgspec.json.encode(dict(sorted(previous.items()))))
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
