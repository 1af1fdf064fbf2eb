"""Device requests of a ResourceClaim, the device inventory of each node, and the claims that a node can serve."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from controller.dra.objects import Device, DeviceClass, DeviceId, ResourceClaim, ResourceSlice
from controller.dra.selectors import Selector, SelectorError, UnsupportedSelectorError, facts_of, selector

OTHER_KINDS = ("mig", "vfio")
"""Values of the attribute `type` in NVIDIA's driver for devices that are parts or other views of a GPU."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Published device."""

    id: DeviceId
    device: Device
    withheld: str = ""
    """Reason why it must not be allocated; empty when it may be."""


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """Devices of a node. The number of a device is its index in `devices`."""

    devices: tuple[Listed, ...] = ()
    resource: str = ""
    """Extended resource as which the devices are counted."""
    problems: tuple[str, ...] = ()
    """Reasons why the node is unschedulable."""

    def number(self, device: DeviceId) -> int | None:
        return next((number for number, listed in enumerate(self.devices) if listed.id == device), None)

    @property
    def usable(self) -> tuple[Listed, ...]:
        return tuple(listed for listed in self.devices if not listed.withheld)


def inventory_from(slices: Iterable[ResourceSlice], drivers: Mapping[str, str]) -> DeviceInventory:
    """Inventory of one node.

    slices: all slices of that node. drivers: driver → extended resource as which its devices are counted; other drivers
    are ignored.

    Only the highest generation of a pool counts, and only complete pools can be allocated from. Source: resource/v1
    types.go, `ResourcePool`.
    """
    pools: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        if each.spec.driver in drivers:
            pools[each.spec.driver, each.spec.pool.name].append(each)
    problems, listed = [], []
    for (driver, pool), parts in sorted(pools.items()):
        newest = max(part.spec.pool.generation for part in parts)
        current = [part for part in parts if part.spec.pool.generation == newest]
        expected = current[0].spec.pool.resource_slice_count
        if len(current) != expected:
            problems.append(f"pool {pool} of {driver} is incomplete: {len(current)} of {expected} slices exist")
        devices = (device for part in current for device in part.spec.devices)
        listed += [Listed(DeviceId(driver, pool, each.name), each, _withheld(each)) for each in devices]
    resources = sorted({drivers[driver] for driver, _ in pools})
    if len(resources) > 1:
        problems.append(f"its drivers offer {' and '.join(resources)}: a node has GPUs of one kind")
    listed.sort(key=lambda each: (each.id.driver, each.id.pool, _natural(each.id.device)))
    return DeviceInventory(tuple(listed), resources[0] if resources else "", tuple(problems))


def _withheld(device: Device) -> str:
    """Reason why a device must not be allocated: an unsupported feature, or a taint of its driver; "" for none."""
    kind = device.attributes.get("type")
    if device.consumes_counters:
        return "it consumes shared counters (partitionable devices are not supported)"
    if device.allow_multiple_allocations:
        return "it allows several allocations (consumable capacity is not supported)"
    if device.binding_conditions:
        return "it has binding conditions, which are not supported"
    if kind is not None and kind.string in OTHER_KINDS:
        return f"it is a {kind.string} device, not a whole GPU"
    taint = next((taint for taint in device.taints if taint.effect in ("NoSchedule", "NoExecute")), None)
    return f"its driver tainted it {taint.key}:{taint.effect}" if taint else ""


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts gpu-2 before gpu-10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)


MOST_SELECTORS, LONGEST_SELECTORS = 64, 4096
"""Most selectors of a claim's own, and characters of all of them. Chosen: hand-written ones have some hundred. Anybody
who may create a ResourceClaim may write a thousand of 10,240 characters, each of which is evaluated on every device:
4,096 characters take two seconds on 8,000 devices."""


