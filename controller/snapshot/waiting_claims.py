"""Claims that wait for a volume of one storage class, the volumes that are available, and how many these serve."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations

import numpy as np

from cluster.arrays import IntArray
from cluster.nodes import LabelMatches, Labels, meets
from cluster.workloads import Requirement, Terms
from controller.api import notation, storage
from controller.api.structs import Amount
from controller.snapshot.nodes import MOST_TERMS, NOWHERE, either, requirement
from controller.snapshot.pod_rules import NotUnderstoodError, selected_by

MOST_OFFERS = 2_048
"""Available volumes whose nodes are looked at for one claim, the smallest first. Chosen: one on each of 2,048 nodes."""
MOST_WANTS = 16
"""Kinds of claims of a class that are told apart where they compete for volumes, those of most claims first."""


@dataclass(frozen=True, slots=True)
class Want:
    """What a claim asks of a volume: claims that ask for the same may have each other's."""

    size: Decimal
    mode: str
    access_modes: tuple[str, ...]
    labels: tuple[Requirement, ...]

    def is_met_by(self, volume: storage.VolumeObject) -> bool:
        """Whether an available volume of its class may serve it."""
        is_accessible = set(self.access_modes) <= set(volume.spec.access_modes)
        return self.may_keep(volume) and is_accessible and all(meets(volume.metadata.labels, r) for r in self.labels)

    def may_keep(self, volume: storage.VolumeObject) -> bool:
        """Whether a volume that names the claim may serve it."""
        spec, meta = volume.spec, volume.metadata
        return spec.volume_mode == self.mode and size_of(spec.capacity) >= self.size and meta.deletion_timestamp is None

    def is_like(self, other: "Want") -> bool:
        """Whether at most their sizes differ."""
        return replace(self, size=other.size) == other

    def includes(self, other: "Want") -> bool:
        """Whether every volume that meets it meets the other, which asks for no more."""
        return self.is_like(other) and self.size >= other.size


def want_of(claim: storage.VolumeClaimObject) -> Want:
    spec = claim.spec
    try:
        labels = selected_by(spec.selector, "spec.selector") or ()
    except NotUnderstoodError:
        labels = NOWHERE[0]  # no volume meets them
    return Want(size_of(spec.resources.requests), spec.volume_mode, tuple(sorted(spec.access_modes)), labels)


def size_of(amounts: Mapping[str, Amount]) -> Decimal:
    """Bytes of storage; more than any other where they are too many to be read."""
    try:
        return notation.quantity(amounts.get("storage", 0))
    except ValueError:
        return Decimal("Infinity")


def nodes_of(volume: storage.VolumeObject) -> Terms | None:
    """Nodes on which a volume can be used; None: not understood. Fields are not looked at, as by kube-scheduler."""
    required = volume.spec.node_affinity.required
    if required is None:
        return ()
    terms: list[tuple[Requirement, ...]] = []
    for term in required.node_selector_terms:
        if term.match_fields and not term.match_expressions:
            return ()
        known = [found for each in term.match_expressions if (found := requirement(each)) is not None]
        if len(known) < len(term.match_expressions):
            return None
        terms += [tuple(known)] if known else []
    too_many = sum(1 + len(each.values) for term in terms for each in term) > MOST_TERMS
    return None if too_many else tuple(terms) or NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Available volumes that meet a want."""

    names: frozenset[str]
    terms: Terms
    """Nodes on which one can be used."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rivalry:
    """Claims that all need one of these volumes."""

    driver: str
    wants: frozenset[Want]
    volumes: frozenset[str]
    ranks: Mapping[str, int]
    """Numbers of the claims."""


