"""File of a replay: a NumPy archive of its arrays, one of which holds everything else as JSON."""

import io
import zipfile
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from cluster.workloads import PodShape
from simulator.packing.replay import Curve, Replay

COLUMNS = tuple(field.name for field in fields(Curve))


class _Rest(msgspec.Struct):
    """Fields that are not arrays."""

    policy: str
    seed: int
    unplaced: list[tuple[PodShape, int]]
    shortages: dict[str, int]
    moved: int
    upkeep_s: float


def to_bytes(replay: Replay) -> bytes:
    """Content of an `.npz` file that `numpy.load` opens."""
    rest = _Rest(
        replay.policy,
        replay.seed,
        list(replay.unplaced.items()),
        dict(replay.shortages),
        replay.moved,
        replay.upkeep_s,
    )
    arrays: dict[str, Any] = {name: getattr(replay.curve, name) for name in COLUMNS}
    file = io.BytesIO()
    written = np.frombuffer(msgspec.json.encode(rest), dtype=np.uint8)
    np.savez_compressed(file, decision_s=replay.decision_s, rest=written, **arrays)
    return file.getvalue()


def from_bytes(data: bytes) -> Replay:
    """Replay from such a file. Raises ValueError for anything else."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            rest = msgspec.json.decode(archive["rest"].tobytes(), type=_Rest)
            curve = Curve(**{name: archive[name] for name in COLUMNS})
            decision_s = archive["decision_s"]
    except (zipfile.BadZipFile, KeyError, EOFError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a replay: {error}") from error
    return Replay(
        policy=rest.policy,
        seed=rest.seed,
        curve=curve,
        decision_s=decision_s,
        unplaced=dict(rest.unplaced),
        shortages=rest.shortages,
        moved=rest.moved,
        upkeep_s=rest.upkeep_s,
    )
