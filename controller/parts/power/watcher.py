"""Watcher of the cluster for the fast loop: PowerDomains, nodes with their labels, GPUs and most important pods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cluster.errors import Mistake
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from controller.api import notation
from controller.api.power_domain import KIND, PowerDomainSpec
from controller.api.structs import Node, OwnObject
from controller.kube.cache import Cache
from controller.objects.own_objects import own_from, own_resource
from controller.objects.read import Read
from controller.parts.power.domain_tree import CLASS_LABEL, Domains, PoweredNode
from controller.parts.power.power_table import NODE_LABELS

POWER_DOMAINS = own_resource(KIND)


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Facts from a planning snapshot about the pods on each node, by the node's name."""

    priority: Mapping[str, int] = field(default_factory=dict)
    """Priority of its most important pod that holds GPUs; nodes without one are omitted."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Number of GPUs as planning counts them, devices of ResourceSlices included."""


@dataclass(frozen=True, slots=True)
class PowerView:
    """View of the cluster as far as power is concerned."""

    domains: Domains
    nodes: Mapping[str, PoweredNode]
    generations: Mapping[str, int] = field(default_factory=dict)
    """metadata.generation of every PowerDomain, readable or not."""
    unreadable: tuple[Mistake, ...] = ()
    """Errors of PowerDomains that are omitted."""


def work_of(snapshot: Snapshot) -> NodeWork:
    """Facts about work, from the snapshot's columns: 60,000 pods take milliseconds."""
    pods, names = snapshot.pods, snapshot.nodes.names
    holds = np.array([shape.gpus > 0 for shape in pods.shapes], dtype=np.bool_)
    bound = np.flatnonzero((pods.node != PENDING) & (holds[pods.shape] if len(holds) else False))
    lowest = np.iinfo(np.int64).min
    highest = np.full(len(names), lowest)
    np.maximum.at(highest, pods.node[bound], pods.priority[bound])
    busy, equipped = np.flatnonzero(highest > lowest), np.flatnonzero(snapshot.nodes.gpus)
    return NodeWork(
        {names[row]: int(highest[row]) for row in busy.tolist()},
        {names[row]: int(snapshot.nodes.gpus[row]) for row in equipped.tolist()},
    )


class PowerWatcher:
    """Reader of the caches, for one thread; it remembers what it read of unchanged objects."""

    def __init__(
        self, domains: Cache[OwnObject], nodes: Cache[Node], work: Callable[[], NodeWork], resources: frozenset[str]
    ) -> None:
        """work: facts of the newest planning snapshot; empty before the first. resources: names of the resources that
        count GPUs.
        """
        self._domains, self._nodes, self._work, self._resources = domains, nodes, work, resources
        self._read: dict[str, tuple[OwnObject, PowerDomainSpec | tuple[Mistake, ...]]] = {}
        self._powered: dict[str, tuple[Node, PoweredNode]] = {}
        self._keys: frozenset[str] = frozenset()

    def see(self) -> PowerView | None:
        """The cluster now; None until domains and nodes were listed once: before that no node may be released."""
        if not (self._domains.is_synced and self._nodes.is_synced):
            return None
        read = self._specs()
        generations = {name: obj.metadata.generation for name, (obj, _) in self._read.items()}
        domains = {name: spec for name, spec in read.items() if not isinstance(spec, tuple)}
        wrong = tuple(mistake for each in read.values() if isinstance(each, tuple) for mistake in each)
        return PowerView(domains, self._nodes_as(domains), generations, wrong)

    def _specs(self) -> Mapping[str, PowerDomainSpec | tuple[Mistake, ...]]:
        objects = self._domains.all()
        for name, obj in objects.items():
            known = self._read.get(name)
            # A written status makes another struct of the same spec, which is no change here.
            if known is None or (known[0].metadata.generation, known[0].spec) != (obj.metadata.generation, obj.spec):
                self._read[name] = (obj, _spec_of(name, obj))
        self._read = {name: each for name, each in self._read.items() if name in objects}
        return {name: spec for name, (_, spec) in sorted(self._read.items())}

    def _nodes_as(self, domains: Domains) -> Mapping[str, PoweredNode]:
        asked = (spec.nodes.key for spec in domains.values() if spec.nodes is not None)
        keys = frozenset((*asked, CLASS_LABEL, *NODE_LABELS))
        if keys != self._keys:
            self._keys, self._powered = keys, {}
        nodes, work = self._nodes.all(), self._work()
        made = {}
        for name, node in nodes.items():
            known = self._powered.get(name)
            if known is None or known[0] is not node:
                known = self._powered[name] = (node, self._powered_node(node))
            made[name] = _at_work(known[1], work, name)
        self._powered = {name: self._powered[name] for name in nodes}
        return made

    def _powered_node(self, node: Node) -> PoweredNode:
        labels = {key: value for key, value in node.metadata.labels.items() if key in self._keys}
        gpus = sum(
            max(_count(node.status.capacity.get(each)), _count(node.status.allocatable.get(each)))
            for each in self._resources
        )
        return PoweredNode(labels, gpus)


def _at_work(node: PoweredNode, work: NodeWork, name: str) -> PoweredNode:
    priority, gpus = work.priority.get(name), max(node.gpus, work.gpus.get(name, 0))
    return node if priority is None and gpus == node.gpus else PoweredNode(node.labels, gpus, priority)


def _count(written: object) -> int:
    """Number of whole devices of a device plugin; 0 if unreadable, which planning reports for such a node."""
    try:
        return 0 if written is None else notation.whole(notation.quantity(written))
    except ValueError:
        return 0


def _spec_of(name: str, obj: OwnObject) -> PowerDomainSpec | tuple[Mistake, ...]:
    read = own_from(name, KIND, obj)
    return read.object.spec if isinstance(read, Read) else read
