"""Power table of a live cluster as columns, from PowerDomain objects, nodes, and the agents' inventories. Pure."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster import arrays, errors, power, workloads
from controller.loops.power.domain_tree import Domains, PoweredNode, PowerTree, power_tree
from controller.objects.accelerators import COUNT_LABELS, PRODUCT_LABELS
from power.leases.messages import DeviceInventory, Inventory

NODE_LABELS = (*PRODUCT_LABELS, *COUNT_LABELS)
"""Labels of a node that its part of the table depends on."""
SHARED_PRODUCTS = ("MIG", "SHARED")
"""Words in a product's name where labels and capacity count parts of GPUs (MIG) or may do so."""
UNHEARD_GPU_W = 1400.0
"""Assumed draw of a GPU whose type no agent ever reported: the highest limit on any data sheet so far (B300)."""
HIGHEST_GPU_W = 10_000.0
"""Highest limit that is believed of a GPU: seven times that of any so far. An agent that names more would take the
power of all others in its domains, and of GPUs of its product elsewhere that were not heard from."""
OVERSHOOT_SHARE = 0.05
"""Worst-case fraction by which a device exceeds its limit. Splitwise's measured DGX-H100 peaks exceeded it by up to 3
%."""
IDLE_SHARE = 0.1
"""Idle draw as a fraction of the highest limit: A100 and H100 idle at 0.08 to 0.17 of it. Only used to recognise errors
of meters in readings."""


def power_table(
    domains: Domains, nodes: Mapping[str, PoweredNode], inventories: Mapping[str, Inventory]
) -> power.PowerTable:
    """The table without readings and leases: PowerDomains first, in the order of their names, then nodes.

    In a node with GPUs whose agent was never heard from, every GPU counts at its highest limit.
    Raises ConfigError with all errors that make the domains unusable.
    """
    tree = power_tree(domains, nodes)
    if tree.fatal:
        raise errors.ConfigError(tree.fatal)
    usable = sound(inventories, nodes)
    classes, class_rows = _classes(tree)
    names, powered = sorted(domains), sorted(tree.feeds_of_node)
    row_of = {name: row for row, name in enumerate((*names, *powered))}
    breakers = {name: breaker for name in names if (breaker := domains[name].breaker) is not None}
    curve_of = {name: row for row, name in enumerate(breakers)}
    edges = [(row_of[name], row_of[feed.name], feed.share) for name in names for feed in domains[name].feeds]
    edges += [(row_of[node], row_of[name], 1.0) for node, feeds in tree.feeds_of_node.items() for name in feeds]
    devices = [
        (node, uuid, found)
        for node in powered
        if node in usable
        for uuid, found in sorted(usable[node].devices.items())
    ]
    other_w = [domains[name].other_watts for name in names]
    overhead_share: dict[str, float] = {}
    for node in powered:  # where several domains select a node, the highest counts
        asked = [each for name in tree.feeds_of_node[node] if (each := domains[name].nodes) is not None]
        overhead_share[node] = max((each.overhead_share for each in asked), default=0.0)
        missing_w = _missing_w(node, nodes, inventories, usable)
        least_w = max((each.other_watts for each in asked), default=0.0)
        other_w.append(least_w + missing_w * (1 + OVERSHOOT_SHARE) * (1 + overhead_share[node]))
    limited = [(domains[name].budget_watts or power.UNLIMITED_W) for name in names]
    return power.PowerTable(
        domains=power.DomainTable(
            names=arrays.Names(row_of),
            kind=(*(domains[name].type for name in names), *["node"] * len(powered)),
            budget_w=arrays.column([*limited, *[power.UNLIMITED_W] * len(powered)], np.float64),
            other_w=arrays.column(other_w, np.float64),
            curve=arrays.column([*(curve_of.get(name, -1) for name in names), *[-1] * len(powered)], np.int64),
        ),
        feeds=power.FeedTable(
            child=arrays.column([child for child, *_ in edges], np.int64),
            parent=arrays.column([parent for _, parent, _ in edges], np.int64),
            share=arrays.column([share for *_, share in edges], np.float64),
        ),
        classes=classes,
        gpu_types=tuple(sorted({found.model for *_, found in devices})),
        devices=_devices(devices, tree, row_of, class_rows, overhead_share),
        readings=power.never_read(len(devices), len(row_of)),
        leases=power.PowerLeases(
            cap_w=np.zeros(len(devices)),
            ceiling_w=np.zeros(len(devices)),
            sequence=np.full(len(devices), -1),
            expires_at_s=np.full(len(devices), power.NEVER_S),
        ),
        curves=tuple(
            power.BreakerCurve(
                over=tuple(point.over for point in breaker.curve),
                for_s=tuple(point.seconds for point in breaker.curve),
                cooling_s=breaker.cooling_seconds,
            )
            for breaker in breakers.values()
        ),
    )


def unheard(tree: PowerTree, nodes: Mapping[str, PoweredNode], heard: Mapping[str, Inventory]) -> frozenset[str]:
    """Nodes with GPUs in a domain whose agents were not heard from yet."""
    return frozenset(node for node in tree.feeds_of_node if nodes[node].gpus and node not in heard)


