"""Bid-price packing, Tonnage's own policy: a pod goes where it lowers the worth of what stays free the least.

The worth of a node's free resources is what they could still host at the prices of a linear program over the expected
demand, with two smaller terms for what could be hosted of each class alone and for expected fragments. GPU types that
picky pods will need cost a surcharge. What is expected is given, or learned from what arrives. Without prices the
policy is FGD.
"""

from collections.abc import Iterable

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.hardware import WHOLE_GPU_MILLI
from cluster.workloads import PodShape
from placement.engine.ledger import Ledger
from placement.engine.policy import Policy, Rated
from placement.policies.device_candidates import options
from placement.policies.fgd import Fgd
from placement.policies.fragmentation import Fragmentation, PodMix
from placement.prices.arrival_mix import ArrivalMix
from placement.prices.bid_settings import BidSettings
from placement.prices.node_kinds import FleetKinds
from placement.prices.pod_classes import ClassShares, class_of
from placement.prices.price_book import PriceBook, idle_gpus_by_type, prices_for
from placement.prices.turnover import Turnover

FIRST_PRICES_PODS = 64
"""Arrivals before the first prices are made of them; then whenever what is known of the mix has doubled, and at once
when it is found to have changed."""
PRICES_EVERY_PODS = 4_096
"""Prices are made afresh after so many arrivals at the latest."""

TURNOVER_STEP = 0.15
"""Prices are made afresh when the turnover has moved by more than this."""

_ROOMY_CPU_MILLI = 128_000.0
_ROOMY_GPU_MILLI = 8_000.0


class BidPrice(Policy):
    """Rates nodes by a price book; until it has one, by FGD over what has arrived."""

    name = "tonnage"

    def __init__(
        self,
        kinds: FleetKinds,
        expected: ClassShares | None = None,
        settings: BidSettings | None = None,
        seed: int = 0,
    ) -> None:
        """expected: what will come, where that is known; then nothing is learned. seed: of the demands priced."""
        self.version = 0
        self.settings = settings or BidSettings()
        self.kinds = kinds
        self.mix = ArrivalMix()
        self.turnover = Turnover()
        self.book: PriceBook | None = None
        self._seed = seed
        self._told = expected
        self._priced_turnover = 0.0
        self._priced_pods, self._priced_turns, self._evidence_pods = 0, 0, 0.0
        self._fallback = _fgd(self.mix.shares(), kinds)
        if expected is not None:
            self.reprice(self.new_prices())

    def arrived(self, shape: PodShape) -> None:
        self.turnover.arrived(shape)
        if self._told is not None:
            return
        self.mix.arrived(class_of(shape))
        if self.book is None and self.mix.pods.bit_count() == 1:  # at 1, 2, 4, 8 ... pods
            self._fallback = _fgd(self.mix.shares(), self.kinds)
            self.version += 1

    def placed(self, shape: PodShape, node: int) -> None:
        self.turnover.placed(shape)

    def removed(self, shape: PodShape, node: int) -> None:
        self.turnover.removed()

    @property
    def wants_prices(self) -> bool:
        """Whether so much has changed since the last prices that they should be made afresh."""
        if abs(self.turnover.share - self._priced_turnover) > TURNOVER_STEP and self.book is not None:
            return True
        if self._told is not None:
            return False
        fresh = self.mix.pods - self._priced_pods
        due = min(max(FIRST_PRICES_PODS, self._evidence_pods), PRICES_EVERY_PODS)
        return fresh >= due or self.mix.turns > self._priced_turns

    def new_prices(self) -> PriceBook:
        """Prices for what is known now. Looks at nothing else, so it may be called where the policy was copied to."""
        shares = self.mix.shares() if self._told is None else self._told
        return prices_for(shares, self.kinds, self.settings.at_turnover(self.turnover.share), self._seed)

    def upkeep(self, ledger: Ledger) -> None:
        """Makes prices here and now when they are due, where nobody makes them in the background."""
        if self.wants_prices:
            book = self.new_prices()
            warm(book, ledger)
            self.reprice(book)

    def reprice(self, book: PriceBook) -> None:
        """Decide by this book from now on."""
        self.book = book
        self._priced_turnover = self.turnover.share
        self._priced_pods, self._priced_turns, self._evidence_pods = self.mix.pods, self.mix.turns, book.shares.pods
        self._dearness: FloatArray | None = None
        self._dearness_age = 0
        self.version += 1

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        if self.book is None:
            return self._fallback.rate(shape, ledger, nodes)
        return _rated(self.book, shape, ledger, nodes)

    def worth(self, ledger: Ledger, nodes: IntArray) -> FloatArray | None:
        if self.book is None:
            return None
        return self.book.memo.of(ledger.gpu_type[nodes], ledger.cpu_milli[nodes], ledger.gpu_milli[nodes])

    def surcharge(self, shape: PodShape, ledger: Ledger) -> FloatArray | None:
        if self.book is None or not shape.gpus or not len(self.book.picky_demand):
            return None
        if self._dearness is None or self._dearness_age >= self.settings.scarcity_every:
            self._dearness, self._dearness_age = _dearness(self.book, ledger), 0
        self._dearness_age += 1
        return self._dearness * (shape.total_gpu_milli / WHOLE_GPU_MILLI)

    def terms(self, shape: PodShape, ledger: Ledger, node: int) -> dict[str, float]:
        """The weighted parts of the cost, which they add up to, in GPUs' worth."""
        if self.book is None:
            return dict(self._fallback.terms(shape, ledger, node))
        key, here, settings = self.rating_key(shape), np.array([node]), self.book.state_worth.settings
        ways = options(key, ledger, here)
        rated = _rated(self.book, key, ledger, here)
        chosen = np.flatnonzero(ways.devices == rated.devices[0])[:1]
        now = (ledger.gpu_type[here], ledger.cpu_milli[here], ledger.gpu_milli[here])
        before, after = (self.book.state_worth.terms(*state) for state in (now, ways.states(chosen)))
        value, hostable, fragment = (float(b[0] - a[0]) for b, a in zip(before, after, strict=True))
        parts = {
            "value_lost": value,
            "hostable_lost": settings.hostable_weight * hostable,
            "fragments_grown": -settings.fragment_weight * fragment,
        }
        return {**parts, "looseness": float(rated.cost[0]) - sum(parts.values())}


