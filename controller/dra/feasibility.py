"""Feasible nodes of claims: the device inventory of each node, and the claims that it can serve."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from controller.dra.inventory import Inventory
from controller.dra.requests import ClaimRequests, fits
from controller.dra.rewriting import FITS_LABEL
from controller.dra.undecided import SelectorError

MOST_KNOWN = 64
"""Number of different claims above which those without pods are forgotten. Chosen: a fleet has a dozen."""


class Feasibility:
    """Inventories by node, and feasible nodes by the digest of the claim's requests. Not thread-safe."""

    def __init__(self, drivers: Mapping[str, str]) -> None:
        """drivers: driver → extended resource as which its devices are counted."""
        self._drivers = drivers
        self.inventory: dict[str, Inventory] = {}
        self._known: dict[str, ClaimRequests] = {}
        self._feasibility: dict[str, dict[str, str]] = {}
        """Label values by digest and node."""

    def put(self, node: str, inventory: Inventory | None) -> bool:
        """Set the inventory of a node, None for a node without slices; returns whether it changed."""
        before = self.inventory.pop(node, None)
        if inventory is not None:
            self.inventory[node] = inventory
        if inventory == before:
            return False
        for digest, wanted in self._known.items():
            self._match_one(digest, wanted, node)
        return True

    def learn(self, requests: Iterable[ClaimRequests]) -> set[str]:
        """Match the unknown ones of these requests with all nodes; returns the nodes that got a label."""
        labelled = set[str]()
        for wanted in requests:
            if wanted.digest not in self._known:
                self._known[wanted.digest], self._feasibility[wanted.digest] = wanted, {}
                for node in self.inventory:
                    self._match_one(wanted.digest, wanted, node)
                labelled |= self._feasibility[wanted.digest].keys()
        return labelled

    @property
    def is_full(self) -> bool:
        return len(self._known) > MOST_KNOWN

    def retain(self, digests: Collection[str]) -> set[str]:
        """Forget all requests but those of these digests; returns the nodes that lost a label."""
        bared = set[str]()
        for digest in self._known.keys() - digests:
            del self._known[digest]
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
        for inventory in self.inventory.values():
            try:
                fits(wanted, inventory)
            except SelectorError as error:
                return f"its selectors cannot be evaluated on any of {nodes} nodes with slices: {error}"
        drivers = ", ".join(sorted(self._drivers))
        return f"of {nodes} nodes with slices of {drivers} none has only devices that match all its selectors"

    @property
    def resource(self) -> str:
        """Extended resource as which a pod's devices are counted."""
        return next((i.resource for i in self.inventory.values() if i.resource), next(iter(self._drivers.values())))

    def _match_one(self, digest: str, wanted: ClaimRequests, node: str) -> None:
        inventory = self.inventory.get(node)
        self._feasibility[digest].pop(node, None)
        try:
            if inventory is not None and fits(wanted, inventory):
                self._feasibility[digest][node] = str(len(inventory.devices)) if wanted.wants_all else "yes"
        except SelectorError:
            return  # reported for the pod where no node can serve it