def sound(inventories: Mapping[str, Inventory], nodes: Container[str]) -> Mapping[str, Inventory]:
    """Inventories with only valid devices, without those that have a device of another: one faulty agent must not stop
    all others, nor one device without power management the rest of its node.

    inventories: of two with one device the first has it. nodes: of the cluster now; a node that was renamed must not
    keep its devices from itself.

    A node that is left out counts as one that was never heard from, and a device that is left out as one that no agent
    reported.
    """
    owners: dict[str, str] = {}
    inventories = {node: each for node, each in inventories.items() if node in nodes}
    for node, each in inventories.items():
        for uuid in each.devices:
            owners.setdefault(uuid, node)
    return {
        node: each
        if all(map(_can_be, each.devices.values()))
        else replace(each, devices={uuid: found for uuid, found in each.devices.items() if _can_be(found)})
        for node, each in inventories.items()
        if all(owners[uuid] == node for uuid in each.devices)
    }


def _can_be(found: DeviceInventory) -> bool:
    figures = (found.min_w, found.max_w, found.default_w, found.previous_w)
    is_plausible = bool(np.isfinite(figures).all()) and max(found.max_w, found.default_w) <= HIGHEST_GPU_W
    return is_plausible and 0 < found.min_w <= found.max_w and found.default_w > 0


def _missing_w(
    node: str,
    nodes: Mapping[str, PoweredNode],
    inventories: Mapping[str, Inventory],
    usable: Mapping[str, Inventory],
) -> float:
    """Worst-case draw of a node's GPUs that its agent did not report, or not in a valid way: each may fail to answer,
    and draw. usable: the sound ones of the inventories as the agents sent them.
    """
    known, reported = nodes[node], len(inventories[node].devices) if node in usable else 0
    products = {value for label in PRODUCT_LABELS if (value := known.labels.get(label))}
    if reported and any(word in product for product in products for word in SHARED_PRODUCTS):
        gpus = reported  # labels and capacity count shares of GPUs
    else:
        # A kubelet writes both, so no more count than nodes have.
        count = next(filter(None, (known.labels.get(each) for each in COUNT_LABELS)), "")
        gpus = min(int(count) if count.isdecimal() else known.gpus, workloads.MAX_GPUS_PER_NODE)
    missing = max(gpus, reported) - (len(usable[node].devices) if node in usable else 0)
    if missing <= 0:
        return 0.0
    alike = (
        max(found.max_w, found.default_w)
        for other, inventory in usable.items()
        if other in nodes and products & {nodes[other].labels.get(label, "") for label in PRODUCT_LABELS}
        for found in inventory.devices.values()
    )
    return missing * max(alike, default=UNHEARD_GPU_W)


def _classes(tree: PowerTree) -> tuple[tuple[power.PowerClass, ...], Mapping[str, int]]:
    """Classes in use and the row of each node's. Two domains may use one name for different classes."""
    rows: dict[tuple[str, int, bool], int] = {}
    of_node = {}
    for node, each in sorted(tree.class_of_node.items()):
        of_node[node] = rows.setdefault((each.name, each.rank, each.bursts), len(rows))
    names = [name for name, *_ in rows]
    made = (
        power.PowerClass(
            name if names.count(name) == 1 else f"{name} (rank {rank}, {'bursts' if bursts else 'hard limits'})",
            rank,
            bursts,
        )
        for name, rank, bursts in rows
    )
    return tuple(made) or (power.PowerClass("all", 0),), of_node


def _devices(
    devices: Sequence[tuple[str, str, DeviceInventory]],
    tree: PowerTree,
    row_of: Mapping[str, int],
    class_rows: Mapping[str, int],
    overhead_share: Mapping[str, float],
) -> power.PowerDeviceTable:
    models = sorted({found.model for *_, found in devices})
    each = [found for *_, found in devices]
    low, high = (np.array([getattr(found, name) for found in each], dtype=np.float64) for name in ("min_w", "max_w"))
    floor_share = np.array([tree.class_of_node[node].floor for node, *_ in devices], dtype=np.float64)
    return power.PowerDeviceTable(
        names=arrays.Names(uuid for _, uuid, _ in devices),
        domain=arrays.column([row_of[node] for node, *_ in devices], np.int64),
        gpu_type=arrays.column([models.index(found.model) for found in each], np.int64),
        power_class=arrays.column([class_rows[node] for node, *_ in devices], np.int64),
        min_w=arrays.column(low, np.float64),
        max_w=arrays.column(high, np.float64),
        default_w=arrays.column([found.default_w for found in each], np.float64),
        previous_w=arrays.column([found.previous_w for found in each], np.float64),
        floor_w=arrays.column(np.clip(floor_share * high, low, high), np.float64),
        idle_w=arrays.column(IDLE_SHARE * high, np.float64),
        overshoot_share=arrays.column(np.full(len(each), OVERSHOOT_SHARE), np.float64),
        overhead_share=arrays.column([overhead_share[node] for node, *_ in devices], np.float64),
        managed=arrays.column([found.managed and node not in tree.observed for node, _, found in devices], np.bool_),
        ramp_w_per_s=arrays.column([max(found.ramp_w_per_s or 0.0, 0.0) or np.inf for found in each], np.float64),
    )
