"""Translation of ResourceSlices and claims into plain nodes and pods, which is all that planning reads.

A node offers as many GPUs as its slices list devices; those that share counters are parts of one. A pod requests as
many as its claims, or a share of one for a part, names the devices that they hold, and is restricted to nodes whose
devices match. So deciders, guard and capacity check count devices of claims like all others. What no pod is counted
with, such as an allocated claim without a bound pod, becomes a placeholder pod in the snapshot, because its devices are
not free. No code outside this folder sees the difference.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from cluster.actions import Start
from cluster.errors import ActionError, Mistake
from cluster.plans import Reason
from controller.api import notation, structs
from controller.dra import requests as dra_requests
from controller.dra.allocation import allocated_status, allocation_writes, deallocation_writes, reservation_writes
from controller.dra.inventory import WHOLE_MILLI, DeviceInventory, Listed, inventory_from
from controller.dra.objects import ClaimStatus, DeviceClass, ResourceClaim
from controller.dra.room import DeviceRoom, Given
from controller.dra.selectors import SelectorError
from controller.dra.watched import WatchedObjects, uses_of
from controller.kube.cluster_view import SeenClaim, SeenPod
from controller.kube.sender import Stamp, Write

WAITING_GATE = structs.SchedulingGate("tonnage.dev/claims")
"""Gate of a pod that cannot be planned because of its claims."""
NODE_LABEL = "resource.tonnage.dev/node"
"""Label with the name of a node whose devices come from slices."""
DEVICE_TAINT = structs.NodeTaint("resource.tonnage.dev/devices", effect="NoSchedule")
"""Taint that keeps pods without claims off devices that only claims can allocate."""
PARTS = "resource.tonnage.dev/parts:"
"""Beginning of the name of a placeholder for parts of a device."""
WITHHELD = "resource.tonnage.dev/withheld:"
"""Beginning of the name of the placeholder for the withheld devices of a node."""
LATELY_S = 30.0
"""Time after which an allocation that no watch showed is taken to have failed; as long as binds are assumed."""
HOLDER_PRIORITY = 2_000_001_000
"""Priority of placeholder pods, which must never be preempted; that of system-node-critical."""

_TOLERATES_IT = structs.PodToleration(key=DEVICE_TAINT.key, operator="Exists")


@dataclass
class Translated:
    """Nodes and pods that changed in translation; None for a deleted one."""

    nodes: dict[str, structs.Node | None] = field(default_factory=dict)
    pods: dict[str, structs.Pod | None] = field(default_factory=dict)


class _NotPlanned(Exception):  # noqa: N818 - never leaves this file
    """Reason for which a pod is not planned."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.reason = Reason(code, words)


