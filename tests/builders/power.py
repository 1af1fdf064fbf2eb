"""Builders for small power tables: a test states only what matters to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster.arrays import Names, column
from cluster.power import (
    NEVER_S,
    PHASE_UNKNOWN,
    UNLIMITED_W,
    BreakerCurve,
    DomainTable,
    FeedTable,
    PowerClass,
    PowerDeviceTable,
    PowerLeases,
    PowerReadings,
    PowerTable,
)

CLASSES = (PowerClass("high", 0), PowerClass("low", 1))
CURVE = BreakerCurve((1.1, 1.5, 2.0), (600.0, 60.0, 10.0))


@dataclass(frozen=True)
class Domain:
    name: str
    budget_w: float = UNLIMITED_W
    feeds: Mapping[str, float] = field(default_factory=dict)
    """Parent → share."""
    other_w: float = 0.0
    kind: str = "rack"


@dataclass(frozen=True)
class Device:
    name: str
    node: str
    power_class: str = "low"
    min_w: float = 100.0
    max_w: float = 400.0
    floor_w: float = 200.0
    idle_w: float = 60.0
    overshoot_share: float = 0.0
    overhead_share: float = 0.0
    managed: bool = True


def no_readings(devices: int, domains: int) -> PowerReadings:
    return PowerReadings(
        at_s=column([NEVER_S] * devices, np.float64),
        draw_w=column([0.0] * devices, np.float64),
        cap_w=column([0.0] * devices, np.float64),
        sequence=column([-1] * devices, np.int64),
        phase=column([PHASE_UNKNOWN] * devices, np.int64),
        meter_at_s=column([NEVER_S] * domains, np.float64),
        meter_w=column([0.0] * domains, np.float64),
    )


def power_table(domains: Sequence[Domain], devices: Sequence[Device], gpu_type: str = "A100") -> PowerTable:
    names = [domain.name for domain in domains]
    edges = [(names.index(d.name), names.index(parent), share) for d in domains for parent, share in d.feeds.items()]
    classes = [each.name for each in CLASSES]
    return PowerTable(
        domains=DomainTable(
            names=Names(names),
            kind=tuple(domain.kind for domain in domains),
            budget_w=column([domain.budget_w for domain in domains], np.float64),
            other_w=column([domain.other_w for domain in domains], np.float64),
            curve=column([0] * len(domains), np.int64),
        ),
        feeds=FeedTable(
            child=column([child for child, _, _ in edges], np.int64),
            parent=column([parent for _, parent, _ in edges], np.int64),
            share=column([share for _, _, share in edges], np.float64),
        ),
        classes=CLASSES,
        gpu_types=(gpu_type,),
        devices=PowerDeviceTable(
            names=Names(device.name for device in devices),
            domain=column([names.index(device.node) for device in devices], np.int64),
            gpu_type=column([0] * len(devices), np.int64),
            power_class=column([classes.index(device.power_class) for device in devices], np.int64),
            min_w=column([device.min_w for device in devices], np.float64),
            max_w=column([device.max_w for device in devices], np.float64),
            default_w=column([device.max_w for device in devices], np.float64),
            previous_w=column([device.max_w for device in devices], np.float64),
            floor_w=column([device.floor_w for device in devices], np.float64),
            idle_w=column([device.idle_w for device in devices], np.float64),
            overshoot_share=column([device.overshoot_share for device in devices], np.float64),
            overhead_share=column([device.overhead_share for device in devices], np.float64),
            managed=column([device.managed for device in devices], np.bool_),
        ),
        readings=no_readings(len(devices), len(domains)),
        leases=PowerLeases(
            cap_w=column([device.max_w for device in devices], np.float64),
            ceiling_w=column([device.max_w for device in devices], np.float64),
            sequence=column([-1] * len(devices), np.int64),
            expires_at_s=column([NEVER_S] * len(devices), np.float64),
        ),
        curves=(CURVE,),
    )


def row_of(devices: Sequence[Device], budget_w: float, other_w: float = 0.0) -> PowerTable:
    """A row with one budget; each device in a node of the name that it gives."""
    nodes = dict.fromkeys(device.node for device in devices)
    domains = [Domain("row", budget_w, other_w=other_w, kind="row")]
    return power_table(domains + [Domain(node, feeds={"row": 1.0}, kind="node") for node in nodes], devices)
