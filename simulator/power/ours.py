"""Tonnage's own policy on the pretend row: the allocator of `power/`, fed with the row's readings."""

from simulator.power.machine import Machine
from simulator.power.policy import Policy

OURS: tuple[str, ...] = ()


def ours(name: str, machine: Machine, servers: tuple[int, ...], budget_w: float, delay_s: float) -> Policy:
    raise KeyError(name)