class UnsupportedClaimError(ValueError):
    """The claim uses a feature that Tonnage does not allocate, or names a DeviceClass that does not exist."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """One device request of a claim."""

    name: str
    class_name: str
    count: int | None
    """Number of devices; None: all devices of the node."""
    selectors: tuple[str, ...]
    """CEL expressions of its class and its own; a device must satisfy all."""


@dataclass(frozen=True, slots=True)
class ClaimRequests:
    """All device requests of one claim."""

    requests: tuple[ClaimRequest, ...]
    shared: tuple[str, ...] = ()
    """Attributes that must have the same value on all devices."""

    @property
    def digest(self) -> str:
        """Hash that is equal for claims that the same nodes can serve."""
        text = repr((sorted({s for r in self.requests for s in r.selectors}), self.shared, self.wants_all))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def selectors(self) -> tuple[str, ...]:
        """Different selectors of all requests: a node serves the claim where each of its devices satisfies each."""
        return tuple(dict.fromkeys(text for request in self.requests for text in request.selectors))

    @property
    def wants_all(self) -> bool:
        return any(request.count is None for request in self.requests)

    def count_on(self, inventory: DeviceInventory) -> int:
        """Number of devices that the claim takes on this node."""
        return sum(len(inventory.devices) if r.count is None else r.count for r in self.requests)


def requests_of_claim(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> ClaimRequests:
    """Device requests of a claim, whose selectors are supported. Raises UnsupportedClaimError."""
    requests = requests_as_written(claim, classes)
    check_selectors(requests)
    return requests


def check_selectors(requests: ClaimRequests) -> None:
    """Raises UnsupportedClaimError for a selector that is not supported. A long one takes milliseconds."""
    for request in requests.requests:
        for text in request.selectors:
            try:
                selector(text)
            except UnsupportedSelectorError as error:
                raise UnsupportedClaimError(f"a selector of request {request.name!r}: {error}") from error


def requests_as_written(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> ClaimRequests:
    """The same, with selectors that are not read yet."""
    devices = claim.spec.devices
    own = [len(s.cel.expression) for each in devices.requests if each.exactly for s in each.exactly.selectors]
    if len(own) > MOST_SELECTORS or sum(own) > LONGEST_SELECTORS:
        most = f"{MOST_SELECTORS} of {LONGEST_SELECTORS} are supported"
        raise UnsupportedClaimError(f"it has {len(own)} selectors of {sum(own)} characters in all; {most}")
    requests = []
    for each in devices.requests:
        what, exact = f"request {each.name!r}", each.exactly
        if exact is None:
            raise UnsupportedClaimError(f"{what} is a list of alternatives (firstAvailable), which is not supported")
        if exact.admin_access:
            raise UnsupportedClaimError(f"{what} asks for admin access, which Tonnage does not grant")
        if exact.capacity is not None:
            raise UnsupportedClaimError(f"{what} asks for a fraction of a device's capacity, which is not supported")
        if exact.allocation_mode not in ("ExactCount", "All"):
            raise UnsupportedClaimError(f"{what} has the unknown allocation mode {exact.allocation_mode!r}")
        known = classes.get(exact.device_class_name)
        if known is None:
            raise UnsupportedClaimError(f"{what} names DeviceClass {exact.device_class_name!r}, which does not exist")
        selectors = tuple(each.cel.expression for each in (*known.spec.selectors, *exact.selectors))
        count = None if exact.allocation_mode == "All" else exact.count
        requests.append(ClaimRequest(each.name, exact.device_class_name, count, selectors))
    if len(requests) > 1 and any(request.count is None for request in requests):
        raise UnsupportedClaimError("a request for All devices beside others is not supported; ask for a count")
    if any(constraint.distinct_attribute for constraint in devices.constraints):
        raise UnsupportedClaimError("the constraint distinctAttribute is not supported")
    shared = sorted({c.match_attribute for c in devices.constraints if c.match_attribute})
    return ClaimRequests(tuple(requests), tuple(shared))


def fits(wanted: ClaimRequests, inventory: DeviceInventory) -> bool:
    """Whether the usable devices of a node satisfy the requests.

    All of them must: Tonnage chooses freely among a node's devices, which are of one type. Raises SelectorError where a
    selector cannot be evaluated.
    """
    usable = inventory.usable
    if not usable or (wanted.wants_all and len(usable) < len(inventory.devices)):
        return False
    for name in wanted.shared:
        # By its full name `domain/name`; a driver may omit its own domain.
        values = {
            each.device.attributes.get(name) or each.device.attributes.get(name.removeprefix(f"{each.id.driver}/"))
            for each in usable
        }
        if len(values) > 1 or None in values:
            return False
    selectors = [_compiled(text) for text in wanted.selectors]
    domains = {domain for each in selectors for domain in each.domains}
    facts = [facts_of(listed.id.driver, listed.device, domains) for listed in usable]
    return all(each.selects(of_device) for each in selectors for of_device in facts)


def matches(request: ClaimRequest, listed: Listed) -> bool:
    """Whether a device satisfies all selectors of a request. Raises SelectorError."""
    return all(_compiled(text).matches(listed.id.driver, listed.device) for text in request.selectors)


def _compiled(text: str) -> Selector:
    try:
        return selector(text)
    except UnsupportedSelectorError as error:  # it was compiled once already
        raise SelectorError(str(error)) from error


FITS_LABEL = "resource.tonnage.dev/fits-"
"""Prefix of a label that ends with the digest of a claim's requests: all devices of the node satisfy them."""
MOST_KNOWN = 64
"""Number of different claims above which those without pods are forgotten, and most of the pods that wait in one
namespace. Chosen: a fleet has a dozen."""
WORK = 8_000_000
"""Most characters of selectors times devices that one turn matches, unless one claim takes more: half a second."""


