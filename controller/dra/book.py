"""What slices and claims mean for nodes and pods: both are rewritten into what planning reads everywhere else.

A node offers as many GPUs as its slices list devices; a pod asks for as many as its claims do, names the devices that
they hold, and keeps to the nodes whose devices match. So deciders, guard and account count devices of claims as they
count all others. A claim that holds devices and that no bound pod answers for becomes a pod of its own in the picture:
its devices are not free. Nobody but this file knows the difference.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from cluster.errors import ActionError, Mistake
from cluster.plans import Reason
from controller.dra.allocate import allocation_writes, chosen, reservation_writes
from controller.dra.asks import Ask, UnsupportedClaimError, ask_of, fits
from controller.dra.inventory import Inventory, inventory_from
from controller.dra.objects import DeviceClass, DeviceId, ResourceClaim, ResourceSlice
from controller.dra.pictured import (
    FITS_LABEL,
    NODE_LABEL,
    asking,
    holder_of,
    holding,
    pictured_node,
    waiting,
    withholder_of,
)
from controller.dra.pod_claims import Use, uses_of
from controller.dra.selectors import SelectorError
from controller.kube_structs import Node, Pod
from controller.kube_write import Write
from controller.sightings import SeenPod

Kept = TypeVar("Kept")

KNOWN_ASKS = 64
"""More different asks than this are not remembered beyond the pods that have them. Chosen: a fleet has a dozen."""


@dataclass
class Settled:
    """What changed in the picture; None for what is gone."""

    nodes: dict[str, Node | None] = field(default_factory=dict)
    pods: dict[str, Pod | None] = field(default_factory=dict)


class _Waits(Exception):  # noqa: N818 - never leaves this file
    """A pod is not planned for, and why."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.reason = Reason(code, words)


