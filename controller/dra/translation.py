"""What slices and claims mean for nodes and pods: both are rewritten into what planning reads everywhere else.

A node offers as many GPUs as its slices list devices; a pod asks for as many as its claims do, names the devices that
they hold, and keeps to the nodes whose devices match. So deciders, guard and account count devices of claims as they
count all others. A claim that holds devices and that no bound pod answers for becomes a pod of its own in the picture:
its devices are not free. Nobody outside this folder knows the difference.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cluster.errors import ActionError, Mistake
from cluster.plans import Reason
from controller.dra.allocation import allocation_writes, chosen, deallocation_writes, reservation_writes
from controller.dra.feasibility import Fitting
from controller.dra.inventory import Inventory, inventory_from
from controller.dra.objects import ResourceClaim
from controller.dra.pod_claims import Use, uses_of
from controller.dra.requests import Ask, UnsupportedClaimError, ask_of
from controller.dra.rewriting import (
    NODE_LABEL,
    asking,
    holder_of,
    holding,
    pictured_node,
    waiting,
    withholder_of,
)
from controller.dra.watched import Known
from controller.kube.cluster_view import SeenPod
from controller.kube.stamp import Stamp
from controller.kube.structs import Node, Pod
from controller.kube.write import Write


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
    """What is known of slices and claims, as nodes and pods; and the writes that give devices away. For one thread."""

    def __init__(self, drivers: Mapping[str, str], is_offered: Callable[[Mapping[str, str]], bool]) -> None:
        """drivers: driver → the resource as which its devices are counted.

        is_offered: whether the claims of pods on a node with these labels are allocated by Tonnage.
        """
        self._drivers = drivers
        self._is_offered = is_offered
        self.known = Known()
        """Tell it what the watches say."""
        self._fitting = Fitting(drivers)
        self._reasons: dict[str, Reason] = {}
        self._mistakes: dict[str, tuple[Mistake, ...]] = {}
        """By node, those that have some."""

    def settle(self) -> Settled:
        """What nodes and pods are in the picture now, as far as that changed since the last time."""
        known, out = self.known, Settled(pods=dict(self.known.passing))
        for name in known.passing:
            self._reasons.pop(name, None)
        known.stale_claims.discard("")
        known.stale_nodes.discard("")
        for claim in known.stale_claims:
            known.stale_pods |= known.users.get(claim, set())
        self._take_inventories()
        self._fit_asks()
        for name in sorted(known.stale_pods & known.pods.keys()):
            out.pods[name] = self._pictured_pod(name)
        for claim in sorted(known.stale_claims):
            out.pods[holder_of(claim)] = self._holder(claim)
        for node in sorted(known.stale_nodes):
            out.nodes[node] = self._pictured_node(node)
            out.pods[withholder_of(node)] = self._withheld_on(node)
            self._mistakes.pop(node, None)
            if node in self._fitting.inventory and (mistakes := tuple(self._mistakes_of(node))):
                self._mistakes[node] = mistakes
        known.looked_at()
        return out

    @property
    def reasons(self) -> Mapping[str, Reason]:
        """Why pods (`namespace/name`) that ask for Tonnage are not planned for."""
        return dict(self._reasons)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """What is wrong with the devices of nodes, and devices that two claims hold."""
        return tuple(m for _, mistakes in sorted(self._mistakes.items()) for m in mistakes)

    def writes(self, pod: SeenPod, node: str, numbers: Iterable[int], stamp: Stamp) -> list[Write]:
        """What makes the claims of a pod hold these devices of a node. Raises ActionError when they cannot."""
        left, made = sorted(numbers), list[Write]()
        known, inventory = self.known.pods.get(pod.name), self._fitting.inventory.get(node)
        if known is None or known.metadata.uid != pod.uid:
            raise ActionError(f"allocating for {pod.name}: it is gone, or has no claims")
        if inventory is None:
            raise ActionError(f"allocating for {pod.name} on {node}: no slices of the node are known")
        held = self.known.held_on(node)
        for use in uses_of(known):
            claim = self.known.claims.get(use.claim)
            if claim is None:
                raise ActionError(f"allocating for {pod.name}: its claim {use.claim or '(of a template)'} is not there")
            if claim.is_allocated:
                if claim.node not in ("", node):
                    raise ActionError(f"allocating for {pod.name}: {claim.name} is allocated on {claim.node}")
                made += [] if claim.is_reserved_for(pod.uid) else reservation_writes(claim, pod, stamp)
                continue
            try:
                ask = ask_of(claim, self.known.classes)
            except UnsupportedClaimError as error:
                raise ActionError(f"allocating {claim.name}: {error}") from error
            count = ask.count_on(inventory)
            given = chosen(ask, inventory, left[:count], held)
            left, held = left[count:], held | {listed.id for _, listed in given}
            made += allocation_writes(claim, given, node, pod, stamp, self.known.classes)
        if left:
            raise ActionError(f"allocating for {pod.name}: its claims take {left} fewer devices than were chosen")
        return made

    def release_writes(self, claim: str, epoch: int) -> list[Write]:
        """What takes the devices of a claim back that is half made. Raises ActionError when it is not."""
        found = self.half_made().get(claim)
        if found is None:
            raise ActionError(f"releasing claim {claim}: it is gone, or a pod that uses it has a node")
        return deallocation_writes(found, epoch)

    def users(self, claim: str) -> tuple[str, ...]:
        """The pods (`namespace/name`) that use a claim."""
        return self.known.users_of(claim)

    def half_made(self) -> dict[str, ResourceClaim]:
        """Claims that Tonnage allocated and that only pods without a node use."""
        return self.known.half_made()

    # Nodes.

    def _take_inventories(self) -> None:
        known = self.known
        for name in list(known.stale_nodes):
            if self._fitting.put(name, self._inventory_of(name)):
                claims = known.claims_on.get(name, set())
                known.stale_claims |= claims
                known.stale_pods |= {user for claim in claims for user in known.users.get(claim, ())}
                known.stale_pods |= known.pods_on.get(name, set()) | known.pods_on.get("", set())

    def _inventory_of(self, name: str) -> Inventory | None:
        node = self.known.nodes.get(name)
        if node is None or not self._is_offered(node.metadata.labels):
            return None
        slices = [self.known.slices[each] for each in sorted(self.known.slices_of.get(name, ()))]
        found = inventory_from(slices, self._drivers)
        return found if found.devices or found.problems else None

    def _fit_asks(self) -> None:
        """Find out which nodes can serve asks that were not known, and forget what nobody asks any more."""
        known = self.known
        known.stale_nodes |= self._fitting.learn(self._asks_of(known.stale_pods & known.pods.keys()))
        if self._fitting.is_full:
            asked = {ask.digest for ask in self._asks_of(known.pods)}
            known.stale_nodes |= self._fitting.forget_all_but(asked)

    def _asks_of(self, pods: Iterable[str]) -> Iterator[Ask]:
        """Those of claims that are not allocated, of pods that have no node."""
        for name in pods:
            for use in () if self.known.is_bound(name) else uses_of(self.known.pods[name]):
                claim = self.known.claims.get(use.claim)
                if claim is not None and not claim.is_allocated and (ask := self._ask(claim)):
                    yield ask

    def _ask(self, claim: ResourceClaim) -> Ask | None:
        try:
            return ask_of(claim, self.known.classes)
        except UnsupportedClaimError:
            return None

    def _pictured_node(self, name: str) -> Node | None:
        node, inventory = self.known.nodes.get(name), self._fitting.inventory.get(name)
        if node is None or inventory is None:
            return node
        labels = self._fitting.labels(name)
        is_shut = bool(self._problems(name))
        return pictured_node(node, inventory, self._drivers.values(), labels, is_shut=is_shut)

    def _problems(self, name: str) -> tuple[str, ...]:
        node, inventory = self.known.nodes[name], self._fitting.inventory[name]
        counted = [r for r in self._drivers.values() if str(node.status.allocatable.get(r, "0")) != "0"]
        if counted:
            plugin = f"it also offers {counted[0]} through a device plugin: the same devices could be given twice"
            return (*inventory.problems, plugin)
        return inventory.problems

    def _mistakes_of(self, node: str) -> Iterable[Mistake]:
        remedy = "nothing new starts there until that is put right"
        yield from (Mistake(f"Node/{node}", problem, remedy) for problem in self._problems(node))
        withheld = Counter(each.withheld for each in self._fitting.inventory[node].devices if each.withheld)
        for why, count in sorted(withheld.items()):
            yield Mistake(f"Node/{node}", f"{count} devices are given to nobody: {why}")
        held = Counter(d for claim in self.known.claims_on.get(node, ()) for d in self.known.claims[claim].held)
        for device, count in sorted(held.items()):
            if count > 1:
                yield Mistake(f"Node/{node}", f"{count} claims hold {device}", "delete all but one of their pods")

    # Pods.

    def _pictured_pod(self, name: str) -> Pod:
        pod = self.known.pods[name]
        self._reasons.pop(name, None)
        try:
            return self._running_pod(name, pod) if pod.spec.node_name else self._waiting_pod(name, pod)
        except _Waits as waits:
            self._reasons[name] = waits.reason
            return waiting(pod)

    def _running_pod(self, name: str, pod: Pod) -> Pod:
        inventory = self._fitting.inventory.get(pod.spec.node_name)
        if inventory is None:
            return pod
        gpus, numbers = 0, set[int]()
        for use in uses_of(pod):
            claim = self.known.claims.get(use.claim)
            if claim is None or self.known.answers_for(use.claim) != name:
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
            first = self.known.answers_for(use.claim)
            if first != name:
                raise _Waits("AwaitsClaim", f"{use.claim} is allocated together with pod {first}")
            count, label, value = self._asks(use.claim, claim)
            gpus += count
            wants = _with(wants, label, value, use.claim)
        return asking(pod, gpus, self._fitting.resource, None, wants)

    def _claim_for(self, pod: Pod, use: Use) -> ResourceClaim:
        claim = self.known.claims.get(use.claim)
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
            ask = ask_of(claim, self.known.classes)
        except UnsupportedClaimError as error:
            raise _Waits("ClaimUnsupported", f"{name}: {error}") from error
        demand = self._fitting.demand(ask)
        if demand is None:
            raise _Waits("NoDeviceMatches", f"{name}: {self._fitting.why_none(ask)}")
        return demand

    # What holds devices and is no pod.

    def _holder(self, name: str) -> Pod | None:
        """In the place of an allocated claim for which no bound pod answers."""
        claim = self.known.claims.get(name)
        inventory = self._fitting.inventory.get(claim.node) if claim else None
        if claim is None or inventory is None or self.known.answers_for(name) is not None:
            return None
        numbers = [n for device in claim.held if (n := inventory.number(device)) is not None]
        return holding(holder_of(name), claim.node, inventory, numbers)

    def _withheld_on(self, node: str) -> Pod | None:
        inventory = self._fitting.inventory.get(node)
        if inventory is None:
            return None
        held = self.known.held_on(node)
        numbers = [n for n, each in enumerate(inventory.devices) if each.withheld and each.id not in held]
        return holding(withholder_of(node), node, inventory, numbers)


def _with(wants: Mapping[str, str], label: str, value: str, claim: str) -> dict[str, str]:
    """One condition more on the node, of a claim. Raises _Waits where it contradicts that of another claim."""
    if wants.get(label, value) != value:
        raise _Waits("ClaimsApart", f"{claim} is on {value}, another of its claims on {wants[label]}")
    return {**wants, label: value}