def warm(book: PriceBook, ledger: Ledger) -> None:
    """Work out beforehand what the coming decisions will ask of a new book, so that none of them has to wait.

    Called where the book is made, with the ledger as it is then; most states will still be the same when it is used.
    """
    for shape in dict.fromkeys(PodShape(c.cpu_milli, 0, c.gpus, c.gpu_milli) for c in book.shares.classes):
        nodes = np.flatnonzero(ledger.fits(shape))
        if len(nodes):
            _rated(book, shape, ledger, nodes)


def _rated(book: PriceBook, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
    left = ledger.gpu_milli[nodes]
    ways = options(shape, ledger, nodes)
    lost = ways.losses(book.memo, ledger, nodes)
    gpu_after = left.sum(axis=1)[ways.node] - shape.total_gpu_milli
    settings = book.state_worth.settings
    cost = lost + _looseness(settings, ways.cpu_milli, gpu_after)
    if not shape.gpus:
        cost += settings.gpu_node_cost * (ledger.gpus[nodes] > 0)[ways.node]
    return ways.cheapest(cost)


def _looseness(settings: BidSettings, cpu_milli: IntArray, gpu_milli: IntArray) -> FloatArray:
    cpu, gpu = cpu_milli / _ROOMY_CPU_MILLI, gpu_milli / _ROOMY_GPU_MILLI
    return settings.tightness_weight * (settings.tightness_cpu_share * cpu + (1 - settings.tightness_cpu_share) * gpu)


def _dearness(book: PriceBook, ledger: Ledger) -> FloatArray:
    """What a GPU of each type costs extra because pods that can use no other will come. Shape (GPU types,)."""
    settings = book.state_worth.settings
    capacity = max(book.kinds.capacity_gpus, 1)
    idle = idle_gpus_by_type(ledger.gpu_type, ledger.gpu_milli, len(book.kinds.gpu_type_names))
    unclaimed_share = settings.horizon_share - (1 - idle.sum() / capacity)
    scarcity = book.scarcity(idle, max(settings.horizon_least_share, unclaimed_share) * capacity)
    dearness: FloatArray = settings.scarcity_weight * np.clip(
        scarcity - settings.scarcity_free, 0.0, settings.scarcity_most
    )
    return dearness


def _fgd(shares: ClassShares, kinds: FleetKinds) -> Fgd:
    mix = PodMix(tuple(_shapes(shares)), shares.share)
    return Fgd(Fragmentation(mix, kinds.gpu_type_names))


def _shapes(shares: ClassShares) -> Iterable[PodShape]:
    return (PodShape(c.cpu_milli, 0, c.gpus, c.gpu_milli, c.gpu_types) for c in shares.classes)