class Book:
    """Slices, claims and classes of a cluster, with the nodes and pods that they concern. For one thread."""

    def __init__(self, drivers: Mapping[str, str], is_offered: Callable[[Mapping[str, str]], bool]) -> None:
        """drivers: driver → the resource as which its devices are counted.

        is_offered: whether the claims of pods on a node with these labels are allocated by Tonnage.
        """
        self._drivers = drivers
        self._is_offered = is_offered
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        """Those with claims."""
        self._slices: dict[str, ResourceSlice] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._slices_of: defaultdict[str, set[str]] = defaultdict(set)
        self._users: defaultdict[str, set[str]] = defaultdict(set)
        self._pods_on: defaultdict[str, set[str]] = defaultdict(set)
        self._claims_on: defaultdict[str, set[str]] = defaultdict(set)
        self._inventory: dict[str, Inventory] = {}
        self._asked: dict[str, Ask] = {}
        """By digest."""
        self._fitting: dict[str, dict[str, str]] = {}
        """By digest: node → the value of its label."""
        self._reasons: dict[str, Reason] = {}
        self._mistakes: dict[str, tuple[Mistake, ...]] = {}
        """By node, those that have some."""
        self._out = Settled()
        self._stale_nodes: set[str] = set()
        self._stale_pods: set[str] = set()
        self._stale_claims: set[str] = set()

    # What the watches say.

    def put_node(self, name: str, node: Node | None) -> None:
        _put(self._nodes, name, node)
        self._stale_nodes.add(name)

    def put_pod(self, name: str, pod: Pod | None) -> None:
        before = self._pods.pop(name, None)
        if pod is not None and pod.spec.resource_claims:
            self._pods[name] = pod
        if before is not None:
            _leave(self._pods_on, before.spec.node_name, name)
        if name in self._pods:
            self._pods_on[self._pods[name].spec.node_name].add(name)
        for use in uses_of(before) if before else ():
            _leave(self._users, use.claim, name)
            self._stale_claims.add(use.claim)
        for use in uses_of(self._pods[name]) if name in self._pods else ():
            self._users[use.claim].add(name)
            self._stale_claims.add(use.claim)
        if name in self._pods:
            self._stale_pods.add(name)
        else:
            self._out.pods[name] = pod
            self._reasons.pop(name, None)

    def put_slice(self, name: str, each: ResourceSlice | None) -> None:
        before = self._slices.get(name)
        _put(self._slices, name, each)
        if before is not None:
            _leave(self._slices_of, before.spec.node_name, name)
            self._stale_nodes.add(before.spec.node_name)
        if each is not None:
            self._slices_of[each.spec.node_name].add(name)
            self._stale_nodes.add(each.spec.node_name)

    def put_claim(self, name: str, claim: ResourceClaim | None) -> None:
        before = self._claims.get(name)
        _put(self._claims, name, claim)
        if before is not None:
            _leave(self._claims_on, before.node, name)
        if claim is not None and claim.is_allocated:
            self._claims_on[claim.node].add(name)
        self._stale_claims.add(name)
        self._stale_nodes |= {node for node in (before and before.node, claim and claim.node) if node}

    def put_class(self, name: str, each: DeviceClass | None) -> None:
        _put(self._classes, name, each)
        self._stale_pods |= self._pods.keys()

    # What they add up to.

    def settle(self) -> Settled:
        """What nodes and pods are in the picture now, as far as that changed since the last time."""
        self._stale_claims.discard("")
        self._stale_nodes.discard("")
        for claim in self._stale_claims:
            self._stale_pods |= self._users.get(claim, set())
        self._take_inventories()
        self._fit_asks()
        for name in sorted(self._stale_pods & self._pods.keys()):
            self._out.pods[name] = self._pictured_pod(name)
        for claim in sorted(self._stale_claims):
            self._out.pods[holder_of(claim)] = self._holder(claim)
        for node in sorted(self._stale_nodes):
            self._out.nodes[node] = self._pictured_node(node)
            self._out.pods[withholder_of(node)] = self._withheld_on(node)
            self._mistakes.pop(node, None)
            if node in self._inventory and (mistakes := tuple(self._mistakes_of(node))):
                self._mistakes[node] = mistakes
        self._stale_nodes, self._stale_pods, self._stale_claims = set(), set(), set()
        settled, self._out = self._out, Settled()
        return settled

    @property
    def reasons(self) -> Mapping[str, Reason]:
        """Why pods (`namespace/name`) that ask for Tonnage are not planned for."""
        return dict(self._reasons)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """What is wrong with the devices of nodes, and devices that two claims hold."""
        return tuple(m for _, mistakes in sorted(self._mistakes.items()) for m in mistakes)

    def writes(self, pod: SeenPod, node: str, numbers: Iterable[int], epoch: int) -> list[Write]:
        """What makes the claims of a pod hold these devices of a node. Raises ActionError when they cannot."""
        left, made = sorted(numbers), list[Write]()
        known, inventory = self._pods.get(pod.name), self._inventory.get(node)
        if known is None or known.metadata.uid != pod.uid:
            raise ActionError(f"allocating for {pod.name}: it is gone, or has no claims")
        if inventory is None:
            raise ActionError(f"allocating for {pod.name} on {node}: no slices of the node are known")
        held = self._held_on(node)
        for use in uses_of(known):
            claim = self._claims.get(use.claim)
            if claim is None:
                raise ActionError(f"allocating for {pod.name}: its claim {use.claim or '(of a template)'} is not there")
            if claim.is_allocated:
                if claim.node not in ("", node):
                    raise ActionError(f"allocating for {pod.name}: {claim.name} is allocated on {claim.node}")
                made += [] if claim.is_reserved_for(pod.uid) else reservation_writes(claim, pod, epoch)
                continue
            try:
                ask = ask_of(claim, self._classes)
            except UnsupportedClaimError as error:
                raise ActionError(f"allocating {claim.name}: {error}") from error
            count = ask.count_on(inventory)
            given = chosen(ask, inventory, left[:count], held)
            left, held = left[count:], held | {listed.id for _, listed in given}
            made += allocation_writes(claim, given, node, pod, epoch, self._classes)
        if left:
            raise ActionError(f"allocating for {pod.name}: its claims take {left} fewer devices than were chosen")
        return made

    def users(self, claim: str) -> tuple[str, ...]:
        """The pods (`namespace/name`) that use a claim."""
        return tuple(sorted(self._users.get(claim, ())))

    def half_made(self) -> dict[str, ResourceClaim]:
        """Claims that Tonnage allocated and that only pods without a node use."""
        found = {}
        for names in self._claims_on.values():
            for name in names:
                claim, users = self._claims[name], self._users.get(name, set())
                if claim.metadata.annotations.epoch and users and not any(self._is_bound(user) for user in users):
                    found[name] = claim
        return found

    # Nodes.

    def _take_inventories(self) -> None:
        for name in list(self._stale_nodes):
            node, before = self._nodes.get(name), self._inventory.pop(name, None)
            slices = [self._slices[each] for each in sorted(self._slices_of.get(name, ()))]
            if node is not None and self._is_offered(node.metadata.labels):
                found = inventory_from(slices, self._drivers)
                if found.devices or found.problems:
                    self._inventory[name] = found
            if self._inventory.get(name) != before:
                claims = self._claims_on.get(name, set())
                self._stale_claims |= claims
                self._stale_pods |= {user for claim in claims for user in self._users.get(claim, ())}
                for digest, ask in self._asked.items():
                    self._fit_one(digest, ask, name)
                self._stale_pods |= self._pods_on.get(name, set()) | self._pods_on.get("", set())

    def _fit_asks(self) -> None:
        """Find out which nodes can serve asks that were not known, and forget what nobody asks any more."""
        for digest, ask in self._asks_of(self._stale_pods & self._pods.keys()):
            if digest not in self._asked:
                self._asked[digest], self._fitting[digest] = ask, {}
                for node in self._inventory:
                    self._fit_one(digest, ask, node)
                self._stale_nodes |= self._fitting[digest].keys()
        if len(self._asked) > KNOWN_ASKS:
            for digest in self._asked.keys() - dict(self._asks_of(self._pods)).keys():
                del self._asked[digest]
                self._stale_nodes |= self._fitting.pop(digest).keys()

    def _asks_of(self, pods: Iterable[str]) -> Iterator[tuple[str, Ask]]:
        """With their digests, those of claims that are not allocated, of pods that have no node."""
        for name in pods:
            for use in () if self._is_bound(name) else uses_of(self._pods[name]):
                claim = self._claims.get(use.claim)
                if claim is not None and not claim.is_allocated and (ask := self._ask(claim)):
                    yield ask.digest, ask

    def _fit_one(self, digest: str, ask: Ask, node: str) -> None:
        inventory = self._inventory.get(node)
        self._fitting[digest].pop(node, None)
        try:
            if inventory is not None and fits(ask, inventory):
                self._fitting[digest][node] = str(len(inventory.devices)) if ask.wants_all else "yes"
        except SelectorError:
            return  # told of the pod, where no node serves it

    def _ask(self, claim: ResourceClaim) -> Ask | None:
        try:
            return ask_of(claim, self._classes)
        except UnsupportedClaimError:
            return None

    def _pictured_node(self, name: str) -> Node | None:
        node, inventory = self._nodes.get(name), self._inventory.get(name)
        if node is None or inventory is None:
            return node
        labels = {FITS_LABEL + digest: fits_on[name] for digest, fits_on in self._fitting.items() if name in fits_on}
        is_shut = bool(self._problems(name))
        return pictured_node(node, inventory, self._drivers.values(), labels, is_shut=is_shut)

    def _problems(self, name: str) -> tuple[str, ...]:
        node, inventory = self._nodes[name], self._inventory[name]
        counted = [r for r in self._drivers.values() if str(node.status.allocatable.get(r, "0")) != "0"]
        if counted:
            plugin = f"it also offers {counted[0]} through a device plugin: the same devices could be given twice"
            return (*inventory.problems, plugin)
        return inventory.problems

    def _mistakes_of(self, node: str) -> Iterable[Mistake]:
        remedy = "nothing new starts there until that is put right"
        yield from (Mistake(f"Node/{node}", problem, remedy) for problem in self._problems(node))
        withheld = Counter(each.withheld for each in self._inventory[node].devices if each.withheld)
        for why, count in sorted(withheld.items()):
            yield Mistake(f"Node/{node}", f"{count} devices are given to nobody: {why}")
        held = Counter(d for claim in self._claims_on.get(node, ()) for d in self._claims[claim].held)
        for device, count in sorted(held.items()):
            if count > 1:
                yield Mistake(f"Node/{node}", f"{count} claims hold {device}", "delete all but one of their pods")

    def _held_on(self, node: str) -> set[DeviceId]:
        return {device for claim in self._claims_on.get(node, ()) for device in self._claims[claim].held}

    # Pods.

    def _is_bound(self, pod: str) -> bool:
        known = self._pods.get(pod)
        return known is not None and bool(known.spec.node_name)

    def _answers_for(self, claim: str) -> str | None:
        """The pod whose ask and devices a claim is: the first that is bound, or of a claim that is not allocated, the
        first that waits."""
        users = sorted(user for user in self._users.get(claim, ()) if not self._pods[user].holds_nothing)
        bound = [user for user in users if self._is_bound(user)]
        known = self._claims.get(claim)
        if bound or (known is not None and known.is_allocated):
            return bound[0] if bound else None
        return users[0] if users else None

    def _pictured_pod(self, name: str) -> Pod:
        pod = self._pods[name]
        self._reasons.pop(name, None)
        try:
            return self._running_pod(name, pod) if pod.spec.node_name else self._waiting_pod(name, pod)
        except _Waits as waits:
            self._reasons[name] = waits.reason
            return waiting(pod)

    def _running_pod(self, name: str, pod: Pod) -> Pod:
        inventory = self._inventory.get(pod.spec.node_name)
        if inventory is None:
            return pod
        gpus, numbers = 0, set[int]()
        for use in uses_of(pod):
            claim = self._claims.get(use.claim)
            if claim is None or self._answers_for(use.claim) != name:
                continue
            if claim.is_allocated:
                mine = {n for device in claim.held if (n := inventory.number(device)) is not None}
                gpus, numbers = gpus + len(mine), numbers | mine
            elif ask := self._ask(claim):
                gpus += ask.count_on(inventory)  # the watch of claims lags: the Binding's annotation says which
        devices = ",".join(map(str, sorted(numbers))) or (pod.metadata.annotations.devices if gpus else None)
        return asking(pod, gpus, inventory.resource, devices, {})

    def _waiting_pod(self, name: str, pod: Pod) -> Pod:
        if pod.metadata.annotations.node and not pod.spec.scheduling_gates:
            return pod  # released: it keeps the node that was chosen, and its claims hold the devices
        gpus, wants = 0, dict[str, str]()
        for use in uses_of(pod):
            claim = self._claim_for(pod, use)
            if claim.is_allocated:
                if not claim.node:
                    raise _Waits("ClaimUnsupported", f"{use.claim} holds devices of no single node")
                wants = _with(wants, NODE_LABEL, claim.node, use.claim)
                continue
            first = self._answers_for(use.claim)
            if first != name:
                raise _Waits("AwaitsClaim", f"{use.claim} is allocated together with pod {first}")
            count, label, value = self._asks(use.claim, claim)
            gpus += count
            wants = _with(wants, label, value, use.claim)
        return asking(pod, gpus, self._resource(), None, wants)

    def _claim_for(self, pod: Pod, use: Use) -> ResourceClaim:
        claim = self._claims.get(use.claim)
        if claim is None:
            what = use.claim or "the claim of its template"
            raise _Waits("AwaitsClaim", f"{what} is not there yet")
        if use.is_made_for_it and not claim.is_owned_by(pod.metadata.uid):
            raise _Waits("AwaitsClaim", f"{use.claim} was made for another pod")
        if claim.metadata.deletion_timestamp:
            raise _Waits("AwaitsClaim", f"{use.claim} is being deleted")
        return claim

    def _asks(self, name: str, claim: ResourceClaim) -> tuple[int, str, str]:
        """How many devices a claim asks for, and the label by which the picture knows nodes that can serve it."""
        try:
            ask = ask_of(claim, self._classes)
        except UnsupportedClaimError as error:
            raise _Waits("ClaimUnsupported", f"{name}: {error}") from error
        sizes = Counter(self._fitting.get(ask.digest, {}).values())
        if not sizes:
            raise _Waits("NoDeviceMatches", f"{name}: {self._why_none(ask)}")
        # A pod has one size in the picture; of an ask for all devices, that of most of the nodes that would do.
        size = min(sizes, key=lambda each: (-sizes[each], len(each), each))
        count = int(size) if ask.wants_all else sum(request.count or 0 for request in ask.requests)
        return count, FITS_LABEL + ask.digest, size

    def _why_none(self, ask: Ask) -> str:
        nodes = len(self._inventory)
        for inventory in self._inventory.values():
            try:
                fits(ask, inventory)
            except SelectorError as error:
                return f"on none of {nodes} nodes with slices its selectors can be decided: {error}"
        drivers = ", ".join(sorted(self._drivers))
        return f"of {nodes} nodes with slices of {drivers} none has only devices that match all its selectors"

    def _resource(self) -> str:
        return next((i.resource for i in self._inventory.values() if i.resource), next(iter(self._drivers.values())))

    # What holds devices and is no pod.

    def _holder(self, name: str) -> Pod | None:
        """In the place of an allocated claim for which no bound pod answers."""
        claim = self._claims.get(name)
        inventory = self._inventory.get(claim.node) if claim else None
        if claim is None or inventory is None or self._answers_for(name) is not None:
            return None
        numbers = [n for device in claim.held if (n := inventory.number(device)) is not None]
        return holding(holder_of(name), claim.node, inventory, numbers)

    def _withheld_on(self, node: str) -> Pod | None:
        inventory = self._inventory.get(node)
        if inventory is None:
            return None
        held = self._held_on(node)
        numbers = [n for n, each in enumerate(inventory.devices) if each.withheld and each.id not in held]
        return holding(withholder_of(node), node, inventory, numbers)


def _with(wants: Mapping[str, str], label: str, value: str, claim: str) -> dict[str, str]:
    """One condition more on the node, of a claim. Raises _Waits where it contradicts that of another claim."""
    if wants.get(label, value) != value:
        raise _Waits("ClaimsApart", f"{claim} is on {value}, another of its claims on {wants[label]}")
    return {**wants, label: value}


def _leave(index: dict[str, set[str]], key: str, name: str) -> None:
    """Names of claims never come again: what has nobody left is forgotten, else it would be kept for ever."""
    if key in index:
        index[key].discard(name)
        if not index[key]:
            del index[key]


def _put(store: dict[str, Kept], name: str, value: Kept | None) -> None:
    if value is None:
        store.pop(name, None)
    else:
        store[name] = value