class ClaimTranslation:
    """Translated nodes and pods of all slices and claims, and the writes that allocate devices. Not thread-safe."""

    def __init__(
        self, drivers: Mapping[str, str], is_offered: Callable[[Mapping[str, str]], bool] = lambda _: False
    ) -> None:
        """drivers: driver → extended resource as which its devices are counted.

        is_offered: whether Tonnage allocates claims on a node with these labels; by default, on none.
        """
        self._drivers = drivers
        self._is_offered = is_offered
        self.forget()

    def forget(self) -> None:
        """Forgets every object, for a watcher that puts all of them again."""
        self.known = WatchedObjects()
        """Watched objects, into which the watches put their changes."""
        self._feasibility = dra_requests.Feasibility(self._drivers)
        self._requests: dict[str, tuple[ResourceClaim, dra_requests.ClaimRequests | None]] = {}
        """Requests that were read of claims, with `_classes`."""
        self._classes: dict[str, DeviceClass] = {}
        self._unmatched: dict[str, bool] = {}
        """Waiting pods whose requests were not matched with the nodes: whether a later turn does that."""
        self._reasons: dict[str, Reason] = {}
        self._mistakes: dict[str, tuple[Mistake, ...]] = {}
        """Errors by node."""
        self._placeholders: dict[str, frozenset[str]] = {}
        """Placeholders of each node for what no claim or pod is counted with."""
        self._lately: dict[str, tuple[float, ResourceClaim]] = {}
        """Claims as they were allocated, and when, until the watch shows them so. A plan knows what it gave of plain
        devices; of parts, of which others than the chosen are given, only this does."""

    def settle(self) -> Translated:
        """Translated nodes and pods that changed since the last call."""
        known, out = self.known, Translated(pods=dict(self.known.passing))
        self._lately = {name: of for name, of in self._lately.items() if self._is_awaited(name, of[1])}
        for name in known.passing:
            self._reasons.pop(name, None)
        known.stale_claims.discard("")
        known.stale_nodes.discard("")
        for claim in known.stale_claims:
            known.stale_pods |= known.users.get(claim, set())
            on = known.claims[claim].node if claim in known.claims else ""
            if (inventory := self._feasibility.inventory.get(on)) is not None and inventory.has_parts:
                known.stale_nodes.add(on)  # what its pod is counted with may change
        for name in list(known.stale_nodes):
            present, inventory = known.nodes.get(name), None
            if present is not None and self._is_offered(present.metadata.labels):
                found = inventory_from(known.slices_for(name), self._drivers)
                inventory = found if found.devices or found.problems else None
            if self._feasibility.put(name, inventory, known.allocated_on(name)):
                claims = known.claims_on.get(name, set())
                known.stale_claims |= claims
                known.stale_pods |= {user for claim in claims for user in known.users.get(claim, ())}
                known.stale_pods |= known.pods_on.get(name, set()) | known.pods_on.get("", set())
        self._match_requests()
        for name in sorted(known.stale_pods & known.pods.keys()):
            pod = known.pods[name]
            self._reasons.pop(name, None)
            try:
                out.pods[name] = self._running_pod(name, pod) if pod.spec.node_name else self._waiting_pod(name, pod)
            except _NotPlanned as waits:
                self._reasons[name] = waits.reason
                out.pods[name] = gated(pod)
        for claim in sorted(known.stale_claims):
            out.pods[holder_of(claim)] = self._holder(claim)
        for node in sorted(known.stale_nodes):
            out.nodes[node] = self._translated_node(node)
            self._mistakes.pop(node, None)
            out.pods |= dict.fromkeys(self._placeholders.pop(node, ()))
            if (listed := self._feasibility.inventory.get(node)) is None:
                continue
            if made := self._placeholders_of(node, listed):
                self._placeholders[node] = frozenset(made)
                out.pods |= made
            if mistakes := tuple(self._mistakes_of(node)):
                self._mistakes[node] = mistakes
        known.clear_changes()
        return out

    @property
    def reasons(self) -> Mapping[str, Reason]:
        """Reasons why pods that wait for Tonnage are not planned, by `namespace/name`."""
        return dict(self._reasons)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """Errors of the devices of nodes, and devices that several claims hold."""
        return tuple(m for _, mistakes in sorted(self._mistakes.items()) for m in mistakes)

    def half_made(self) -> Iterator[SeenClaim]:
        """Claims that Tonnage allocated and that only pods without a node use, by name."""
        for name, claim in sorted(self.known.claims_of_unbound_pods().items()):
            placed_at_s = notation.instant_or_none(claim.metadata.annotations.placed_at)
            users = tuple(sorted(self.known.users[name]))
            yield SeenClaim(name, claim.metadata.uid, users, holder_of(name), placed_at_s)

    def allocate(self, pod: SeenPod, action: Start, stamp: Stamp) -> list[Write]:
        """Writes that allocate the devices of a bind to the pod's claims. Raises ActionError if impossible."""
        node, made = action.node, list[Write]()
        known, inventory = self.known.pods.get(pod.name), self._feasibility.inventory.get(node)
        if known is None or known.metadata.uid != pod.uid:
            raise ActionError(f"allocating for {pod.name}: it is gone, or has no claims")
        if inventory is None:
            raise ActionError(f"allocating for {pod.name} on {node}: no slices of the node are known")
        wanted = list[tuple[ResourceClaim, dra_requests.ClaimRequests]]()
        for use in uses_of(known):
            claim = self.known.claims.get(use.claim)
            if claim is None:
                raise ActionError(
                    f"allocating for {pod.name}: its claim {use.claim or '(of a template)'} does not exist"
                )
            if claim.is_allocated:
                if claim.node not in ("", node):
                    raise ActionError(f"allocating for {pod.name}: {claim.name} is allocated on {claim.node}")
                made += [] if claim.is_reserved_for(pod.uid) else reservation_writes(claim, pod, stamp)
                continue
            try:
                wanted.append((claim, dra_requests.requests_of_claim(claim, self.known.classes)))
            except dra_requests.UnsupportedClaimError as error:
                raise ActionError(f"allocating {claim.name}: {error}") from error
        for claim, _ in wanted:
            self._lately.pop(claim.name, None)
        held = [claim for at_s, claim in self._lately.values() if claim.node == node and at_s + LATELY_S > stamp.at_s]
        held += self.known.allocated_on(node)
        given = self._given(pod.name, node, [requests for _, requests in wanted], action.devices, held)
        for (claim, _), devices in zip(wanted, given, strict=True):
            status = allocated_status(claim, devices, node, pod, stamp, self.known.classes)
            made += allocation_writes(claim, status, stamp)
            self._lately[claim.name] = stamp.at_s, replace(claim, status=msgspec.convert(status, ClaimStatus))
        return made

    def _is_awaited(self, name: str, given: ResourceClaim) -> bool:
        """Whether the watch does not yet show a claim as it was allocated."""
        seen = self.known.claims.get(name)
        return seen is not None and seen.metadata.uid == given.metadata.uid and not seen.is_allocated

    def _given(
        self,
        pod: str,
        node: str,
        wanted: Sequence[dra_requests.ClaimRequests],
        chosen: Sequence[int],
        held: Sequence[ResourceClaim],
    ) -> list[list[Given]]:
        """Devices of these claims: the chosen ones, or others where a plan may not choose any and those have no room.

        Raises ActionError when the cluster has changed since the plan was made.
        """
        inventory = self._feasibility.inventory[node]
        if wrong := [number for number in chosen if not 0 <= number < inventory.cells]:
            raise ActionError(f"allocating device {wrong[0]}: {node} has {inventory.cells} devices")

        is_free = len(inventory.usable) == len(inventory.devices) and all(each.is_any_of(inventory) for each in wanted)

        def tried(devices: Sequence[Listed]) -> list[Listed]:
            if is_free:
                return [each for each in devices if each.cell in chosen]
            return sorted(devices, key=lambda each: each.cell not in chosen)

        try:
            found = self._feasibility.allocation(node, wanted, held, tried)
        except SelectorError as error:
            raise ActionError(f"allocating for {pod} on {node}: {error}") from error
        if found is None:
            raise ActionError(f"allocating for {pod}: {_refusal(inventory, chosen, held)}")
        used = {each.listed.cell for devices in found for each in devices}
        if is_free and (left := sorted(set(chosen) - used)):
            raise ActionError(f"allocating for {pod}: devices {left} were chosen beyond those that its claims take")
        return found

    def deallocate(self, claim: str, epoch: int) -> list[Write]:
        """Writes that deallocate a claim whose pods are all unbound. Raises ActionError when that is not so."""
        found = self.known.claims_of_unbound_pods().get(claim)
        if found is None:
            raise ActionError(f"releasing claim {claim}: it is gone, or a pod that uses it has a node")
        return deallocation_writes(found, epoch)

    # Nodes.

    def _match_requests(self) -> None:
        """Match new requests with the nodes, in turns of the namespaces, and forget those that no pod makes now."""
        known = self.known
        for claim in known.stale_claims - known.claims.keys():
            self._requests.pop(claim, None)
        if self._classes != known.classes:
            self._classes, self._requests = dict(known.classes), {}
        if not (known.stale_pods & known.pods.keys() or self._unmatched or self._feasibility.tolerating):
            return
        wanted = dict[str, dict[str, dra_requests.ClaimRequests]]()
        """Requests of the unallocated claims of unbound pods, by digest, by pod."""
        for name, pod in known.pods.items():
            for use in () if known.is_bound(name) else uses_of(pod):
                found = known.claims.get(use.claim)
                if found is not None and not found.is_allocated and (requests := self._requests_of(found)):
                    wanted.setdefault(name, {})[requests.digest] = requests
        turns = dra_requests.in_turns(wanted, self._feasibility.knows)
        known.stale_nodes |= self._feasibility.learn(turns)
        known.stale_nodes |= self._feasibility.retain(turns.keys())
        known.stale_nodes |= self._feasibility.wait_for({digest for each in wanted.values() for digest in each})
        before, self._unmatched = self._unmatched, {}
        for name, each in wanted.items():
            if not all(self._feasibility.knows(digest) for digest in each):
                self._unmatched[name] = each.keys() <= turns.keys()
        # Of those that wait as before, nothing is translated again.
        known.stale_pods |= {name for name, _ in before.items() ^ self._unmatched.items()}

    def _requests_of(self, claim: ResourceClaim) -> dra_requests.ClaimRequests | None:
        """Requests of a claim, read once; None where it is not supported."""
        read = self._requests.get(claim.name)
        if read is None or read[0] is not claim:
            try:
                read = claim, dra_requests.requests_as_written(claim, self.known.classes)
            except dra_requests.UnsupportedClaimError:
                read = claim, None
            self._requests[claim.name] = read
        return read[1]

    def _translated_node(self, name: str) -> structs.Node | None:
        """The node with the devices of its slices as an extended resource."""
        node, inventory = self.known.nodes.get(name), self._feasibility.inventory.get(name)
        if node is None or inventory is None:
            return node
        counted_as = self._drivers.values()
        allocatable = {name: amount for name, amount in node.status.allocatable.items() if name not in counted_as}
        capacity = {name: amount for name, amount in node.status.capacity.items() if name not in counted_as}
        if inventory.cells:
            allocatable[inventory.resource] = str(inventory.cells)
        labels = {**node.metadata.labels, NODE_LABEL: node.metadata.name, **self._feasibility.labels(name)}
        unschedulable = node.spec.unschedulable or bool(self._problems(name))
        return replace(
            node,
            metadata=replace(node.metadata, labels=labels),
            spec=replace(node.spec, unschedulable=unschedulable, taints=(*node.spec.taints, DEVICE_TAINT)),
            status=replace(node.status, allocatable=allocatable, capacity=capacity),
        )

    def _problems(self, name: str) -> tuple[str, ...]:
        node, inventory = self.known.nodes[name], self._feasibility.inventory[name]
        counted = [r for r in self._drivers.values() if str(node.status.allocatable.get(r, "0")) != "0"]
        if counted:
            plugin = f"it also offers {counted[0]} through a device plugin: the same devices could be allocated twice"
            return (*inventory.problems, plugin)
        return inventory.problems

    def _mistakes_of(self, node: str) -> Iterator[Mistake]:
        remedy = "no new pod starts there until that is corrected"
        yield from (Mistake(f"Node/{node}", problem, remedy) for problem in self._problems(node))
        inventory, claims = self._feasibility.inventory[node], self.known.allocated_on(node)
        closed = (each for each in inventory.devices if not self._feasibility.is_open(node, each))
        for why, count in sorted(Counter(inventory.withheld(each) for each in closed).items()):
            yield Mistake(f"Node/{node}", f"{count} devices are not allocated: {why}")
        held = Counter(device for claim in claims for device in claim.held)
        for device, count in sorted(held.items()):
            if count > 1:
                yield Mistake(f"Node/{node}", f"{count} claims hold {device}", "delete all but one of their pods")
        for driver, pool in DeviceRoom(inventory, claims).overdrawn:
            over = f"claims hold more of the counters of {driver}/{pool} than there are"
            yield Mistake(f"Node/{node}", over, "delete some of their pods")

    def _placeholders_of(self, node: str, inventory: DeviceInventory) -> dict[str, structs.Pod]:
        """Placeholders for devices that are not allocated, and for what claims hold beside that which their pods are
        counted with."""
        of_holders = defaultdict[str, Counter[int]](Counter)
        for name in self.known.claims_on.get(node, ()):
            holder = self.known.representative_of(name) or holder_of(name)
            of_holders[holder].update(inventory.amounts(self.known.claims[name]))
        used, rest = Counter[int](), Counter[int]()
        for amounts in of_holders.values():
            used.update(amounts)
            cells, _ = seat_of(amounts)
            rest.update({cell: milli for cell, milli in amounts.items() if cell not in cells})
        is_open = {each.cell for each in inventory.devices if self._feasibility.is_open(node, each)}
        closed = [cell for cell in range(inventory.cells) if cell not in is_open]
        rest.update({cell: WHOLE_MILLI - used[cell] for cell in closed if 0 < used[cell] < WHOLE_MILLI})
        made = [holder_pod(f"{WITHHELD}{node}", node, inventory, [cell for cell in closed if not used[cell]])]
        made += [holder_pod(f"{PARTS}{node}:{n}", node, inventory, [n], milli) for n, milli in sorted(rest.items())]
        return {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in made if pod is not None}

    # Pods.

    def _running_pod(self, name: str, pod: structs.Pod) -> structs.Pod:
        inventory = self._feasibility.inventory.get(pod.spec.node_name)
        if inventory is None:
            return pod
        amounts, late = Counter[int](), 0
        for use in uses_of(pod):
            claim = self.known.claims.get(use.claim)
            if claim is None or self.known.representative_of(use.claim) != name:
                continue
            if claim.is_allocated:
                amounts.update(inventory.amounts(claim))
            elif wanted := self._requests_of(claim):
                # The watch of claims lags: the Binding's annotation names the devices.
                late += sum(inventory.cells if each.count is None else each.count for each in wanted.requests)
        cells, milli = seat_of(amounts)
        devices = ",".join(map(str, cells)) or (pod.metadata.annotations.devices if late else None)
        if late and inventory.has_parts:
            late = len((pod.metadata.annotations.devices or "").split(","))
        return with_requests(pod, len(cells) + late, inventory.resource, devices, {}, milli if not late else None)

    def _waiting_pod(self, name: str, pod: structs.Pod) -> structs.Pod:
        if pod.metadata.annotations.node and not pod.spec.scheduling_gates:
            return pod  # released: its node is chosen, and its claims hold the devices
        milli, wants = 0, dict[str, str]()
        for use in uses_of(pod):
            claim = self.known.claims.get(use.claim)
            if claim is None:
                raise _NotPlanned("AwaitsClaim", f"{use.claim or 'the claim of its template'} does not exist yet")
            if use.is_generated and not claim.is_owned_by(pod.metadata.uid):
                raise _NotPlanned("AwaitsClaim", f"{use.claim} was made for another pod")
            if claim.metadata.deletion_timestamp:
                raise _NotPlanned("AwaitsClaim", f"{use.claim} is being deleted")
            if claim.is_allocated:
                if not claim.node:
                    raise _NotPlanned("ClaimUnsupported", f"{use.claim} holds devices of no single node")
                wants = _with(wants, NODE_LABEL, claim.node, use.claim)
                continue
            first = self.known.representative_of(use.claim)
            if first != name:
                raise _NotPlanned("AwaitsClaim", f"{use.claim} is allocated together with pod {first}")
            of_claim, label, value = self._demand_of(name, use.claim, claim)
            milli += of_claim
            wants = _with(wants, label, value, use.claim)
        share = milli if 0 < milli < WHOLE_MILLI else None
        return with_requests(pod, -(-milli // WHOLE_MILLI), self._feasibility.resource, None, wants, share)

    def _demand_of(self, pod: str, name: str, claim: ResourceClaim) -> tuple[int, str, str]:
        """(thousandths of devices, label, label value) of the nodes that can serve a claim. Raises _NotPlanned."""
        written = self._requests_of(claim)
        if written is not None and not self._feasibility.knows(written.digest):
            if self._unmatched.get(pod, True):
                raise _NotPlanned("WorkUsedUp", "its claims are matched with the devices of the fleet in a later turn")
            most = dra_requests.MOST_KNOWN
            words = f"pods of its namespace wait with {most} other claims that differ; those past that wait for them"
            raise _NotPlanned("NamespaceBoundExceeded", words)
        try:
            wanted = dra_requests.requests_of_claim(claim, self.known.classes)
        except dra_requests.UnsupportedClaimError as error:
            raise _NotPlanned("ClaimUnsupported", f"{name}: {error}") from error
        demand = self._feasibility.demand(wanted)
        if demand is None:
            raise _NotPlanned("NoDeviceMatches", f"{name}: {self._feasibility.why_infeasible(wanted)}")
        return demand

    # Placeholders for devices that no pod holds.

    def _holder(self, name: str) -> structs.Pod | None:
        """Placeholder for an allocated claim without a bound pod."""
        claim = self.known.claims.get(name)
        inventory = self._feasibility.inventory.get(claim.node) if claim else None
        if claim is None or inventory is None or self.known.representative_of(name) is not None:
            return None
        cells, milli = seat_of(inventory.amounts(claim))
        return holder_pod(holder_of(name), claim.node, inventory, cells, milli)


def with_requests(
    pod: structs.Pod, gpus: int, resource: str, devices: str | None, wants: Mapping[str, str], milli: int | None = None
) -> structs.Pod:
    """The pod with a request for `gpus` devices, beside those of its containers, on nodes with the labels `wants`.

    devices: numbers of the devices that it holds, joined by commas; None for a pod that holds none. milli: thousandths
    of its one device where it asks for a part.
    """
    extended = pod.status.extended_resource_claim_status
    by_claim = {mapping.resource_name for mapping in extended.request_mappings} if extended else set[str]()
    containers = tuple(_without(each, by_claim) for each in pod.spec.containers)
    if gpus and milli is None:
        containers = (*containers, structs.Container(resources=structs.Resources(requests={resource: str(gpus)})))
    spec = replace(
        pod.spec,
        containers=containers,
        node_selector={**pod.spec.node_selector, **wants},
        tolerations=(*pod.spec.tolerations, _TOLERATES_IT),
    )
    share = None if milli is None else str(milli)
    annotations = replace(pod.metadata.annotations, devices=devices, gpu_milli=share)
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), spec=spec)


