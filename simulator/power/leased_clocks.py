"""Two clocks inside leases: a rival that limits clocks by class, with power leases behind them as its guarantee."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np

from cluster.arrays import FloatArray
from power.policy.interface import Carry, Plant, PolicyInput, Wants
from simulator.power.baselines import TwoClocks
from simulator.power.machine import Machine
from simulator.power.policy import Orders, Readings
from simulator.power.tonnage_policy import Tonnage

LEASED_CLOCKS = "two-clocks-leased"


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    need_w: FloatArray
    spike_w: FloatArray
    excess_w: FloatArray
    mean_w: FloatArray
    """Draw smoothed over `mean_s`, shape (devices,); negative before the first reading."""


class ByNeed:
    """Leases in proportion to what devices draw: all of the budget, without classes. Bursts end at the highest limit.

    A device keeps a lease that covers its need while everything fits.
    """

    name = "by-need"

    def __init__(self, plant: Plant) -> None:
        self.plant = plant

    def first(self) -> Memory:
        tree, devices = self.plant.tree, self.plant.tree.table.devices
        spike_w = self.plant.rules.first_spike_share * tree.budget_w
        return Memory(devices.max_w, spike_w, spike_w, np.full(len(devices), -1.0))

    def wants(self, memory: Memory, seen: PolicyInput) -> tuple[Memory, Wants]:
        rules, tree, devices = self.plant.rules, self.plant.tree, self.plant.tree.table.devices
        draw_w = np.clip(np.nan_to_num(seen.shown_w), 0.0, devices.max_w)
        part = 1 - exp(-max(seen.for_s, 0.0) / rules.mean_s)
        mean_w = np.where(memory.mean_w < 0, draw_w, memory.mean_w + part * (draw_w - memory.mean_w))
        need_w = np.clip(mean_w * (1 + rules.margin_share), seen.base_w, devices.max_w)
        above_w = tree.at_worst(np.where(seen.governed, need_w - seen.base_w, 0.0))
        free_w = seen.free_w - tree.at_worst(np.where(seen.governed, seen.base_w, 0.0))
        scale = tree.least(np.maximum(free_w, 0.0) / np.maximum(above_w, 1.0))
        target_w = np.minimum(seen.base_w + np.floor((need_w - seen.base_w) * scale), devices.max_w)
        kept_w = np.where(seen.lease_w >= need_w, seen.lease_w, target_w)
        fits = tree.least(seen.free_w - tree.at_worst(np.where(seen.governed, kept_w, 0.0))) >= 0
        return replace(memory, need_w=need_w, mean_w=mean_w), Wants(
            np.where(fits, kept_w, target_w), need_w, devices.max_w
        )

    def carried(self, fresh: Memory, before: Memory, of_devices: Carry, of_limits: Carry) -> Memory:  # noqa: ARG002
        return replace(
            fresh,
            need_w=of_devices(before.need_w, fresh.need_w),
            mean_w=of_devices(before.mean_w, fresh.mean_w),
        )

    def recalled(self, memory: Memory, spike_w: FloatArray, excess_w: FloatArray) -> Memory:
        return replace(memory, spike_w=spike_w, excess_w=excess_w)


class LeasedClocks(Tonnage):
    """The clocks of `TwoClocks`, and beneath them leases from Tonnage's own safety layer, by need.

    What limits of power cost beside clocks shows in the difference from `tonnage`: a limit slows prompts, which draw
    most, and leaves tokens, where a watt costs least, while a clock takes the same share from both.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        servers: tuple[int, ...],
        budget_w: float,
        delay_s: float,
        telemetry_s: float,
        rules: Sequence[tuple[str, float]] = (),
    ) -> None:
        super().__init__(name, machine, servers, budget_w, delay_s, telemetry_s, rules=rules, policy=ByNeed)
        self._law = TwoClocks(machine, servers, budget_w)

    def set_budget(self, budget_w: float) -> None:
        super().set_budget(budget_w)
        self._law.set_budget(budget_w)

    def step(self, now_s: float, seen: Readings) -> Orders | None:
        orders = self._law.step(now_s, seen)
        if orders is not None:
            self._set_clocks(orders.clock)
        return super().step(now_s, seen)
