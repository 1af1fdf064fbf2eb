"""Price book: all that bid-price packing knows of future demand; computed in the background, used in decisions."""

import math
from dataclasses import dataclass, replace

import numpy as np

from cluster.arrays import FloatArray, IntArray
from placement.engine.device_options import StateMemo
from placement.prices.allocation_bound import allocation_bound
from placement.prices.classes import ClassShares, FleetKinds, allowed_types
from placement.prices.node_value import Expectation, NodeValues, expectation_of


@dataclass(frozen=True, slots=True)
class BidSettings:
    """Weights of the terms of a score, in GPUs of worth, and the demands from which prices are computed.

    Origin, unless stated otherwise: search on seeds 1-4 of the four openb traces, a different sample from the seeds
    42-51 on which results are reported.
    """

    hostable_weight: float = 0.008
    """Weight per GPU that the expected pods could get on the node, each class alone (H in
    placement/prices/node_value.py)."""
    fragment_weight: float = 0.004
    """Weight per GPU that is expected to be a fragment (F there), in a fleet that fills up."""
    churning_fragment_weight: float = 0.3
    """The same weight in a fleet where as many pods leave as arrive. Which pods leave is random, so wide pods find a
    place only where fragments are kept small. FGD, which looks at fragments alone, is hard to beat there. Origin:
    0.03, 0.3 and 3 tried on generated fleets with departures."""
    filling_turnover: float = 0.1
    """Departures per arrival up to which a fleet counts as filling up; above, weights change in proportion."""
    fragments_by_gpus: float = 0.0
    """Part of F that weighs classes by the GPUs that they request, not by their pods, in a fleet that fills up."""
    churning_fragments_by_gpus: float = 0.5
    """The same part in a fleet where as many pods leave as arrive. Below capacity hardly any but the widest pods are
    refused there. Origin: 0, 0.5 and 1 tried on openb: 0 refuses such pods at load 0.9, and 1 gains less at load 1."""
    tightness_weight: float = 0.00019
    """Weight of the resources that stay free on the node, CPU and GPU each as a fraction of the fleet's largest node. A
    tie-break that keeps load together."""
    tightness_cpu_share: float = 0.6
    """Fraction of that tie-break that looks at CPU rather than at GPU."""
    gpu_node_cost: float = 0.001
    """Cost of a pod without GPUs on a node with GPUs, so that nodes without GPUs fill first. Above the tie-break: openb
    has no node without GPUs, so no figure there depends on it."""
    scarcity_weight: float = 0.12
    """Weight per GPU of the pod and point of scarcity of the node's GPU type (placement/prices/price_book.py)."""
    scarcity_free: float = 0.8
    """Scarcity up to which a type costs nothing extra."""
    scarcity_most: float = 9.0
    """Maximum scarcity that counts, so that a type that is used up does not outweigh the other terms."""
    horizon_share: float = 1.1
    """Fraction of the fleet, allocated or requested, up to which demand is foreseen. Chosen a little above 1: fleets
    that are paid for are run full."""
    horizon_least_share: float = 0.03
    """Minimum demand that is foreseen, as a fraction of the fleet: pods keep coming to a full one."""
    doubt: float = 3.0
    """Standard deviations by which the demand of picky pods is taken higher than observed. A type that is kept free in
    vain can still be used later; one that is given away too early cannot be recovered. Three also make the rule of
    three: a type that none of n pods was picky about may still be wanted by 3 / n of them."""
    gpus_per_scarcity_update: int = 124
    """GPUs of the fleet per decision between two updates of the idle GPUs of each type: 50 decisions on openb, each one
    on a fleet of 16 nodes. What a decision changes is small in a large fleet alone."""
    draws: int = 10
    """Linear programs per price book. One alone costs a point of allocation where types are requested by name."""
    least_load: float = 1.0
    """Lowest demand of a draw, as a fraction of the fleet's GPUs."""
    most_load: float = 1.1
    """Highest demand of a draw. Prices matter when the fleet is nearly full, so both lie near 1."""

    def at_turnover(self, departures_per_arrival: float) -> "BidSettings":
        """These settings for a fleet with that turnover."""
        churn = max(0.0, departures_per_arrival - self.filling_turnover) / (1 - self.filling_turnover)
        by_gpus, weight = self.fragments_by_gpus, self.fragment_weight
        return replace(
            self,
            fragment_weight=weight + churn * (self.churning_fragment_weight - weight),
            fragments_by_gpus=by_gpus + churn * (self.churning_fragments_by_gpus - by_gpus),
        )


def worth_of(shares: ClassShares, kinds: FleetKinds, settings: BidSettings, seed: int) -> FloatArray:
    """β: worth, in GPUs, of the resources that one pod of each class takes in its cheapest place. Shape (classes,).

    The draws' demand of a class is Poisson around its fraction of a load in the settings' range.
    0 ≤ β_c ≤ GPUs of the class; 0 for classes without GPUs.
    """
    mean = shares.mean_gpu_demand
    if mean <= 0 or not len(kinds):
        return np.zeros(len(shares.classes))
    chance = np.random.default_rng(seed)
    total, patterns = np.zeros(len(shares.classes)), None
    # Loads are spread evenly and only the classes' counts are drawn: prices jump at certain loads, and chance would
    # decide which of those ten random loads happen to pass.
    for turn in range(settings.draws):
        load = settings.least_load + (settings.most_load - settings.least_load) * (turn + 0.5) / settings.draws
        pods = load * kinds.capacity_gpus / mean
        demand = chance.poisson(shares.share * pods).astype(np.float64)
        bound = allocation_bound(shares.classes, demand, kinds, patterns)
        total, patterns = total + bound.worth, bound.patterns
    return total / settings.draws