class Feasibility:
    """Inventories by node, and feasible nodes by the digest of the claim's requests. Not thread-safe."""

    def __init__(self, drivers: Mapping[str, str]) -> None:
        """drivers: driver → extended resource as which its devices are counted."""
        self._drivers = drivers
        self.inventory: dict[str, DeviceInventory] = {}
        self._known: dict[str, ClaimRequests | None] = {}
        """Requests by digest; None for those with a selector that is not supported."""
        self._feasibility: dict[str, dict[str, str]] = {}
        """Label values by digest and node."""
        self._undecided: dict[str, tuple[str, str]] = {}
        """(node, why) by digest where selectors cannot be evaluated on a node; one of such nodes."""

    def put(self, node: str, inventory: DeviceInventory | None) -> bool:
        """Set the inventory of a node, None for a node without slices; returns whether it changed."""
        before = self.inventory.pop(node, None)
        if inventory is not None:
            self.inventory[node] = inventory
        if inventory == before:
            return False
        for digest, wanted in self._known.items():
            if wanted is not None:
                self._match_one(digest, wanted, node)
        return True

    def knows(self, digest: str) -> bool:
        """Whether the requests of this digest were matched with all nodes."""
        return digest in self._known

    def learn(self, requests: Mapping[str, ClaimRequests]) -> set[str]:
        """Match the unknown ones of these requests, by digest, with all nodes, until the work of a turn is used up;
        returns the nodes that got a label."""
        labelled, used, devices = set[str](), 0, sum(len(each.devices) for each in self.inventory.values())
        for digest, wanted in requests.items():
            if digest in self._known:
                continue
            work = devices * sum(map(len, wanted.selectors))
            if used and used + work > WORK:
                break
            used += work
            self._feasibility[digest] = {}
            try:
                check_selectors(wanted)
                self._known[digest] = wanted
                for node in self.inventory:
                    self._match_one(digest, wanted, node)
            except UnsupportedClaimError:  # reported for the pod
                self._known[digest] = None
            labelled |= self._feasibility[digest].keys()
        return labelled

    @property
    def is_full(self) -> bool:
        return len(self._known) > MOST_KNOWN

    def retain(self, digests: Collection[str]) -> set[str]:
        """Forget all requests but those of these digests; returns the nodes that lost a label."""
        bared = set[str]()
        for digest in self._known.keys() - digests:
            del self._known[digest]
            self._undecided.pop(digest, None)
            bared |= self._feasibility.pop(digest).keys()
        return bared

    def labels(self, node: str) -> dict[str, str]:
        """Labels of a node in the snapshot, one per claim that it can serve."""
        return {FITS_LABEL + digest: on[node] for digest, on in self._feasibility.items() if node in on}

    def demand(self, wanted: ClaimRequests) -> tuple[int, str, str] | None:
        """(number of devices, label, label value) of the nodes that can serve these requests; None: no node can."""
        sizes = Counter(self._feasibility.get(wanted.digest, {}).values())
        if not sizes:
            return None
        # A pod has one size in the snapshot; a request for all devices gets that of most of its feasible nodes.
        size = min(sizes, key=lambda each: (-sizes[each], len(each), each))
        count = int(size) if wanted.wants_all else sum(request.count or 0 for request in wanted.requests)
        return count, FITS_LABEL + wanted.digest, size

    def why_infeasible(self, wanted: ClaimRequests) -> str:
        """Reason why no node can serve these requests."""
        nodes = len(self.inventory)
        if (undecided := self._undecided.get(wanted.digest)) is not None:
            return f"its selectors cannot be evaluated on any of {nodes} nodes with slices: {undecided[1]}"
        drivers = ", ".join(sorted(self._drivers))
        return f"of {nodes} nodes with slices of {drivers} none has only devices that match all its selectors"

    @property
    def resource(self) -> str:
        """Extended resource as which a pod's devices are counted."""
        return next((i.resource for i in self.inventory.values() if i.resource), next(iter(self._drivers.values())))

    def _match_one(self, digest: str, wanted: ClaimRequests, node: str) -> None:
        inventory = self.inventory.get(node)
        self._feasibility[digest].pop(node, None)
        if self._undecided.get(digest, ("",))[0] == node:
            del self._undecided[digest]
        try:
            if inventory is not None and fits(wanted, inventory):
                self._feasibility[digest][node] = str(len(inventory.devices)) if wanted.wants_all else "yes"
        except SelectorError as error:  # reported for the pod where no node can serve it
            self._undecided[digest] = node, str(error)


def in_turns(
    wanted: Mapping[str, Mapping[str, ClaimRequests]], is_known: Callable[[str], bool]
) -> dict[str, ClaimRequests]:
    """Requests by digest: the first of each namespace, then the second of each; of a namespace MOST_KNOWN at most.

    wanted: requests by digest, by pod (`namespace/name`). Of a namespace those that are known come first, so that new
    pods displace none; then by name of the pod.
    """
    of: dict[str, dict[str, ClaimRequests]] = {}
    for pod in sorted(wanted):
        of.setdefault(pod.partition("/")[0], {}).update(wanted[pod])
    queues = [sorted(each.items(), key=lambda one: not is_known(one[0])) for _, each in sorted(of.items())]
    return {
        digest: requests
        for turn in range(min(MOST_KNOWN, max(map(len, queues), default=0)))
        for queue in queues
        for digest, requests in queue[turn : turn + 1]
    }
