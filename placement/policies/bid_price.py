"""Bid-price packing, Tonnage's own policy: a pod goes where it least lowers the worth of the remaining resources."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from cluster.arrays import FloatArray, IntArray
from cluster.snapshot import Snapshot
from cluster.workloads import WHOLE_GPU_MILLI, PodShape
from placement.engine.device_options import options
from placement.engine.ledger import Ledger
from placement.engine.policy import Adopt, Policy, Rated, SlowWork
from placement.prices.classes import ClassShares, FleetKinds, PodClass, changed_share, class_of, kinds_of, shares_from
from placement.prices.price_book import BidSettings, PriceBook, idle_gpus_by_type, prices_for

HALF_LIFE_PODS = 20_000
"""Arrivals after which an observation counts half. Chosen: a fraction of 1 % is then known to a fifteenth of its value
(square root of 1 in 0.01 * 20,000 / ln 2 pods)."""

WINDOW_PODS = 512
"""Arrivals that are compared with all earlier ones, and after which the turnover moves. Chosen: enough to distinguish a
new mix from chance, few enough to follow it within a twentieth of an openb fleet's turnover."""

SURPRISE = 5.0
"""Standard deviations of the test statistic above which the window is another mix. Chosen: at five, a steady mix of
openb raises no alarm in 300,000 arrivals."""

LEAST_COUNT = 8
"""Count below which classes are compared as one, over both samples together: the test's statistic needs it."""

FORGOTTEN_PODS = 0.01
"""Faded count below which a class is dropped, so that memory stays bounded."""


class ArrivalMix:
    """Fractions of pod classes learned from arrivals, window by window.

    At the end of a window all earlier counts fade a little. When the window differs from them by more than chance
    explains, they are dropped instead. Pods that arrived together are in one window, however many they are: they have
    no order, and the one in which a table lists them would look like a change of the mix.
    """

    def __init__(self) -> None:
        self._before: dict[PodClass, float] = {}
        self._window: Counter[PodClass] = Counter()
        self._window_pods = 0
        self.pods = 0
        """Arrivals until now."""
        self.turns = 0
        """Number of detected changes of the mix."""

    def start_from(self, *classes: PodClass) -> None:
        """Takes pods that are there at the start for a first sample of those that will come."""
        self._before = {c: float(count) for c, count in Counter(classes).items()}

    def arrived(self, *classes: PodClass) -> None:
        """Counts pods that were to be placed, one class each, whether or not they found a place."""
        self._window.update(classes)
        self._window_pods += len(classes)
        self.pods += len(classes)
        if self._window_pods < WINDOW_PODS:
            return
        if self._before and surprise(self._before, self._window) > SURPRISE:
            self._before = {}
            self.turns += 1
        faded = {c: weight * 2 ** (-self._window_pods / HALF_LIFE_PODS) for c, weight in self._before.items()}
        for pod_class, count in self._window.items():
            faded[pod_class] = faded.get(pod_class, 0.0) + count
        self._before = {c: weight for c, weight in faded.items() if weight > FORGOTTEN_PODS}
        self._window, self._window_pods = Counter(), 0

    def shares(self) -> ClassShares:
        """Arrivals as fractions with the number of pods that support them; empty when no pod has arrived."""
        weights = [*self._before.items(), *self._window.items()]
        return shares_from(weights, pods=sum(weight for _, weight in weights))


def surprise(before: dict[PodClass, float], window: Counter[PodClass]) -> float:
    """Standard deviations by which two samples of classes differ more than two samples of one mix do.

    The two-sample chi-square statistic, less its mean (bins - 1), over its standard deviation sqrt(2 (bins - 1)).
    """
    classes = before.keys() | window.keys()
    counts = np.array([(before.get(c, 0.0), window.get(c, 0)) for c in classes], dtype=np.float64)
    often = counts.sum(axis=1) >= LEAST_COUNT
    binned: FloatArray = np.vstack([counts[often], counts[~often].sum(axis=0)])
    binned = binned[binned.sum(axis=1) > 0]
    free = len(binned) - 1
    if free < 1:
        return 0.0
    ratio = np.sqrt(binned[:, 1].sum() / binned[:, 0].sum())
    statistic = ((binned[:, 0] * ratio - binned[:, 1] / ratio) ** 2 / binned.sum(axis=1)).sum()
    return float((statistic - free) / np.sqrt(2 * free))


