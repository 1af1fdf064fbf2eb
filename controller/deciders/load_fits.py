"""Background decider "load_fits": fits the forecasts of load histories, so that thousands of them never delay a plan.

The part that measures load (controller/loops/autoscaler/loop.py) puts a few due histories into the snapshot. Each
slot fits its shard of them, and the plan carries the fits back as `Plan.fits`. Nothing else of the cluster is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

from autoscaler.forecast.boosted import BoostedFit
from autoscaler.forecast.fits import Fit, Trial, fit_shard
from autoscaler.forecast.linear import LinearFit
from autoscaler.series import Series
from cluster.autoscaling import LoadHistory
from cluster.plans import FitsResult, Plan
from cluster.snapshot import Snapshot
from controller.deciders.decider import Proposal
from controller.deciders.decisions import Decisions

NAME = "load_fits"
MOST_SLOTS = 8
WITHIN_S = 60.0
FIT_S = 1.2
"""Seconds counted for one fit. Measured: 0.2 to 0.6 s of one core for two weeks at a minute; twice that here."""
BATCH = int(WITHIN_S / FIT_S)
"""Most histories that a slot fits in one run; the part offers no more for each slot."""


@dataclass(frozen=True, slots=True)
class FitHead:
    """Fit of one history, without its trees."""

    scaler: str
    linear: LinearFit
    fitted_at_s: float
    trial: Trial
    trees: int
    """Place in `ShardFits.trees`; -1: none."""


@dataclass(frozen=True, slots=True)
class ShardFits(FitsResult):
    """Fits of a shard. They share their trees, which are most of the bytes."""

    fits: tuple[FitHead, ...]
    failed: tuple[str, ...]
    """Policies whose history is too short to be fitted."""
    trees: tuple[BoostedFit, ...]

    @classmethod
    def of(cls, fits: Mapping[str, Fit | None]) -> "ShardFits":
        trees: list[BoostedFit] = []
        heads = []
        for scaler, fit in fits.items():
            if fit is None:
                continue
            if fit.boosted is not None and all(fit.boosted is not each for each in trees):
                trees.append(fit.boosted)
            place = next((n for n, each in enumerate(trees) if each is fit.boosted), -1)
            heads.append(FitHead(scaler, fit.linear, fit.fitted_at_s, fit.trial, place))
        failed = tuple(scaler for scaler, fit in fits.items() if fit is None)
        return cls(tuple(heads), failed, tuple(trees))

    def by_scaler(self) -> Mapping[str, Fit | None]:
        """Fits by policy; None where the history was too short."""
        fits: dict[str, Fit | None] = dict.fromkeys(self.failed)
        for head in self.fits:
            trees = self.trees[head.trees] if 0 <= head.trees < len(self.trees) else None
            fits[head.scaler] = Fit(head.linear, head.fitted_at_s, head.trial, trees)
        return fits


@dataclass(frozen=True, slots=True)
class LoadFits:
    """The decider of one slot. Its memory is the digest of the histories that it fitted last."""

    slot: int
    slots: int
    within_s: float = WITHIN_S

    @property
    def name(self) -> str:
        return f"{NAME}_{self.slot}"

    def propose(self, snapshot: Snapshot, memory: bytes, deadline_s: float) -> Proposal:
        mine = [each for each in snapshot.load_histories if slot_of(each.scaler, self.slots) == self.slot]
        batch = mine[: int(deadline_s / FIT_S)]
        seen = _digest(batch)
        if not batch or seen == memory:  # the same offer again: the fits are on their way
            return Proposal(memory=memory)
        return Proposal(Plan(fits=(ShardFits.of(fitted(batch)),)), seen)

    def adopt(self, snapshot: Snapshot, proposed: Plan) -> Plan:  # noqa: ARG002 - fits are checked by their part
        return Plan(fits=proposed.fits)


def load_fits_of(slot: int, decisions: Decisions) -> LoadFits | None:
    """The decider of this slot; None beyond the slots of the settings."""
    return LoadFits(slot, decisions.fit_slots) if slot < decisions.fit_slots else None


def slot_of(scaler: str, slots: int) -> int:
    """Slot that fits this policy: always the same one."""
    return crc32(scaler.encode()) % slots


def fitted(batch: list[LoadHistory]) -> Mapping[str, Fit | None]:
    """Fits by policy; None where the history is too short. Those with trees share theirs."""
    found: dict[str, Fit | None] = {}
    for boosted in (False, True):
        part = [each for each in batch if each.boosted == boosted]
        series = [Series(each.start_s, each.step_s, each.values, each.is_censored) for each in part]
        found.update(zip((each.scaler for each in part), fit_shard(series, boosted=boosted), strict=True))
    return found


def _digest(batch: list[LoadHistory]) -> bytes:
    found = blake2b(digest_size=16)
    for each in batch:
        found.update(f"{each.scaler} {each.start_s} {len(each.values)} {each.boosted}\n".encode())
    return found.digest()