def gated(pod: structs.Pod) -> structs.Pod:
    """The pod with a gate that keeps it out of planning."""
    return replace(pod, spec=replace(pod.spec, scheduling_gates=(*pod.spec.scheduling_gates, WAITING_GATE)))


def holder_pod(
    name: str, node: str, inventory: DeviceInventory, numbers: Sequence[int], milli: int | None = None
) -> structs.Pod | None:
    """Placeholder pod that occupies devices of a node in the snapshot; None when there are no devices.

    name: `namespace/name` with a colon in the name, so that no pod of the cluster can have it. milli: thousandths of
    its one device.
    """
    if not numbers:
        return None
    namespace, _, bare = name.partition("/")
    bound = structs.Pod(
        structs.PodMeta(bare, namespace, annotations=structs.PodAnnotations(movable="false")),
        structs.PodSpec(node_name=node, priority=HOLDER_PRIORITY),
        structs.PodStatus("Running"),
    )
    return with_requests(bound, len(numbers), inventory.resource, ",".join(map(str, numbers)), {}, milli)


def holder_of(claim: str) -> str:
    """Name of the placeholder for the devices of a claim without a bound pod."""
    namespace, _, name = claim.partition("/")
    return f"{namespace}/claim:{name}"


def seat_of(amounts: Mapping[int, int]) -> tuple[tuple[int, ...], int | None]:
    """(numbers of devices, thousandths of the one) that a pod is counted with which holds these thousandths of devices:
    the whole ones, or else the one of which it holds most."""
    whole = tuple(sorted(cell for cell, milli in amounts.items() if milli >= WHOLE_MILLI))
    if whole or not amounts:
        return whole, None
    most = max(amounts, key=lambda cell: (amounts[cell], -cell))
    return (most,), amounts[most]