class ClassOfVolumes:
    """Available volumes of a storage class, also of none, and the claims that wait for one."""

    def __init__(self, name: str) -> None:
        self.epoch = 0
        """Rises with each change."""
        self._name = name
        self._free: dict[str, tuple[storage.VolumeObject, Terms | None]] = {}
        """Volumes that are kept for no claim, and the nodes on which they can be used."""
        self._waiting: defaultdict[Want, set[str]] = defaultdict(set)
        # Of this epoch:
        self._offers: dict[Want, Offers] = {}
        self._known: tuple[_Rivalry, ...] | None = None

    def change(self) -> None:
        self.epoch += 1
        self._offers.clear()
        self._known = None

    def put_volume(self, volume: storage.VolumeObject, nodes: Terms | None) -> None:
        self._free[volume.metadata.name] = volume, nodes
        self.change()

    def remove_volume(self, name: str) -> None:
        if self._free.pop(name, None) is not None:
            self.change()

    def put_claim(self, name: str, want: Want) -> None:
        self._waiting[want].add(name)
        self.change()

    def remove_claim(self, name: str, want: Want) -> None:
        self._waiting[want].discard(name)
        if not self._waiting[want]:
            del self._waiting[want]
        self.change()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def offers(self, want: Want) -> Offers:
        if want not in self._offers:
            fitting = [each for each in self._free.values() if want.is_met_by(each[0])]
            fitting.sort(key=lambda each: (size_of(each[0].spec.capacity), each[0].metadata.name))
            understood = [(volume.metadata.name, terms) for volume, terms in fitting if terms is not None]
            nodes = [terms for _, terms in understood]
            names = frozenset(name for name, _ in understood)
            self._offers[want] = Offers(names, either(nodes[:MOST_OFFERS]))
        return self._offers[want]

    def counted(self, claim: str, want: Want) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """How a waiting claim counts: as a volume of the drivers of `limits`, and by what one pod at a time may use.

        Of claims that rival for volumes, no more start on a node than it has of these. Where more wait than there are
        in all, they take turns: no more than there are start in one plan.
        """
        mine = [each for each in self._rivalries() if want in each.wants]
        turns = (
            f"{each.driver}, {each.ranks[claim] % len(each.volumes)}"
            for each in mine
            if len(each.ranks) > len(each.volumes)
        )
        return tuple((each.driver, claim) for each in mine), tuple(turns)

    def limits(self, labels: tuple[Labels, ...], matches: LabelMatches) -> Iterator[tuple[str, IntArray]]:
        """Number of the volumes on each node for which claims rival, by what stands for their driver."""
        for each in self._rivalries():
            usable = Counter(terms for name in sorted(each.volumes) if (terms := self._free[name][1]) is not None)
            yield each.driver, _counted_on(usable, labels, matches)

    def _rivalries(self) -> tuple[_Rivalry, ...]:
        """Claims that are at least as large as one kind with its volumes, and unlike kinds with those of both.

        Claims of one kind are served if each such set has enough. Of unlike kinds, kube-scheduler may give the first
        what only the next could have.
        """
        if self._known is None:
            wants = sorted(self._waiting, key=lambda want: (-len(self._waiting[want]), repr(want)))[:MOST_WANTS]
            found = [
                self._rivalry(f"{want} and larger", [each for each in self._waiting if each.includes(want)], [want])
                for want in wants
            ]
            for one, other in combinations(wants, 2):
                rival = not self.offers(one).names.isdisjoint(self.offers(other).names)
                if rival and not one.is_like(other):
                    found.append(self._rivalry(f"{one} or {other}", [one, other], [one, other]))
            self._known = tuple(found)
        return self._known

    def _rivalry(self, words: str, wants: list[Want], served: list[Want]) -> _Rivalry:
        claims = sorted(claim for want in wants for claim in self._waiting[want])
        volumes = frozenset[str]().union(*(self.offers(want).names for want in served))
        ranks = {claim: rank for rank, claim in enumerate(claims)}
        return _Rivalry(f"volumes of class {self._name!r} for {words}", frozenset(wants), volumes, ranks)


def _counted_on(usable: Mapping[Terms, int], labels: tuple[Labels, ...], matches: LabelMatches) -> IntArray:
    """Number of volumes on each node. usable: volumes by the nodes on which they can be used."""
    found = np.zeros(len(labels), dtype=np.int64)
    by_value: defaultdict[str, Counter[str | None]] = defaultdict(Counter)
    for terms, count in usable.items():
        only = terms[0][0] if len(terms) == 1 and len(terms[0]) == 1 else None
        if only is not None and only.operator == "In":
            # Local volumes, of which each node has its own.
            by_value[only.key].update(dict.fromkeys(only.values, count))
        else:
            found += count * matches.meets_terms(terms)
    for key, counts in by_value.items():
        found += np.array([counts[each.get(key)] for each in labels], dtype=np.int64)
    return found
