"""Task "load_fits": fits the forecasts of a few load histories.

Which ones depends on the policies' names alone (`batches_of`), not on who happens to be due, and the function is the
same wherever it runs: the same histories give the same fits, bit by bit.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

from autoscaler.forecast.fits import Fit, fit
from autoscaler.series import Series
from cluster.frame import Buffer, framed, unframed
from controller.background.tasks import BackgroundTask

KIND = "load_fits"
FORM = 3
"""Version of what fits mean, raised when older ones could not be used: they outlive an upgrade (`fits_in`)."""
BATCH = 8
"""Most policies in a batch, on average. Chosen: fits take 0.2 s each, so a batch outweighs its way, and what a lost
worker has to repeat takes seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadHistory:
    """Load of one policy over the last weeks."""

    scaler: str
    """Name of its fits: `namespace/name` of the ScalingPolicy, and what it is about."""
    series: Series


@dataclass(frozen=True, slots=True)
class _Batch:
    histories: tuple[LoadHistory, ...]


@dataclass(frozen=True, slots=True)
class _BatchFits:
    """Fits of a batch."""

    policies: tuple[str, ...]
    fits: tuple[Fit, ...]
    """Of these policies, in their order."""
    failed: tuple[str, ...]
    """Policies whose history is too short to be fitted."""


def batches_of(names: Collection[str]) -> dict[int, tuple[str, ...]]:
    """The policies in batches, by number: a name that comes or goes changes its own alone, until there are twice as
    many."""
    count = 1
    while count * BATCH < len(names):
        count *= 2
    batches: list[list[str]] = [[] for _ in range(count)]
    for name in sorted(names):
        batches[crc32(name.encode()) % count].append(name)
    return {number: tuple(each) for number, each in enumerate(batches) if each}


def task_of(histories: Iterable[LoadHistory]) -> BackgroundTask:
    """The task that fits these histories."""
    return BackgroundTask(KIND, (framed(_Batch(tuple(histories))),))


def fitted(batch: Buffer) -> bytes:
    """The fits, to be read by `fits_in`, of the histories in a task's input."""
    made = {each.scaler: fit(each.series) for each in unframed(_Batch, batch).histories}
    found = {name: one for name, one in made.items() if one is not None}
    return framed(_BatchFits(tuple(found), tuple(found.values()), tuple(made.keys() - found.keys())))


def fits_in(result: Buffer) -> Mapping[str, Fit | None]:
    """Fits by policy; None where the history was too short. Raises FrameError."""
    read = unframed(_BatchFits, result)
    return {**dict.fromkeys(read.failed), **dict(zip(read.policies, read.fits, strict=False))}