class Turnover:
    """Departures of pods that ran per arrival, smoothed window by window."""

    def __init__(self) -> None:
        self.share = 0.0
        """0: no pod leaves, as in a fleet that fills up; 1: as many leave as arrive."""
        self._arrivals = 0
        self._departures = 0

    def arrived(self, pods: int = 1) -> None:
        """Counts pods that were to be placed, whether or not they found a place."""
        self._arrivals += pods
        if self._arrivals >= WINDOW_PODS:
            self.share = (self.share + min(1.0, self._departures / self._arrivals)) / 2
            self._arrivals = self._departures = 0

    def departed(self, pods: int = 1) -> None:
        """Counts pods that ran and ended."""
        self._departures += pods


PRICES_EVERY_PODS = 4_096
"""Maximum arrivals between two computations of prices. Until then they are computed whenever the number of arrivals has
doubled, from the first pod on, and at once after a detected change of the mix."""

FLEET_STEP = 0.05
"""Fraction of the GPUs that come, go or change before prices are computed again. Chosen: prices are means over demands
of 100 to 110 % of the fleet, so a twentieth of it is within what they cover."""

TURNOVER_STEP = 0.15
"""Change of the turnover above which prices are computed again."""


class BidPrice(Policy):
    """Rates nodes by a price book. Before the first pod it knows no demand, and keeps load together.

    The worth of a node's free resources is what they could still host at the prices of a linear program over the
    expected demand. Two smaller terms count what could be hosted of each class alone, and expected fragments. GPU types
    that picky pods will need cost a surcharge. The expected demand is given, or learned from arrivals: the first pod is
    enough for prices, which few observations make cautious.
    """

    name = "tonnage"

    def __init__(
        self,
        kinds: FleetKinds,
        expected: ClassShares | None = None,
        settings: BidSettings | None = None,
        seed: int = 0,
        present: Iterable[PodShape] = (),
    ) -> None:
        """expected: future demand, where known; nothing is then learned. seed: of the demands that are priced.

        present: pods that are there at the start. Prices from them are due at once, since a policy that waited for
        arrivals would know nothing of a full fleet.
        """
        self.version = 0
        self.settings = settings or BidSettings()
        self.kinds = kinds
        self.mix = ArrivalMix()
        self.turnover = Turnover()
        self._seed = seed
        self._known_shares = expected
        self._priced_kinds = kinds
        self._priced_turnover = 0.0
        self._priced_pods, self._priced_turns, self._evidence_pods = 0, 0, 0.0
        self._scarcity_price: FloatArray | None = None
        self._scarcity_price_age = 0
        self._scarcity_of: tuple[Ledger, int] | None = None
        """Ledger that the scarcity price was computed from, and its mark then."""
        self.book: PriceBook = self.new_prices()()
        self.mix.start_from(*map(class_of, present))
        self._is_due = bool(self.mix.shares().classes) and expected is None

    def arrived(self, *shapes: PodShape) -> None:
        self.turnover.arrived(len(shapes))
        if self._known_shares is None:
            self.mix.arrived(*map(class_of, shapes))

    def departed(self, *shapes: PodShape) -> None:
        self.turnover.departed(len(shapes))

    def begin(self, snapshot: Snapshot) -> None:
        self._scarcity_price = None

    def fleet_changed(self, fleet: Snapshot) -> None:
        renumbered = fleet.gpu_type_names != self.kinds.gpu_type_names
        self.kinds = kinds_of(fleet.nodes, fleet.gpu_type_names)
        if renumbered:  # prices of other GPU types are of no use
            self.reprice(prices_for(ArrivalMix().shares(), self.kinds, self.settings, self._seed))
        self._is_due |= renumbered or changed_share(self._priced_kinds, self.kinds) > FLEET_STEP

    @property
    def is_cold(self) -> bool:
        return not self.book.shares.classes and self.wants_prices

    @property
    def wants_prices(self) -> bool:
        """Whether enough has changed since the last prices that new ones are due."""
        if self._is_due:
            return True
        if abs(self.turnover.share - self._priced_turnover) > TURNOVER_STEP:
            return True
        if self._known_shares is not None:
            return False
        fresh = self.mix.pods - self._priced_pods
        due = min(max(1, self._evidence_pods), PRICES_EVERY_PODS)
        return fresh >= due or self.mix.turns > self._priced_turns

    def slow_work(self, ledger: Ledger) -> SlowWork | None:
        """New prices, where they are due."""
        if not self.wants_prices:
            return None
        new_prices, now = self.new_prices(), ledger.copy()

        def work() -> Adopt:
            book = new_prices()
            warm(book, now)
            return partial(self.reprice, book)

        return work

    def new_prices(self) -> Callable[[], PriceBook]:
        """Function that computes prices for the present knowledge; it uses nothing else, in whatever thread it runs."""
        shares = self.mix.shares() if self._known_shares is None else self._known_shares
        self._is_due, self._priced_kinds, self._priced_turnover = False, self.kinds, self.turnover.share
        self._priced_pods, self._priced_turns, self._evidence_pods = self.mix.pods, self.mix.turns, shares.pods
        return partial(prices_for, shares, self.kinds, self.settings.at_turnover(self.turnover.share), self._seed)

    def reprice(self, book: PriceBook) -> None:
        """Uses this price book from now on, unless the GPU types changed while it was made."""
        if book.kinds.gpu_type_names != self.kinds.gpu_type_names:
            return
        self.book = book
        self._scarcity_price = None
        self.version += 1

    def rate(self, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
        return _rated(self.book, shape, ledger, nodes)

    def worth(self, ledger: Ledger, nodes: IntArray) -> FloatArray | None:
        if not self.book.shares.classes:
            return None
        return self.book.memo.of(ledger.gpu_type[nodes], ledger.cpu_milli[nodes], ledger.gpu_milli[nodes])

    def surcharge(self, shape: PodShape, ledger: Ledger) -> FloatArray | None:
        if not shape.gpus or not len(self.book.picky_demand):
            return None
        every = self.kinds.capacity_gpus // self.settings.gpus_per_scarcity_update
        if self._scarcity_price is None or self._scarcity_price_age >= every:
            if self._scarcity_price is None or self._scarcity_of != (ledger, ledger.mark):
                self._scarcity_price = _scarcity_price(self.book, ledger)
            self._scarcity_of, self._scarcity_price_age = (ledger, ledger.mark), 0
        self._scarcity_price_age += 1
        return self._scarcity_price * (shape.total_gpu_milli / WHOLE_GPU_MILLI)

    def terms(self, shape: PodShape, ledger: Ledger, node: int) -> dict[str, float]:
        """Weighted parts of the cost, which add up to it, in GPUs of worth."""
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
    """Fills the caches of a new price book for the coming decisions, so that none of them has to wait.

    Called where the book is computed, with the ledger of that moment; most states will still be the same when it is
    used.
    """
    for shape in dict.fromkeys(PodShape(c.cpu_milli, 0, c.gpus, c.gpu_milli) for c in book.shares.classes):
        nodes = np.flatnonzero(ledger.free.fits(shape))
        if len(nodes):
            _rated(book, shape, ledger, nodes)


def _rated(book: PriceBook, shape: PodShape, ledger: Ledger, nodes: IntArray) -> Rated:
    ways = options(shape, ledger, nodes)
    lost = ways.losses(book.memo, ledger, nodes)
    gpu_after = ways.before_milli.sum(axis=1)[ways.node] - shape.total_gpu_milli
    settings, kinds = book.state_worth.settings, book.kinds
    cpu, gpu = ways.cpu_milli / kinds.widest_cpu_milli, gpu_after / (WHOLE_GPU_MILLI * kinds.widest_gpus)
    looseness = settings.tightness_cpu_share * cpu + (1 - settings.tightness_cpu_share) * gpu
    cost = lost + settings.tightness_weight * looseness
    if not shape.gpus:
        cost += settings.gpu_node_cost * (ledger.gpus[nodes] > 0)[ways.node]
    return ways.cheapest(cost)


def _scarcity_price(book: PriceBook, ledger: Ledger) -> FloatArray:
    """Surcharge per GPU of each type, since pods that can use no other type will come. Shape (GPU types,)."""
    settings = book.state_worth.settings
    capacity = max(book.kinds.capacity_gpus, 1)
    idle = idle_gpus_by_type(ledger.gpu_type, ledger.gpu_milli, len(book.kinds.gpu_type_names))
    unclaimed_share = settings.horizon_share - (1 - idle.sum() / capacity)
    scarcity = book.scarcity(idle, max(settings.horizon_least_share, unclaimed_share) * capacity)
    price: FloatArray = settings.scarcity_weight * np.clip(
        scarcity - settings.scarcity_free, 0.0, settings.scarcity_most
    )
    return price
