"""The network as a tree, from labels of nodes: the domains that a node is in, from the outermost to its own."""

import re
from collections.abc import Mapping, Sequence

LEVELS = (
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "fabric.topograph.run/tier-3",
    "fabric.topograph.run/tier-2",
    "fabric.topograph.run/tier-1",
    "fabric.topograph.run/tier-0",
    "accelerator.topograph.run/domain",
    "accelerator.topograph.run/sub-domain",
    "network.topology.nvidia.com/datacenter",
    "network.topology.nvidia.com/core",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/accelerator",
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
)
"""Labels of network domains, from the outermost: Kubernetes' own, NVIDIA Topograph's 1.x and 0.x, AWS's, Google's."""

_DIGITS = re.compile(r"(\d+)")
Path = tuple[str, ...]
"""Values of the levels, from the outermost, then the node's name. Equal beginnings are shared links."""


def levels_of(own: Sequence[str | None]) -> tuple[str, ...]:
    """The levels, with labels that a gang names below the known ones. own: from the outermost; None: no label."""
    return LEVELS + tuple(label for label in own if label is not None and label not in LEVELS)


def path_of(node: str, labels: Mapping[str, str], levels: Sequence[str]) -> Path:
    """Path of a node. A label that it does not have is a domain of its own with the empty name."""
    return (*(labels.get(level, "") for level in levels), node)


def crossings(ring: Sequence[Path]) -> int:
    """Boundaries of domains, nodes among them, that a ring through these members crosses, one after the other and back.

    An edge of the ring that leaves a domain leaves all domains inside it, so edges over outer links count more often.
    """
    if len(ring) < 2:
        return 0
    return sum(_apart(one, other) for one, other in zip(ring, (*ring[1:], ring[0]), strict=True))


def _apart(one: Path, other: Path) -> int:
    """Number of domains of one that the other is not in."""
    shared = next((n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
    return len(one) - shared


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Key that sorts names as people count: `worker-2` before `worker-10`."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name))
