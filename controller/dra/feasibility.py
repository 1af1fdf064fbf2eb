"""Feasible nodes of claims: the device inventory of each node, and the claims that it can serve."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from controller.dra.requests import ClaimRequests, DeviceInventory, UnsupportedClaimError, check_selectors, fits
from controller.dra.selectors import SelectorError

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
