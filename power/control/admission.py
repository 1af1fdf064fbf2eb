"""Headroom that floors leave, and caps explained: whether one holds its device back, and at which speed it runs."""

import re
from collections.abc import Mapping

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.plans import Reason
from cluster.power import PHASE_MEMORY_BOUND
from power.control.state import Allocator, AllocatorState
from power.safety.estimator import FINE
from power.tree import Tree, reach_of

LEAST_OVER_W = 1e-6
"""Rounding error of sums; smaller excesses do not count."""


def floors_w(tree: Tree) -> FloatArray:
    """Power at each limit, shape (limits,), with every device at its useful floor and everything else at its worst
    case.

    This is the draw when every lease has ended, so a budget must carry it whatever fails. The floor of a device that
    opted out is its highest limit.
    """
    devices = tree.table.devices
    opted_out_w = np.maximum(devices.max_w, devices.default_w)
    return tree.other_w + tree.through(tree.burden * np.where(devices.managed, devices.floor_w, opted_out_w))


def objections_to_floors(tree: Tree) -> Mapping[str, Reason]:
    """Domain → why caps alone cannot keep the admitted devices within budget; domains where they can are omitted."""
    over_w = floors_w(tree) - tree.budget_w
    return {
        tree.table.domains.names[int(tree.limit[limit])]: Reason(
            "FloorsOverBudget",
            f"at their floors its devices would draw {over_w[limit]:.0f} W over its budget, which no cap can prevent",
            {"over_w": float(over_w[limit]), "budget_w": float(tree.budget_w[limit])},
        )
        for limit in np.flatnonzero(over_w > LEAST_OVER_W).tolist()
    }


def headroom_w(allocator: Allocator, state: AllocatorState, excess_w: FloatArray | float = 0.0) -> Mapping[str, float]:
    """Domain → watts at the feed that additional work may draw in it; below 0 where the domain is short already.

    This is what the present draw and its measured spike leave at the tightest limit that the domain draws through.
    Floors of idle devices are not deducted: they were admitted with the server, and a pod that starts there draws what
    they were reserved for. Where the floors of all admitted devices do not fit, the shortfall is returned instead, so
    that nothing starts there until a server leaves or the budget grows. excess_w: shape (limits,), metered power that
    no known device or load accounts for.
    """
    tree = allocator.tree
    # Devices that opted out are already in the fixed part at their worst case.
    leased_draw_w = np.where(tree.table.devices.managed, state.estimate.draw_w, 0.0)
    drawn_w = allocator.fixed_w + tree.through(tree.overhead * leased_draw_w)
    left_w = tree.budget_w - excess_w - drawn_w - state.spike_w
    lacking_w = tree.budget_w - floors_w(tree)
    left_w = np.where(lacking_w < -LEAST_OVER_W, np.minimum(left_w, lacking_w), left_w)
    share = reach_of(tree.table)[:, tree.limit]
    with np.errstate(divide="ignore", invalid="ignore"):
        through = np.where(share > 0, left_w / share, np.inf)
    least = through.min(axis=1, initial=np.inf)
    names = tree.table.domains.names
    return {names[row]: float(least[row]) for row in np.flatnonzero(np.isfinite(least)).tolist()}


Curve = tuple[tuple[float, ...], tuple[float, ...]]
"""Limits as fractions of the highest one, rising to 1, and the speed under each, as a fraction of that at 1."""
MEASURED: Mapping[str, Curve] = {
    "V100": ((0.4, 0.5, 0.6, 0.7, 0.8, 1.0), (0.730, 0.866, 0.903, 0.945, 0.966, 1.0)),
    "A40": ((1 / 3, 0.5, 7 / 12, 2 / 3, 1.0), (0.360, 0.762, 0.944, 0.959, 1.0)),
}
"""Compute-bound work by GPU type. Source: power-limit sweep of ml-energy/zeus 75a8b93 (Apache-2.0), median over its
training runs."""
COMPUTE_FIT: Curve = ((0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0), (0.147, 0.237, 0.383, 0.507, 0.619, 0.819, 1.0))
MEMORY_FIT: Curve = ((0.25, 0.3, 0.4, 0.5, 0.6, 1.0), (0.726, 0.808, 0.899, 0.957, 1.0, 1.0))
"""Of all other types: power above idle ∝ f^1.3, prompts ∝ f^0.9, tokens ∝ f^0.2; idle 0.2 of the limit
(docs/power-simulation.md). At 0.6 of the limit token generation draws less than the limit and loses nothing.
Splitwise's tables rate an H100 held at half its limit at 0.77 of its prompt speed and all of its token speed: faster
than the fit, so the fit errs towards leaving power where it is."""


_FORM = r"(-(SXM\d*|PCI[Ee]|FHHL|DGXS|\d+GB))*"
"""Suffixes that NVIDIA appends to a type's name: form factor and memory. Any other suffix is another card or a slice
(`A40-8Q`)."""


def speed_at(product: str, phase: int, share: float) -> float:
    """Speed under a limit of this fraction of the highest one, relative to the speed without; by the costliest curve
    where the phase is unknown.

    product: as the device reports it (NVML: `Tesla V100-SXM2-16GB`).
    """
    if phase == PHASE_MEMORY_BOUND:
        limits, speeds = MEMORY_FIT
    else:
        limits, speeds = next((curve for known, curve in MEASURED.items() if is_of(product, known)), COMPUTE_FIT)
    return float(np.interp(share, limits, speeds))


def is_of(product: str, gpu_type: str) -> bool:
    """Whether a product's name contains this type as a word: `NVIDIA A40` is an A40, `NVIDIA RTX A4000` is not."""
    return re.search(rf"(^|\s){re.escape(gpu_type)}{_FORM}(?!\S)", product) is not None


def held_back(allocator: Allocator, state: AllocatorState) -> BoolArray:
    """Devices that would draw more without their caps: managed, without fault, capped below their need.

    Shape (devices,).
    """
    devices, ledger = allocator.tree.table.devices, state.ledger
    fine = devices.managed & (state.estimate.fault == FINE)
    held: BoolArray = fine & (ledger.cap_w < devices.max_w) & (ledger.cap_w < state.need_w - 1.0)
    return held


def tightest(allocator: Allocator, state: AllocatorState) -> IntArray:
    """Tightest limit of each device, shape (devices,): the one above it with the largest fraction granted; -1: none."""
    tree = allocator.tree
    held_w = np.where(tree.table.devices.managed, state.estimate.held_w, 0.0)
    used = (allocator.fixed_w + tree.through(tree.burden * held_w)) / tree.budget_w
    # The last of several writes to one place stays: that of the fullest limit, the first among equals.
    order = np.lexsort((-tree.path_limit, used[tree.path_limit]))
    found = np.full(tree.devices, -1)
    found[tree.path_device[order]] = tree.path_limit[order]
    return found
