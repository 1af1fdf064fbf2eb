"""Problem of a batch: pending pods by class, and free capacity by kind of idle node and group of active nodes.

Four planners of Tonnage solve four problems, and their figures cannot be compared:

- the packing engine (`placement/engine/packer.py`): where does *this* pod cost least, given what is expected to come?
  Online.
- the allocation bound (`placement/prices/allocation_bound.py`): how much GPU can a demand get at most? It makes the
  engine's prices.
- the mix (`placement/mix/planner.py`): how many instances of which GPU type serve a service? It makes pods.
- the batch (this package): which nodes must run so that *all pending pods* start, at least dollars an hour?

Sets       c: classes (pods of one shape), k: kinds (idle nodes that are alike), g: groups (nodes in use that may host
           the same classes), p: patterns (how many pods of each class one node of a kind runs), r: resources
Data       d_c: pending pods;  u_c: dollars an hour for leaving one out;  usd_k: dollars an hour of a node;
           N_k: nodes of the kind;  ask_cr, room_kr, room_gr: request and free amount of each resource
Variables  λ_p ≥ 0 whole: nodes of kind k(p) that run pattern p;  z_cg ≥ 0 whole: pods on nodes that are in use anyway;
           s_c ≥ 0: pods left out
Objective  min Σ_p usd_k(p) λ_p + Σ_c u_c s_c
Subject to Σ_p a_cp λ_p + Σ_g z_cg + s_c ≥ d_c      demand; its dual π_c is the price of a pod
           Σ_{p of k} λ_p ≤ N_k                      nodes of a kind
           Σ_c ask_cr z_cg ≤ room_gr                 capacity of a group, all its nodes together (a relaxation)

A node in use is paid for already, so its free capacity costs nothing. Gangs do not occur: that they start whole, and
near each other, only makes plans more expensive. The optimum of this program without them is therefore a lower bound on
every plan.
"""

from dataclasses import dataclass

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.workloads import PodShape


@dataclass(frozen=True, slots=True)
class HostPrice:
    """Price of a node by its CPU and memory. A node costs this or its GPUs, whichever is more."""

    core_usd_per_hour: float = 0.03
    """Per core. Chosen: about the price that clouds charge for a core of a general server without its memory."""
    gib_usd_per_hour: float = 0.004
    """Per GiB of memory. Chosen likewise."""


@dataclass(frozen=True, slots=True)
class KindKey:
    """Key of a kind of idle nodes, independent of its number in one problem; memory between problems uses it."""

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
    """All pending pods and all free capacity. Classes are in the order of `shapes`."""

    shapes: tuple[PodShape, ...]
    pods: IntArray
    """d_c, shape (classes,)."""
    left_out_usd: FloatArray
    """u_c, shape (classes,): more than the price of the nodes that may have to start for this pod."""
    ask: FloatArray
    """Shape (classes, resources): cores, GiB, GPUs and, where GPUs are shared, two counts that no way of sharing
    devices exceeds (`device_counts`)."""
    eligible: BoolArray
    """Nodes where a class may run, whatever is free. Shape (classes, nodes)."""
    node_usd: FloatArray
    """Price per hour of every node, also of those in use, in dollars. Shape (nodes,)."""
    kind: IntArray
    """Kind of each idle node that can host some class, else -1. Shape (nodes,)."""
    kinds: tuple[KindKey, ...]
    kind_nodes: IntArray
    """N_k, shape (kinds,)."""
    kind_usd: FloatArray
    """usd_k, shape (kinds,)."""
    kind_room: FloatArray
    """Shape (kinds, resources)."""
    kind_copies: IntArray
    """Maximum number of pods of one class on an empty node of a kind. Shape (classes, kinds)."""
    group: IntArray
    """Group of each node in use that can host some class, else -1. Shape (nodes,)."""
    group_room: FloatArray
    """Shape (groups, resources), all nodes of a group together."""
    group_copies: IntArray
    """Maximum number of pods of one class on all nodes of a group, with nothing else added. Shape (classes, groups)."""
    in_use: BoolArray
    """Nodes that are paid for whatever is planned. Shape (nodes,)."""
    largest_copies: IntArray
    """Maximum number of pods of a class on any single node now; 0: it starts nowhere. Shape (classes,)."""
