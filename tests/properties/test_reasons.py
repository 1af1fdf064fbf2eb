"""Reasons of what waits, counted again node by node."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from cluster.nodes import NodeTaint, meets_terms
from cluster.plans import Reason
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang, PodShape
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.arbitrary_fleets import fleets, with_importance_shuffled
from tests.builders.tolerations import tolerates_all

BARS = ("within", "cordoned", "gpu_type", "way", "selector", "taint")
SHORTAGES = ("gpus", "fragments", "cpu", "memory")


def obstacles_of(after: Snapshot, shape: PodShape, node: int, inside: set[int]) -> set[str]:
    """What keeps a pod of this shape from a node: one bar, or every resource that is short."""
    nodes, free = after.nodes, after.free()
    kind = int(nodes.gpu_type[node])
    type_name = after.gpu_type_names[kind] if kind >= 0 else ""
    if node not in inside:
        return {"within"}
    if not nodes.schedulable[node]:
        return {"cordoned"}
    if shape.gpus and shape.gpu_types and type_name not in shape.gpu_types:
        return {"gpu_type"}
    if not meets_terms(nodes.labels[node], shape):
        return {"selector"}
    if not tolerates_all(nodes.taints[node], shape.tolerations):
        return {"taint"}
    left = [max(0, int(milli)) for milli in free.gpu_milli[node]]
    devices = sum(milli >= max(shape.gpu_milli, 1) for milli in left)
    in_all = sum(left) >= shape.total_gpu_milli
    checks = {
        "gpus": devices < shape.gpus and not in_all,
        "fragments": devices < shape.gpus and in_all,
        "cpu": free.cpu_milli[node] < shape.cpu_milli,
        "memory": free.memory_bytes[node] < shape.memory_bytes,
    }
    return {name for name, is_short in checks.items() if is_short}


def counted(after: Snapshot, shape: PodShape, inside: set[int]) -> dict[str, float]:
    """Figures that a reason about this shape must have."""
    each = [obstacles_of(after, shape, node, inside) for node in range(len(after.nodes))]
    count = Counter(name for names in each for name in names)
    room = sum(not names for names in each)
    return {
        "nodes": float(len(each)),
        **{k: float(v) for k, v in count.items()},
        **({"with_room": room} if room else {}),
    }


def scopes(after: Snapshot, gang: Gang | None) -> list[set[int]]:
    """Sets of nodes that a reason may be about."""
    everywhere = set(range(len(after.nodes)))
    if gang is None or gang.within is None:
        return [everywhere]
    domain = after.nodes.domain(gang.within)
    inside = [set(np.flatnonzero(domain == value).tolist()) for value in np.unique(domain[domain >= 0])]
    return [*inside, set(np.flatnonzero(domain >= 0).tolist())]


def is_true(after: Snapshot, gang: Gang | None, shapes: set[PodShape], reason: Reason) -> bool:
    stated = {k: v for k, v in reason.figures.items() if k not in ("need", "room")}
    return any(stated == counted(after, shape, inside) for shape in shapes for inside in scopes(after, gang))


@given(
    fleets(),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.sets(st.integers(0, 5), max_size=2),
    st.sampled_from((400.0, 2_000.0, 30_000.0, np.inf)),
)
@settings(max_examples=150, deadline=None)
def test_every_count_of_a_reason_is_true_and_no_node_is_missing(
    seen: Snapshot, seed: int, preempt: bool, tainted: set[int], work: float
) -> None:
    taints = tuple((NodeTaint("team"),) if row in tainted else () for row in range(len(seen.nodes)))
    seen = with_importance_shuffled(replace(seen, nodes=replace(seen.nodes, taints=taints)), seed)

    plan = pack(seen, Packer(seen, BestFit()), Budget(work), preempt=preempt)

    after = seen.after(plan.actions)
    pods = after.pods
    for each in (u for u in plan.unplaced if u.reason.code not in ("WorkUsedUp", "MembersMissing")):
        kind, _, name = each.workload.partition("/")
        gang = next((g for g in after.gangs if kind == "Gang" and g.name == name), None)
        mine = pods.gang == after.gangs.index(gang) if gang else np.array([pod == name for pod in pods.names])
        rows = np.flatnonzero(mine & (pods.node == PENDING)).tolist()
        shapes = {pods.shapes[pods.shape[row]] for row in rows}
        figures = each.reason.figures
        assert is_true(after, gang, shapes, each.reason), (each, shapes)
        barred = sum(figures.get(name, 0) for name in BARS) + figures.get("with_room", 0)
        short = sum(figures.get(name, 0) for name in SHORTAGES)
        assert barred <= figures["nodes"] <= barred + short
        assert ("with_room" in figures) <= (each.reason.code == "GangHeldBack")
        if each.reason.code == "GangHeldBack" and len(shapes) == 1:
            assert figures["room"] < figures["need"]
