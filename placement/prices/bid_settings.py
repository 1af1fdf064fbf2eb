"""Weights of bid-price packing, each with its origin."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class BidSettings:
    """Weights of the terms of a score, in GPUs of worth, and the demands from which prices are computed.

    Origin, unless stated otherwise: search on seeds 1-4 of the four openb traces, a different sample from the seeds
    42-51 on which results are reported.
    """

    hostable_weight: float = 0.008
    """Weight per GPU that the expected pods could get on the node, each class alone (H in
    placement/prices/expectation.py)."""
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
        return replace(
            self,
            fragment_weight=_between(self.fragment_weight, self.churning_fragment_weight, churn),
            fragments_by_gpus=_between(self.fragments_by_gpus, self.churning_fragments_by_gpus, churn),
        )


def _between(filling: float, churning: float, churn: float) -> float:
    return filling + churn * (churning - filling)
