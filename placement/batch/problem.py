"""The question of a batch: what waits, by class, and the room there is, by kind of idle node and group of nodes in use.

Four planners of Tonnage answer four questions, and their figures cannot be compared:

- the packing engine (`placement/engine/packer.py`): where does *this* pod cost least, given what is expected to come?
  Online.
- the allocation bound (`placement/prices/allocation_bound.py`): how much GPU can a demand get at most? It makes the
  engine's prices.
- the mix (`placement/mix/planner.py`): how many instances of which GPU type serve a service? It makes pods.
- the batch (this package): which nodes must run so that *all pods that wait now* start, at least dollars an hour?

Sets       c: classes (pods of one shape), k: kinds (idle nodes that are alike), g: groups (nodes in use that may host
           the same classes), p: patterns (how many pods of each class one node of a kind runs), r: resources
Data       d_c: pods that wait;  u_c: dollars an hour for leaving one out;  usd_k: dollars an hour of a node;
           N_k: nodes of the kind;  ask_cr, room_kr, room_gr: what is asked and free of each resource
Variables  λ_p ≥ 0 whole: nodes of kind k(p) that run pattern p;  z_cg ≥ 0 whole: pods on nodes that are in use anyway;
           s_c ≥ 0: pods left out
Objective  min Σ_p usd_k(p) λ_p + Σ_c u_c s_c
Subject to Σ_p a_cp λ_p + Σ_g z_cg + s_c ≥ d_c      demand; its dual π_c is the price of a pod
           Σ_{p of k} λ_p ≤ N_k                      nodes of a kind
           Σ_c ask_cr z_cg ≤ room_gr                 room of a group, all its nodes together (a relaxation)

A node in use is paid for already, so its room costs nothing. Gangs do not occur: that they start whole, and near each
other, only makes plans dearer, so the optimum of this program without them is a bound from below on every plan.
"""

from dataclasses import dataclass

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.workloads import PodShape


@dataclass(frozen=True, slots=True)
class HostPrice:
    """What a node costs by its CPU and memory. A node costs this or its GPUs, whichever is more."""

    core_usd_per_hour: float = 0.03
    """Chosen: about what clouds ask for a core of a general server without its memory."""
    gib_usd_per_hour: float = 0.004
    """Per GiB of memory. Chosen likewise."""


@dataclass(frozen=True, slots=True)
class KindKey:
    """What a kind of idle nodes is, whatever its number in one question: what is kept between questions goes by it."""

    gpu_type: str
    """Empty: no GPUs, or of unknown type."""
    gpus: int
    cpu_milli: int
    """Free CPU of one node."""
    memory_bytes: int
    """Free memory of one node."""
    usd_per_hour: float


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """All that waits and all the room there is. Classes stand in the order of `shapes`."""

    shapes: tuple[PodShape, ...]
    pods: IntArray
    """d_c, shape (classes,)."""
    left_out_usd: FloatArray
    """u_c, shape (classes,): more than the nodes cost that may have to start so that this pod can."""
    ask: FloatArray
    """Shape (classes, resources): cores, GiB, GPUs and, where GPUs are shared, two counts that no way of sharing
    devices exceeds (`device_counts`)."""
    eligible: BoolArray
    """Where a class may run, whatever is free. Shape (classes, nodes)."""
    node_usd: FloatArray
    """Dollars an hour of every node, also of those in use. Shape (nodes,)."""
    kind: IntArray
    """Kind of each idle node that can host something, else -1. Shape (nodes,)."""
    kinds: tuple[KindKey, ...]
    kind_nodes: IntArray
    """N_k, shape (kinds,)."""
    kind_usd: FloatArray
    """usd_k, shape (kinds,)."""
    kind_room: FloatArray
    """Shape (kinds, resources)."""
    kind_copies: IntArray
    """Most pods of one class that a node of a kind runs with nothing else on it. Shape (classes, kinds)."""
    group: IntArray
    """Group of each node in use that can host something, else -1. Shape (nodes,)."""
    group_room: FloatArray
    """Shape (groups, resources), all nodes of a group together."""
    group_copies: IntArray
    """Most pods of one class on all nodes of a group with nothing else added. Shape (classes, groups)."""
    in_use: BoolArray
    """Nodes that are paid for whatever is planned. Shape (nodes,)."""
    largest_copies: IntArray
    """Most pods of a class on the single node that takes most now; 0: it starts nowhere. Shape (classes,)."""
