"""Watched ResourceSlices, claims and DeviceClasses with their nodes and pods, and indexes between them.

It derives nothing. It records which objects changed since the last translation, so that only these are translated
again.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from controller.api.structs import Node, Pod, PodClaim, PodStatus
from controller.dra.objects import DeviceClass, ResourceClaim, ResourceSlice


@dataclass(frozen=True, slots=True)
class Use:
    """Use of one claim by a pod."""

    claim: str
    """`namespace/name` of the claim; empty until it is generated from its template."""
    is_generated: bool
    """Whether it is generated from a template; then the pod must own it."""


def uses_of(pod: Pod) -> tuple[Use, ...]:
    """Claims of a pod, in order of its spec, without those that the template's controller found unnecessary.

    The last is the one that kube-scheduler made for extended resources of its containers that a DeviceClass offers.
    """
    return claim_uses(pod.metadata.namespace, pod.spec.resource_claims, pod.status)


def claim_uses(namespace: str, claims: Iterable[PodClaim], status: PodStatus) -> tuple[Use, ...]:
    """The same of a pod in this namespace, with these claims in its spec."""
    made = {each.name: each.resource_claim_name for each in status.resource_claim_statuses}
    found = []
    for each in claims:
        if each.resource_claim_name is not None:
            found.append(Use(f"{namespace}/{each.resource_claim_name}", is_generated=False))
        elif each.name not in made:
            found.append(Use("", is_generated=True))
        elif (name := made[each.name]) is not None:
            found.append(Use(f"{namespace}/{name}", is_generated=True))
    if status.extended_resource_claim_status is not None:
        found.append(Use(f"{namespace}/{status.extended_resource_claim_status.resource_claim_name}", is_generated=True))
    return tuple(found)


Stored = TypeVar("Stored")


class WatchedObjects:
    """Objects by name (`namespace/name`), with indexes between them. Not thread-safe."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        """Pods with claims."""
        self.slices: dict[str, ResourceSlice] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.slices_of: defaultdict[str, set[str]] = defaultdict(set)
        self.users: defaultdict[str, set[str]] = defaultdict(set)
        self.pods_on: defaultdict[str, set[str]] = defaultdict(set)
        self.claims_on: defaultdict[str, set[str]] = defaultdict(set)
        self._representatives: dict[str, str | None] = {}
        """Representatives by claim, as far as they were asked for since claim and pods last changed."""
        self.stale_nodes: set[str] = set()
        """Nodes that changed, or depend on a change, since `clear_changes`; likewise the next two."""
        self.stale_pods: set[str] = set()
        self.stale_claims: set[str] = set()
        self.passing: dict[str, Pod | None] = {}
        """Changed pods without claims, which need no translation; None for a deleted pod."""

    def clear_changes(self) -> None:
        """Mark all objects as translated."""
        self.stale_nodes, self.stale_pods, self.stale_claims, self.passing = set(), set(), set(), {}

    def put_node(self, name: str, node: Node | None) -> None:
        _put(self.nodes, name, node)
        self.stale_nodes.add(name)

    def put_pod(self, name: str, pod: Pod | None) -> None:
        before = self.pods.pop(name, None)
        if pod is not None and (pod.spec.resource_claims or pod.status.extended_resource_claim_status):
            self.pods[name] = pod
        if before is not None:
            _leave(self.pods_on, before.spec.node_name, name)
        if name in self.pods:
            self.pods_on[self.pods[name].spec.node_name].add(name)
        for use in uses_of(before) if before else ():
            _leave(self.users, use.claim, name)
            self._users_changed(use.claim)
        for use in uses_of(self.pods[name]) if name in self.pods else ():
            self.users[use.claim].add(name)
            self._users_changed(use.claim)
        if name in self.pods:
            self.stale_pods.add(name)
        else:
            self.passing[name] = pod

    def put_slice(self, name: str, each: ResourceSlice | None) -> None:
        before = self.slices.get(name)
        _put(self.slices, name, each)
        if before is not None:
            _leave(self.slices_of, _place_of(before), name)
        if each is not None:
            self.slices_of[_place_of(each)].add(name)
        for changed in filter(None, (before, each)):
            pool = changed.spec.driver, changed.spec.pool.name
            self.stale_nodes |= {changed.spec.node_name} | {
                other.spec.node_name
                for other in (self.slices.values() if changed.spec.shared_counters else ())
                if (other.spec.driver, other.spec.pool.name) == pool
            }

    def slices_for(self, node: str) -> list[ResourceSlice]:
        """Slices of a node, and those with counter sets for any node of its pools."""
        own = [self.slices[name] for name in sorted(self.slices_of.get(node, ()))]
        pools = dict.fromkeys(f"{each.spec.driver}/{each.spec.pool.name}" for each in own)
        return own + [self.slices[name] for pool in pools for name in sorted(self.slices_of.get(pool, ()))]

    def put_claim(self, name: str, claim: ResourceClaim | None) -> None:
        before = self.claims.get(name)
        self._representatives.pop(name, None)
        _put(self.claims, name, claim)
        if before is not None:
            _leave(self.claims_on, before.node, name)
        if claim is not None and claim.is_allocated:
            self.claims_on[claim.node].add(name)
        self.stale_claims.add(name)
        self.stale_nodes |= {node for node in (before and before.node, claim and claim.node) if node}

    def put_class(self, name: str, each: DeviceClass | None) -> None:
        _put(self.classes, name, each)
        self.stale_pods |= self.pods.keys()

    def users_of(self, claim: str) -> tuple[str, ...]:
        """Pods (`namespace/name`) that use a claim."""
        return tuple(sorted(self.users.get(claim, ())))

    def claims_of_unbound_pods(self) -> dict[str, ResourceClaim]:
        """Claims that Tonnage allocated, but whose pods are all unbound."""
        found = {}
        for names in self.claims_on.values():
            for name in names:
                claim, users = self.claims[name], self.users.get(name, set())
                if claim.metadata.annotations.epoch and users and not any(self.is_bound(user) for user in users):
                    found[name] = claim
        return found

    def allocated_on(self, node: str) -> tuple[ResourceClaim, ...]:
        return tuple(self.claims[claim] for claim in sorted(self.claims_on.get(node, ())))

    def is_bound(self, pod: str) -> bool:
        known = self.pods.get(pod)
        return known is not None and bool(known.spec.node_name)

    def representative_of(self, claim: str) -> str | None:
        """Pod that accounts for a claim's requests and devices.

        It is the first bound pod of the claim; for an unallocated claim without one, the first pending pod.
        """
        if claim not in self._representatives:  # each of its users asks
            users = sorted(user for user in self.users.get(claim, ()) if not self.pods[user].holds_nothing)
            known = self.claims.get(claim)
            pending = None if known is not None and known.is_allocated else next(iter(users), None)
            self._representatives[claim] = next((user for user in users if self.is_bound(user)), pending)
        return self._representatives[claim]

    def _users_changed(self, claim: str) -> None:
        self.stale_claims.add(claim)
        self._representatives.pop(claim, None)


def _place_of(each: ResourceSlice) -> str:
    """Node of a slice; of one with counter sets for several nodes its pool, `driver/pool`."""
    pool = f"{each.spec.driver}/{each.spec.pool.name}" if each.spec.shared_counters else ""
    return each.spec.node_name or pool


def _leave(index: dict[str, set[str]], key: str, name: str) -> None:
    """Remove a name from an index, and its key with the last name: names of claims do not recur, so keys would pile
    up."""
    if key in index:
        index[key].discard(name)
        if not index[key]:
            del index[key]


def _put(store: dict[str, Stored], name: str, value: Stored | None) -> None:
    if value is None:
        store.pop(name, None)
    else:
        store[name] = value
