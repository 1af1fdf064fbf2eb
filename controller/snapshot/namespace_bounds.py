"""Bounds on what the waiting pods of one namespace may ask for together: pods past them wait, with the reason.

Each shape and each requirement costs every plan, and whoever may create pods decides how many there are.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cluster.arrays import Array, IntArray
from cluster.changes import without_pods
from cluster.snapshot import PENDING, PodTable, Snapshot
from cluster.workloads import LeftOut, PodShape

EXCEEDED = "NamespaceBoundExceeded"
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


@dataclass(slots=True)
class NamespaceBounds:
    """Applies the bounds to snapshots; it remembers what each shape weighs, since shapes stay while their pods wait."""

    most_constraints: int = MOST_CONSTRAINTS
    most_shapes: int = MOST_SHAPES
    _weights: dict[int, tuple[PodShape, int]] = field(default_factory=dict)
    """(shape, its constraints) by the shape's id."""

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without pending pods past a bound of their namespace, which are left out.

        By priority, then by name, the waiting members of a gang as one. What comes later and fits is not left out.
        """
        pods = snapshot.pods
        weights = self._weights_of(pods)
        rows = [
            row
            for mine in _by_namespace(pods).values()
            if int(weights[pods.shape[mine]].sum()) > self.most_constraints
            or len(np.unique(pods.shape[mine])) > self.most_shapes
            for row in self._past(pods, weights, mine)
        ]
        if not rows:
            return snapshot
        words = (
            f"the pods that wait in its namespace have more than {self.most_constraints} requirements, values and "
            f"tolerations in all, or {self.most_shapes} different shapes: its turn comes once others of them are placed"
        )
        left_out = tuple(LeftOut(pods.names[row], EXCEEDED, words) for row in rows)
        return replace(snapshot, pods=without_pods(pods, rows), left_out=(*snapshot.left_out, *left_out))

    def _weights_of(self, pods: PodTable) -> Array:
        """Constraints of each shape of the table, those of running pods, too."""
        known, self._weights = self._weights, {}
        for shape in pods.shapes:
            self._weights[id(shape)] = known.get(id(shape)) or (shape, _weight(shape))
        return np.array([self._weights[id(shape)][1] for shape in pods.shapes], dtype=np.int64)

    def _past(self, pods: PodTable, weights: Array, mine: list[int]) -> list[int]:
        units: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for row in mine:
            gang = int(pods.gang[row])
            units[(1, gang) if gang >= 0 else (0, row)].append(row)
        past, held, shapes = list[int](), 0, set[int]()
        for members in sorted(units.values(), key=lambda rows: (-int(pods.priority[rows].max()), min(rows))):
            more = sum(weights[pods.shape[members]].tolist())
            now = shapes | set(pods.shape[members].tolist())
            if held + more > self.most_constraints or len(now) > self.most_shapes:
                past += members
            else:
                held, shapes = held + more, now
        return past


def _by_namespace(pods: PodTable) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in pods.pending.tolist():
        found[pods.names[row].partition("/")[0]].append(row)
    return found


def _weight(shape: PodShape) -> int:
    return sum(1 + len(each.values) for term in shape.node_terms for each in term) + len(shape.tolerations)


QUOTA_EXCEEDED = "QuotaExceeded"


def within_quotas(snapshot: Snapshot, most_milli: Mapping[str, int]) -> Snapshot:
    """The snapshot without pending pods past the quota of their namespace, which are left out with the reason.

    What runs counts first, then what waits: by priority, then by name, the waiting members of a gang as one. Those that
    do not fit beside what comes before them are left out. A whole GPU counts 1000.
    most_milli: quota by namespace, thousandths of GPUs.
    """
    if not most_milli:
        return snapshot
    pods, left_out, rows = snapshot.pods, list[LeftOut](), list[int]()
    asked = np.array([shape.gpus * shape.gpu_milli for shape in pods.shapes], dtype=np.int64)[pods.shape]
    held = dict.fromkeys(most_milli, 0)
    waiting: dict[tuple[str, object], list[int]] = {}
    for row, name in enumerate(pods.names):
        namespace = name.partition("/")[0]
        if namespace not in held or not asked[row]:
            continue
        if pods.node[row] != PENDING:
            held[namespace] += int(asked[row])
        else:
            gang = int(pods.gang[row])
            waiting.setdefault((namespace, name if gang < 0 else gang), []).append(row)
    for (namespace, _), members in sorted(waiting.items(), key=lambda each: _turn(each[1], pods.priority)):
        more, most = sum(asked[members].tolist()), most_milli[namespace]
        if held[namespace] + more <= most:
            held[namespace] += more
            continue
        rows += members
        words = (
            f"asks for {_together(members)}{more} thousandths of a GPU where the quota of its namespace is {most} and "
            f"{held[namespace]} are held or asked for before it; see tonnage.dev/gpu-milli in its ResourceQuotas"
        )
        left_out += [LeftOut(pods.names[row], QUOTA_EXCEEDED, words) for row in members]
    if not rows:
        return snapshot
    return replace(snapshot, pods=without_pods(pods, rows), left_out=(*snapshot.left_out, *left_out))


def _turn(members: Iterable[int], priority: IntArray) -> tuple[int, int]:
    """Place in the order of those that wait; rows are in the order of names."""
    rows = list(members)
    return -int(priority[rows].max()), min(rows)


def _together(members: list[int]) -> str:
    return f"with the {len(members) - 1} others of its gang " if len(members) > 1 else ""
