"""Device requests of a ResourceClaim, the device inventory of each node, and the claims that a node can serve."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller import fair_shares
from controller.dra.inventory import WHOLE_MILLI, DeviceInventory, Listed
from controller.dra.objects import Constraint, DeviceClass, ResourceClaim
from controller.dra.room import MOST_RESULTS, Allocation, ClaimRequest, DeviceRoom, Given, capacity_for
from controller.dra.selectors import Selector, SelectorError, UnsupportedSelectorError, facts_of, selector

MOST_SELECTORS, LONGEST_SELECTORS = 64, 4096
"""Most selectors of a claim's own, and characters of all of them. Chosen: hand-written ones have some hundred. Anybody
who may create a ResourceClaim may write a thousand of 10,240 characters, each of which is evaluated on every device:
4,096 characters take two seconds on 8,000 devices."""


class UnsupportedClaimError(ValueError):
    """The claim uses a feature that Tonnage does not allocate, or names a DeviceClass that does not exist."""


@dataclass(frozen=True, slots=True)
class ClaimRequests:
    """All device requests of one claim."""

    requests: tuple[ClaimRequest, ...]
    constraints: tuple[Constraint, ...] = ()

    @property
    def digest(self) -> str:
        """Hash that is equal for claims that the same nodes can serve."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    @property
    def selectors(self) -> tuple[str, ...]:
        """Different selectors of all requests."""
        return tuple(dict.fromkeys(text for request in self.requests for text in request.selectors))

    @property
    def wants_all(self) -> bool:
        return any(request.count is None for request in self.requests)

    def is_any_of(self, inventory: DeviceInventory) -> bool:
        """Whether a plan may choose among the usable devices of a node where all match: each is whole and for it."""
        tolerated = (r.tolerates(each) for each in inventory.devices if each.taints for r in self.requests)
        return not self.constraints and not inventory.has_parts and not any(tolerated)


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
        if exact.allocation_mode not in ("ExactCount", "All"):
            raise UnsupportedClaimError(f"{what} has the unknown allocation mode {exact.allocation_mode!r}")
        known = classes.get(exact.device_class_name)
        if known is None:
            raise UnsupportedClaimError(f"{what} names DeviceClass {exact.device_class_name!r}, which does not exist")
        selectors = tuple(each.cel.expression for each in (*known.spec.selectors, *exact.selectors))
        count = None if exact.allocation_mode == "All" else exact.count
        capacity = tuple(sorted((name, str(amount)) for name, amount in exact.capacity.requests.items()))
        requests.append(ClaimRequest(each.name, exact.device_class_name, count, selectors, exact.tolerations, capacity))
    if len(requests) > 1 and any(request.count is None for request in requests):
        raise UnsupportedClaimError("a request for All devices beside others is not supported; ask for a count")
    if sum(request.count or 0 for request in requests) > MOST_RESULTS:
        raise UnsupportedClaimError(f"it asks for more than {MOST_RESULTS} devices, the most of one claim (count)")
    return ClaimRequests(tuple(requests), devices.constraints)


def fits(wanted: ClaimRequests, inventory: DeviceInventory) -> bool:
    """Whether all usable devices of a node satisfy all requests, so that a plan may choose freely among them.

    Raises SelectorError where a selector cannot be evaluated.
    """
    usable = inventory.usable
    if not usable or (wanted.wants_all and len(usable) < len(inventory.devices)):
        return False
    if any(capacity_for(request, listed.device) is None for request in wanted.requests for listed in usable):
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
"""Prefix of a label that ends with the digest of a claim's requests: the node can serve them. Its value is `yes`, the
number of devices where the claim takes all, or the thousandths of a device where it takes parts, as `142m`."""
MOST_KNOWN = 64
"""Number of different claims above which those without pods are forgotten, and most of the pods that wait in one
namespace. Chosen: a fleet has a dozen."""
WORK = 8_000_000
"""Most characters of selectors times devices that one turn matches, unless one claim takes more: half a second."""


