"""What the waiting pods of one namespace may ask for together: pods past a bound or a quota wait, with the reason.

Each shape and each requirement costs every plan, and whoever may create pods decides how many there are.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cluster import arrays, changes, workloads
from cluster.snapshot import PodTable, Snapshot
from controller.api.labels import MANAGED_LABEL

EXCEEDED = "NamespaceBoundExceeded"
QUOTA_EXCEEDED = "QuotaExceeded"
MOST_CONSTRAINTS = 65_536
"""Requirements, values and tolerations of all waiting pods of a namespace. Chosen: 128 pods of as many as one may have;
for pods that each name one node, 16,000."""
MOST_SHAPES = 2_000
"""Different shapes of the waiting pods of a namespace. Chosen: as many as a flood may have that others do not notice
(docs/benchmarks.md, faults)."""


def first_by_name(objects: Iterable[str], most: int) -> frozenset[str]:
    """The first of these objects (`namespace/name`) by name, this many of each namespace at most."""
    counts: Counter[str] = Counter()
    found = []
    for name in sorted(objects):
        namespace = name.partition("/")[0]
        counts[namespace] += 1
        if counts[namespace] <= most:
            found.append(name)
    return frozenset(found)


def in_turn(pods: PodTable, rows: Iterable[int]) -> list[list[int]]:
    """These waiting pods by priority, then by name, the members of a gang as one."""
    units: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row in rows:
        gang = int(pods.gang[row])
        units[(1, gang) if gang >= 0 else (0, row)].append(row)
    return sorted(units.values(), key=lambda members: (-int(pods.priority[members].max()), min(members)))


def leaving_out(snapshot: Snapshot, left_out: Sequence[tuple[int, str, str]]) -> Snapshot:
    """The snapshot without these pods. left_out: row, code and words of each."""
    if not left_out:
        return snapshot
    more = (workloads.LeftOut(snapshot.pods.names[row], code, words) for row, code, words in left_out)
    pods = changes.without_pods(snapshot.pods, [row for row, _, _ in left_out])
    return replace(snapshot, pods=pods, left_out=(*snapshot.left_out, *more))


NOT_MANAGED = "NamespaceNotManaged"


def managed_only(snapshot: Snapshot, managed: Collection[str]) -> Snapshot:
    """The snapshot without what waits in other namespaces, with the reason; what runs there runs on."""

    def why_not(name: str) -> str:
        namespace = name.partition("/")[0]
        label = f"kubectl label namespace {namespace} {MANAGED_LABEL}=true"
        return "" if namespace in managed else f"Tonnage does not work in its namespace; to let it: {label}"

    names = snapshot.pods.names
    rows = [(row, NOT_MANAGED, why) for row in snapshot.pods.pending.tolist() if (why := why_not(names[row]))]
    services = {each.name: why for each in snapshot.services if (why := why_not(each.name))}
    without = leaving_out(snapshot, rows)
    said = (workloads.LeftOut(name, NOT_MANAGED, why, kind="ModelService") for name, why in services.items())
    return replace(
        without,
        services=tuple(each for each in snapshot.services if each.name not in services),
        scalers=tuple(
            replace(each, problem=f"{NOT_MANAGED}: {why}") if (why := why_not(each.name)) else each
            for each in snapshot.scalers
        ),
        left_out=(*without.left_out, *said),
    )


@dataclass(slots=True)
class NamespaceBounds:
    """Applies the bounds to snapshots; it remembers what each shape weighs, since shapes stay while their pods wait."""

    most_constraints: int = MOST_CONSTRAINTS
    most_shapes: int = MOST_SHAPES
    _weights: dict[int, tuple[workloads.PodShape, int]] = field(default_factory=dict)
    """(shape, its constraints) by the shape's id."""

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without pending pods past a bound of their namespace, which are left out.

        By priority, then by name, the waiting members of a gang as one. What comes later and fits is not left out.
        """
        pods, (known, self._weights) = snapshot.pods, (self._weights, {})
        for shape in pods.shapes:
            self._weights[id(shape)] = known.get(id(shape)) or (
                shape,
                sum(1 + len(each.values) for term in shape.node_terms for each in term) + len(shape.tolerations),
            )
        weights = np.array([self._weights[id(shape)][1] for shape in pods.shapes], dtype=np.int64)
        if self._is_within(pods, weights, pods.pending.tolist()):
            return snapshot
        by_namespace: defaultdict[str, list[int]] = defaultdict(list)
        for row in pods.pending.tolist():
            by_namespace[pods.names[row].partition("/")[0]].append(row)
        past = list[int]()
        for mine in by_namespace.values():
            if self._is_within(pods, weights, mine):
                continue
            held, shapes = 0, set[int]()
            for members in in_turn(pods, mine):
                more = sum(weights[pods.shape[members]].tolist())
                now = shapes | set(pods.shape[members].tolist())
                if held + more > self.most_constraints or len(now) > self.most_shapes:
                    past += members
                else:
                    held, shapes = held + more, now
        words = (
            f"the pods that wait in its namespace have more than {self.most_constraints} requirements, values and "
            f"tolerations in all, or {self.most_shapes} different shapes: its turn comes once others of them are placed"
        )
        return leaving_out(snapshot, [(row, EXCEEDED, words) for row in past])

    def _is_within(self, pods: PodTable, weights: arrays.IntArray, rows: list[int]) -> bool:
        """Whether these pods are within the bounds of one namespace together."""
        shapes = pods.shape[rows]
        return int(weights[shapes].sum()) <= self.most_constraints and len(np.unique(shapes)) <= self.most_shapes


@dataclass(frozen=True, slots=True)
class PodQuota:
    """What the pods of a namespace may hold together of one resource."""

    name: str
    """`namespace/name` of the ResourceQuota."""
    resource: str
    """As the quota names it."""
    most: int
    held: int
    """What pods hold that are not asked about."""
    asked: Mapping[int, int]
    """What waiting pods ask for, by their row."""


UNITS = {"tonnage.dev/gpu-milli": "thousandths of a GPU", "cpu": "thousandths of a core", "memory": "bytes of memory"}
"""Words for amounts of a resource, by the end of its name."""


def within_quotas(snapshot: Snapshot, quotas: Sequence[PodQuota]) -> Snapshot:
    """The snapshot without pending pods past a quota of their namespace, which are left out with the reason.

    What is held counts first, then what waits, in turn. Those that do not fit beside what comes before them are left
    out.
    """
    pods, held = snapshot.pods, [quota.held for quota in quotas]
    of_namespace: defaultdict[str, list[int]] = defaultdict(list)
    for number, quota in enumerate(quotas):
        of_namespace[quota.name.partition("/")[0]].append(number)
    left_out = list[tuple[int, str, str]]()
    for members in in_turn(pods, sorted({row for quota in quotas for row in quota.asked})):
        own = of_namespace[pods.names[members[0]].partition("/")[0]]
        more = {n: sum(quotas[n].asked.get(row, 0) for row in members) for n in own}
        full = next((n for n, amount in more.items() if amount and held[n] + amount > quotas[n].most), None)
        if full is None:
            for n, amount in more.items():
                held[n] += amount
            continue
        quota = quotas[full]
        together = f"with the {len(members) - 1} others of its gang " if len(members) > 1 else ""
        unit = next((words for end, words in UNITS.items() if quota.resource.endswith(end)), quota.resource)
        words = (
            f"asks for {together}{more[full]} {unit} where the quota of its namespace is {quota.most} and {held[full]} "
            f"are held or asked for before it; see {quota.resource} in ResourceQuota {quota.name}"
        )
        left_out += [(row, QUOTA_EXCEEDED, words) for row in members]
    return leaving_out(snapshot, left_out)
