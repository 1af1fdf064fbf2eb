"""What a controller learnt of domains over days, as far as the next one can use it: how far their draws may rise."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from math import exp

import numpy as np

from power.control.state import Allocator, AllocatorState

_FITS_SHARE = 0.1
"""Fraction by which the number of devices may differ: a server more or less leaves a row's spikes what they are."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The devices that draw through a domain, as far as what was learnt depends on them."""

    products: str
    """Digest of their products, with the highest limit of each."""
    devices: int

    def fits(self, then: "Fleet") -> bool:
        """Whether what was learnt of `then` may be believed of this one."""
        return self.products == then.products and abs(self.devices - then.devices) <= _FITS_SHARE * then.devices


@dataclass(frozen=True, slots=True)
class LearnedSpikes:
    """Rises of one domain's draw within a control delay, in watts (power/policy/spikes.py)."""

    fleet: Fleet
    spike_w: float
    excess_w: float

    def faded(self, for_s: float, memory_s: float) -> "LearnedSpikes":
        """What is left after so many seconds; memory_s: time constant of forgetting."""
        left = exp(-max(for_s, 0.0) / memory_s)
        return replace(self, spike_w=self.spike_w * left, excess_w=self.excess_w * left)


@lru_cache(maxsize=2)
def fleets_of(allocator: Allocator) -> Mapping[str, Fleet]:
    """Domain with a budget → its fleet."""
    tree = allocator.tree
    table = tree.table
    made = {}
    for limit, domain in enumerate(tree.limit.tolist()):
        rows = tree.path_device[tree.path_limit == limit]
        kinds = {(table.gpu_types[int(table.devices.gpu_type[row])], float(table.devices.max_w[row])) for row in rows}
        digest = sha256(repr(sorted(kinds)).encode()).hexdigest()[:16]
        made[table.domains.names[domain]] = Fleet(digest, len(rows))
    return made


def learned_spikes(allocator: Allocator, state: AllocatorState) -> Mapping[str, LearnedSpikes]:
    """Domain with a budget → what was learnt of its rises so far."""
    return {
        name: LearnedSpikes(fleet, float(state.spike_w[limit]), float(state.memory.excess_w[limit]))
        for limit, (name, fleet) in enumerate(fleets_of(allocator).items())
    }


def recalled(
    allocator: Allocator, state: AllocatorState, learned: Mapping[str, LearnedSpikes]
) -> tuple[AllocatorState, frozenset[str]]:
    """The state with what an earlier controller learnt, and the domains of which it was believed.

    Believed where the fleet still fits. It takes the place of the spike that is assumed before any measurement.
    """
    fits = [name for name, fleet in fleets_of(allocator).items() if name in learned and fleet.fits(learned[name].fleet)]
    if not fits:
        return state, frozenset()
    tree = allocator.tree
    names = [tree.table.domains.names[row] for row in tree.limit.tolist()]
    spike_w, excess_w = np.array(state.spike_w), np.array(state.memory.excess_w)
    for name in fits:
        limit = names.index(name)
        spike_w[limit], excess_w[limit] = learned[name].spike_w, learned[name].excess_w
    return replace(state, memory=allocator.policy.recalled(state.memory, spike_w, excess_w)), frozenset(fits)