@dataclass(frozen=True, slots=True, eq=False)
class StateWorth:
    """Worth of the free resources of a node, in GPUs: V + weighted H - weighted F."""

    values: NodeValues
    expectation: Expectation
    settings: BidSettings

    def of_states(self, gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray) -> FloatArray:
        """Worth of states.

        gpu_type, cpu_milli: shape (states,); gpu_milli: (states, devices). Returns shape (states,).
        """
        value, hostable, fragment = self.terms(gpu_type, cpu_milli, gpu_milli)
        return value + self.settings.hostable_weight * hostable - self.settings.fragment_weight * fragment

    def terms(
        self, gpu_type: IntArray, cpu_milli: IntArray, gpu_milli: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """V, H and F, each of shape (states,)."""
        fragment, hostable = self.expectation.fragment_and_hostable(gpu_type, cpu_milli, gpu_milli)
        return self.values.values(gpu_type, cpu_milli, gpu_milli), hostable, fragment


@dataclass(frozen=True, slots=True, eq=False)
class PriceBook:
    """Prices for one mix on one fleet. Immutable apart from its cache of node states."""

    shares: ClassShares
    kinds: FleetKinds
    class_worth: FloatArray
    """β, shape (classes,): see placement/prices/price_book.py."""
    state_worth: StateWorth
    memo: StateMemo
    """Cache of `state_worth`."""
    picky_types: FloatArray
    """Shape (picky classes, GPU types): 1 where a class that may not use every type may use this one, else 0.

    Where fractions were observed and are not known, one more class for each type in the fleet stands for the pods that
    may be picky about it although none was so far.
    """
    picky_demand: FloatArray
    """Shape (picky classes,): GPUs that such a class requests per GPU that arrives."""
    picky_variance: FloatArray
    """Shape (picky classes,): the variance of that estimate; 0 where fractions are known."""

    def scarcity(self, idle_gpus: FloatArray, expected_gpus: float) -> FloatArray:
        """GPUs that picky pods are expected to request, per idle GPU of each type. Shape (GPU types,).

        idle_gpus: per type. expected_gpus: total demand still to arrive. The demand of a class is spread over its
        allowed types in proportion to their idle GPUs. Where fractions were observed and are not known, the upper end
        of their range counts.
        """
        within_reach = np.maximum(self.picky_types @ idle_gpus, 1e-9)
        likely = (self.picky_demand / within_reach) @ self.picky_types
        variance = (self.picky_variance / within_reach**2) @ self.picky_types
        scarcity: FloatArray = expected_gpus * (likely + self.state_worth.settings.doubt * np.sqrt(variance))
        return scarcity


def prices_for(shares: ClassShares, kinds: FleetKinds, settings: BidSettings | None = None, seed: int = 0) -> PriceBook:
    """Prices for a mix on a fleet; the same for the same arguments.

    openb, 1,213 nodes: 0.5 s with 91 classes, 0.9 s with 330.
    """
    settings = settings or BidSettings()
    class_worth = worth_of(shares, kinds, settings, seed)
    expectation = expectation_of(shares, kinds.gpu_type_names, settings.fragments_by_gpus)
    state_worth = StateWorth(NodeValues(shares, class_worth, kinds), expectation, settings)
    mean = max(shares.mean_gpu_demand, 1e-9)
    allowed = allowed_types(shares.classes, kinds.gpu_type_names)
    present = np.isin(np.arange(len(kinds.gpu_type_names)), kinds.gpu_type)
    picky = np.array([bool(c.gpus) for c in shares.classes], dtype=np.bool_) & (~allowed & present).any(axis=1)
    types = (allowed[picky] & present).astype(np.float64)
    demand = (shares.share * shares.gpu_demand)[picky] / mean
    variance = np.zeros(len(demand))
    if not math.isinf(shares.pods) and shares.classes and present.sum() >= 2:
        # Counts are Poisson: the variance of a fraction is the fraction over the number of observed pods. Where the
        # count is 0, one pod's fraction counts as the deviation, and as many deviations as `doubt` as the upper end.
        unseen = np.eye(len(present))[present]
        variance = (shares.share * shares.gpu_demand**2)[picky] / mean**2 / shares.pods
        variance = np.append(variance, np.full(len(unseen), shares.pods**-2.0))
        types, demand = np.vstack([types, unseen]), np.append(demand, np.zeros(len(unseen)))
    return PriceBook(
        shares=shares,
        kinds=kinds,
        class_worth=class_worth,
        state_worth=state_worth,
        memo=StateMemo(state_worth.of_states),
        picky_types=types,
        picky_demand=demand,
        picky_variance=variance,
    )


def idle_gpus_by_type(gpu_type: IntArray, gpu_milli: IntArray, types: int) -> FloatArray:
    """Free GPU of each type, fractions included. gpu_type: shape (nodes,), gpu_milli: (nodes, devices)."""
    idle = np.maximum(gpu_milli, 0).sum(axis=1) / 1000
    # Type -1 (none, or unknown) falls into an extra last bin, which is cut off.
    return np.bincount(gpu_type % (types + 1), weights=idle, minlength=types + 1)[:types].astype(np.float64)
