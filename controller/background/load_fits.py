"""Task "load_fits": fits the forecasts of a few load histories, which share one ensemble of trees.

Who shares depends on the policies' names alone (`batches_of`), not on who happens to be due, and the function is the
same wherever it runs: the same histories give the same fits, bit by bit.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

from autoscaler.forecast.boosted import BoostedFit
from autoscaler.forecast.fits import Fit, Trial, fit_shard
from autoscaler.forecast.linear import LinearFit
from autoscaler.series import Series
from cluster.frame import Buffer, framed, unframed
from controller.background.tasks import BackgroundTask

KIND = "load_fits"
FORM = 1
"""Version of what fits mean, raised when older ones could not be used: they outlive an upgrade (`fits_in`)."""
BATCH = 8
"""Most policies in a batch, on average. Chosen: one with trees takes 1.5 s of a core alone, 0.7 s in such a batch and
0.6 s in one of 50; and what a lost worker has to repeat takes seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadHistory:
    """Load of one policy over the last weeks."""

    scaler: str
    """`namespace/name` of the ScalingPolicy."""
    series: Series
    boosted: bool = True
    """Whether gradient-boosted quantiles are fitted, too."""


@dataclass(frozen=True, slots=True)
class _Batch:
    histories: tuple[LoadHistory, ...]


@dataclass(frozen=True, slots=True)
class _FitHead:
    """Fit of one history, without its trees."""

    scaler: str
    linear: LinearFit
    fitted_at_s: float
    trial: Trial
    trees: int
    """Place in `_BatchFits.trees`; -1: none."""


@dataclass(frozen=True, slots=True)
class _BatchFits:
    """Fits of a batch. They share their trees, which are most of the bytes."""

    fits: tuple[_FitHead, ...]
    failed: tuple[str, ...]
    """Policies whose history is too short to be fitted."""
    trees: tuple[BoostedFit, ...]


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
    histories = unframed(_Batch, batch).histories
    failed, heads, trees = list[str](), list[_FitHead](), list[BoostedFit]()
    for boosted in (False, True):
        part = [each for each in histories if each.boosted == boosted]
        for history, fit in zip(part, fit_shard([each.series for each in part], boosted=boosted), strict=True):
            if fit is None:
                failed.append(history.scaler)
                continue
            if fit.boosted is not None and not trees:
                trees.append(fit.boosted)
            place = -1 if fit.boosted is None else 0
            heads.append(_FitHead(history.scaler, fit.linear, fit.fitted_at_s, fit.trial, place))
    return framed(_BatchFits(tuple(heads), tuple(failed), tuple(trees)))


def fits_in(result: Buffer) -> Mapping[str, Fit | None]:
    """Fits by policy; None where the history was too short. Raises FrameError."""
    read = unframed(_BatchFits, result)
    fits: dict[str, Fit | None] = dict.fromkeys(read.failed)
    for head in read.fits:
        trees = read.trees[head.trees] if 0 <= head.trees < len(read.trees) else None
        fits[head.scaler] = Fit(head.linear, head.fitted_at_s, head.trial, trees)
    return fits
