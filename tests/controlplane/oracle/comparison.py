"""Tonnage's masks beside kube-scheduler's filters, by kind of constraint."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.controlplane.oracle.kube_filters import Judged
from tests.controlplane.oracle.ours import allowed_by_tonnage

REFUSED_TOO_MUCH_SHARE = 0.005
"""Most pairs that may be refused where kube-scheduler allows them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A pod about which the two disagree."""

    seed: int
    pod: str
    kinds: tuple[str, ...]
    placed_wrongly: tuple[str, ...]
    """Nodes that Tonnage allows and kube-scheduler refuses."""
    refused_wrongly: tuple[str, ...]
    words: str
    """What kube-scheduler says."""
    why: str
    """Why Tonnage plans nothing for the pod; "" where it does."""


@dataclass(slots=True)
class Row:
    """Counts of one kind of constraint."""

    pods: int = 0
    pairs: int = 0
    allowed: int = 0
    """Pairs that kube-scheduler allows."""
    placed_wrongly: int = 0
    refused_wrongly: int = 0


@dataclass(slots=True)
class Comparison:
    """All pods so far."""

    total: Row = field(default_factory=Row)
    by_kind: defaultdict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    differences: list[Difference] = field(default_factory=list)

    def add(self, judged: Judged) -> None:
        """Compares the answers about one cluster."""
        nodes, ours = len(judged.nodes), allowed_by_tonnage(judged.objects)
        for pod, verdict in judged.verdicts.items():
            mine = ours[pod]
            placed, refused = mine.allowed - verdict.allowed, verdict.allowed - mine.allowed
            kinds = tuple(judged.kinds[pod])
            for row in (self.total, *(self.by_kind[kind] for kind in set(kinds))):
                row.pods += 1
                row.pairs += nodes
                row.allowed += len(verdict.allowed)
                row.placed_wrongly += len(placed)
                row.refused_wrongly += len(refused)
            if placed or refused:
                said = tuple(sorted(placed)), tuple(sorted(refused))
                self.differences.append(Difference(judged.seed, pod, kinds, *said, verdict.words, mine.why))

    @property
    def holds(self) -> bool:
        """Whether no pod is placed where kube-scheduler refuses it, and few are refused where it allows them."""
        return not self.total.placed_wrongly and self.total.refused_wrongly <= REFUSED_TOO_MUCH_SHARE * self.total.pairs

    def table(self) -> str:
        """Rows by kind, the sum last."""
        columns = f"{'pods':>6} {'pairs':>7} {'allowed':>8} {'placed wrongly':>15} {'refused wrongly':>16}"
        head = f"{'kind of constraint':34} {columns}"
        rows = [(kind, self.by_kind[kind]) for kind in sorted(self.by_kind)]
        return "\n".join((head, *(_line(kind, row) for kind, row in (*rows, ("all", self.total)))))

    def explained(self) -> str:
        """Pairs that were refused where kube-scheduler allows them, by what Tonnage says."""
        said: Counter[str] = Counter()
        for each in self.differences:
            said[each.why or "its mask"] += len(each.refused_wrongly)
        return "\n".join(f"  {count:5}  {why}" for why, count in said.most_common() if count)


def _line(kind: str, row: Row) -> str:
    share = row.allowed / max(row.pairs, 1)
    return f"{kind:34} {row.pods:6} {row.pairs:7} {share:8.0%} {row.placed_wrongly:15} {row.refused_wrongly:16}"


def compared(clusters: Iterable[Judged]) -> Comparison:
    comparison = Comparison()
    for judged in clusters:
        comparison.add(judged)
    return comparison