class Feasibility:
    """Inventories by node, and feasible nodes by the digest of the claim's requests. Not thread-safe.

    Where a plan may choose any of a node's devices, the node is feasible whatever is held there; elsewhere while it has
    room for the claim.
    """

    def __init__(self, drivers: Mapping[str, str]) -> None:
        """drivers: driver → extended resource as which its devices are counted."""
        self._drivers = drivers
        self.inventory: dict[str, DeviceInventory] = {}
        self._held: dict[str, tuple[ResourceClaim, ...]] = {}
        """Allocated claims by node."""
        self._known: dict[str, ClaimRequests | None] = {}
        """Requests by digest; None for those with a selector that is not supported."""
        self._feasibility: dict[str, dict[str, str]] = {}
        """Label values by digest and node."""
        self._candidates: dict[tuple[str, str], dict[ClaimRequest, tuple[Listed, ...]]] = {}
        """Devices that satisfy the selectors of each request, by digest and node where they are looked through."""
        self._undecided: dict[str, tuple[str, str]] = {}
        """(node, why) by digest where selectors cannot be evaluated on a node; one of such nodes."""
        self.tolerating = frozenset[str]()
        """Digests of the requests of waiting pods that tolerate some taints."""

    def put(self, node: str, inventory: DeviceInventory | None, held: tuple[ResourceClaim, ...] = ()) -> bool:
        """Set the inventory of a node, None for a node without slices, and its allocated claims; returns whether what
        pods may do there has changed."""
        before, labels = self.inventory.pop(node, None), self.labels(node)
        self._held.pop(node, None)
        if inventory is not None:
            self.inventory[node], self._held[node] = inventory, held
        if inventory != before:
            for at in [at for at in self._candidates if at[1] == node]:
                del self._candidates[at]
        for digest, wanted in self._known.items():
            if wanted is not None and (inventory is None or inventory != before or not wanted.is_any_of(inventory)):
                self._match_one(digest, wanted, node)
        return inventory != before or labels != self.labels(node)

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

    def retain(self, digests: Collection[str]) -> set[str]:
        """Forget all requests but those of these digests, where too many are known; returns the nodes that lost a
        label."""
        bared = set[str]()
        for digest in self._known.keys() - digests if len(self._known) > MOST_KNOWN else ():
            del self._known[digest]
            self._undecided.pop(digest, None)
            bared |= self._feasibility.pop(digest).keys()
        for at in [at for at in self._candidates if at[0] not in self._known]:
            del self._candidates[at]
        return bared

    def labels(self, node: str) -> dict[str, str]:
        """Labels of a node in the snapshot, one per claim that it can serve."""
        return {FITS_LABEL + digest: on[node] for digest, on in self._feasibility.items() if node in on}

    def is_open(self, node: str, listed: Listed) -> bool:
        """Whether a claim may get the device on this node: any, or one that tolerates its taints and has room there."""
        here = (self._known[digest] for digest in self.tolerating if node in self._feasibility[digest])
        requests = (request for wanted in here if wanted for request in wanted.requests)
        return not listed.withheld and (not listed.taints or any(each.tolerates(listed) for each in requests))

    def wait_for(self, digests: Collection[str]) -> set[str]:
        """Note the requests of all waiting pods; returns the nodes on which tainted devices are open to others now."""
        known = ((digest, self._known.get(digest)) for digest in digests)
        now = frozenset(digest for digest, wanted in known if wanted and any(r.tolerations for r in wanted.requests))
        changed, self.tolerating = now ^ self.tolerating, now
        return {node for digest in changed for node in self._feasibility.get(digest, ())}

    def demand(self, wanted: ClaimRequests) -> tuple[int, str, str] | None:
        """(thousandths of devices, label, label value) of the nodes that can serve these requests; None: none can."""
        sizes = Counter(self._feasibility.get(wanted.digest, {}).values())
        if not sizes:
            return None
        # A pod has one size in the snapshot; a claim that takes other amounts on other nodes gets that of most.
        size = min(sizes, key=lambda each: (-sizes[each], len(each), each))
        if size.endswith("m"):
            milli = int(size[:-1])
        else:
            count = int(size) if wanted.wants_all else sum(request.count or 0 for request in wanted.requests)
            milli = count * WHOLE_MILLI
        return milli, FITS_LABEL + wanted.digest, size

    def allocation(
        self,
        node: str,
        claims: Sequence[ClaimRequests],
        held: Iterable[ResourceClaim],
        tried: Callable[[Sequence[Listed]], Sequence[Listed]] = tuple,
    ) -> list[list[Given]] | None:
        """Devices of a node for each of these claims beside those that are held; None where it has no room for them.

        tried: those of the devices that satisfy a request which may be given, in the order of preference. Raises
        SelectorError.
        """
        inventory = self.inventory[node]
        candidates = dict[ClaimRequest, tuple[Listed, ...]]()
        for wanted in claims:
            known = self._candidates.get((wanted.digest, node))
            if known is None:
                known = {r: tuple(d for d in inventory.devices if matches(r, d)) for r in wanted.requests}
                if wanted.digest in self._known:
                    self._candidates[wanted.digest, node] = known
            candidates |= known
        wanted_of = [(each.requests, each.constraints) for each in claims]
        return Allocation(DeviceRoom(inventory, held), wanted_of, lambda request: tried(candidates[request])).found()

    def why_infeasible(self, wanted: ClaimRequests) -> str:
        """Reason why no node can serve these requests."""
        nodes = len(self.inventory)
        if (undecided := self._undecided.get(wanted.digest)) is not None:
            return f"its selectors cannot be evaluated on any of {nodes} nodes with slices: {undecided[1]}"
        if any(self._value(wanted, node, ()) for node in self.inventory):
            left = "devices, counters and capacity left beside other claims"
            return f"none of {nodes} nodes with slices has enough {left}"
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
        if inventory is None:
            return
        try:
            if value := self._value(wanted, node, self._held[node]):
                self._feasibility[digest][node] = value
        except SelectorError as error:  # reported for the pod where no node can serve it
            self._undecided[digest] = node, str(error)

    def _value(self, wanted: ClaimRequests, node: str, held: Iterable[ResourceClaim]) -> str:
        """Value of the label of a node beside these claims; empty where it cannot serve the claim."""
        inventory = self.inventory[node]
        if wanted.is_any_of(inventory):
            of_all = str(inventory.cells) if wanted.wants_all else "yes"
            return of_all if fits(wanted, inventory) else ""
        found = self.allocation(node, [wanted], held)
        if found is None:
            return ""
        milli = sum(given.milli for given in found[0])
        is_whole = milli == WHOLE_MILLI * len(found[0]) and not wanted.wants_all
        return "yes" if is_whole else f"{milli}m"


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
    return dict(fair_shares.in_turns(each[:MOST_KNOWN] for each in queues))
