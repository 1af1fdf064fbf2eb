"""Which nodes have what: the inventory of each, and which of them can serve which asks."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from controller.dra.inventory import Inventory
from controller.dra.requests import Ask, fits
from controller.dra.rewriting import FITS_LABEL
from controller.dra.undecided import SelectorError

KNOWN_ASKS = 64
"""More different asks than this are not remembered beyond the pods that have them. Chosen: a fleet has a dozen."""


class Fitting:
    """Inventories by node, and asks by digest with the nodes that can serve them. For one thread."""

    def __init__(self, drivers: Mapping[str, str]) -> None:
        """drivers: driver → the resource as which its devices are counted."""
        self._drivers = drivers
        self.inventory: dict[str, Inventory] = {}
        self._asked: dict[str, Ask] = {}
        self._fitting: dict[str, dict[str, str]] = {}
        """By digest: node → the value of its label."""

    def put(self, node: str, inventory: Inventory | None) -> bool:
        """What a node has now, None for nothing of slices; whether that is something else than before."""
        before = self.inventory.pop(node, None)
        if inventory is not None:
            self.inventory[node] = inventory
        if inventory == before:
            return False
        for digest, ask in self._asked.items():
            self._fit_one(digest, ask, node)
        return True

    def learn(self, asks: Iterable[Ask]) -> set[str]:
        """Find out which nodes can serve asks that were not known; the nodes that got a label for it."""
        labelled = set[str]()
        for ask in asks:
            if ask.digest not in self._asked:
                self._asked[ask.digest], self._fitting[ask.digest] = ask, {}
                for node in self.inventory:
                    self._fit_one(ask.digest, ask, node)
                labelled |= self._fitting[ask.digest].keys()
        return labelled

    @property
    def is_full(self) -> bool:
        return len(self._asked) > KNOWN_ASKS

    def forget_all_but(self, digests: Collection[str]) -> set[str]:
        """The nodes that lost a label."""
        bared = set[str]()
        for digest in self._asked.keys() - digests:
            del self._asked[digest]
            bared |= self._fitting.pop(digest).keys()
        return bared

    def labels(self, node: str) -> dict[str, str]:
        """By which the picture knows what a node can serve."""
        return {FITS_LABEL + digest: on[node] for digest, on in self._fitting.items() if node in on}

    def demand(self, ask: Ask) -> tuple[int, str, str] | None:
        """How many devices an ask is for, and the label and value of the nodes that can serve it; None: no node can."""
        sizes = Counter(self._fitting.get(ask.digest, {}).values())
        if not sizes:
            return None
        # A pod has one size in the picture; of an ask for all devices, that of most of the nodes that would do.
        size = min(sizes, key=lambda each: (-sizes[each], len(each), each))
        count = int(size) if ask.wants_all else sum(request.count or 0 for request in ask.requests)
        return count, FITS_LABEL + ask.digest, size

    def why_none(self, ask: Ask) -> str:
        """Why no node can serve it."""
        nodes = len(self.inventory)
        for inventory in self.inventory.values():
            try:
                fits(ask, inventory)
            except SelectorError as error:
                return f"on none of {nodes} nodes with slices its selectors can be decided: {error}"
        drivers = ", ".join(sorted(self._drivers))
        return f"of {nodes} nodes with slices of {drivers} none has only devices that match all its selectors"

    @property
    def resource(self) -> str:
        """As which a pod's devices are counted."""
        return next((i.resource for i in self.inventory.values() if i.resource), next(iter(self._drivers.values())))

    def _fit_one(self, digest: str, ask: Ask, node: str) -> None:
        inventory = self.inventory.get(node)
        self._fitting[digest].pop(node, None)
        try:
            if inventory is not None and fits(ask, inventory):
                self._fitting[digest][node] = str(len(inventory.devices)) if ask.wants_all else "yes"
        except SelectorError:
            return  # told of the pod, where no node serves it