def _refusal(inventory: DeviceInventory, chosen: Sequence[int], held: Sequence[ResourceClaim]) -> str:
    """Reason why the chosen devices cannot be allocated."""
    taken = {device for claim in held for device in claim.held}
    for listed in inventory.devices:
        if listed.cell in chosen and (why := inventory.withheld(listed)):
            return f"{listed.id}: {why}"
        if listed.cell in chosen and listed.id in taken:
            return f"{listed.id}: a claim holds it already"
    return f"devices {sorted(chosen)} were chosen; they are too few for its claims, or one does not satisfy a request"


def _without(container: structs.Container, resources: Collection[str]) -> structs.Container:
    """The container without requests for these resources, which its pod has from a claim."""
    asked = container.resources.requests, container.resources.limits
    kept = ({name: amount for name, amount in each.items() if name not in resources} for each in asked)
    return replace(container, resources=structs.Resources(*kept)) if resources else container


def _with(wants: Mapping[str, str], label: str, value: str, claim: str) -> dict[str, str]:
    """Node labels with one more, from a claim. Raises _NotPlanned where it contradicts that of another claim."""
    if wants.get(label, value) != value:
        raise _NotPlanned("ClaimsApart", f"{claim} is on {value}, another of its claims on {wants[label]}")
    return {**wants, label: value}
