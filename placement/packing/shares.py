"""Shares of teams in a plan: what each holds while it is made, and from whom a pod may take devices.

The rule: a pod takes devices from another team where its own stays within its share and the other is beyond its own,
or where its own, with it, owes less than the other without them: what it is beyond its share, and borrowed lately, by
its weight. So nobody takes back what was taken from him. Within a team, priorities decide; between teams, they do not.
One that waited for as long as its team has it takes from whoever is beyond his share and, with no higher priority, from
its own team; where it asks for no more than its team's share, narrower ones of shares, too, which come back elsewhere.
"""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from cluster.arrays import BoolArray, FloatArray, IntArray
from cluster.snapshot import PENDING, Snapshot
from cluster.teams import Team
from cluster.workloads import PodShape

MICRO = 1_000_000
NO_LIMIT = 1 << 60
LENT = -(1 << 40)
"""Resistance of a pod of another team that may be stopped, beside its priority: below that of all of the own team."""
RESTART_S, UNKNOWN_S = 60, 900
"""Work that a stop loses at least, and where it is not known since when a pod runs: as the price of a move has them."""


class Shares:
    """Devices that each team holds in a draft. The last team is that of pods of no team."""

    def __init__(self, snapshot: Snapshot, holds: BoolArray) -> None:
        """holds: whether each pod counts; those that end do not. Shape (pods,)."""
        pods, nodes, teams = snapshot.pods, snapshot.nodes, snapshot.teams
        self.teams, self._types = (*teams, Team("", frozenset())), (*snapshot.gpu_type_names, "-")
        price = np.rint(snapshot.device_prices() * MICRO).astype(np.int64)
        kinds, of_node = np.unique(np.stack([nodes.gpu_type, price], axis=1), axis=0, return_inverse=True)
        self.of_node: IntArray = of_node.reshape(-1).astype(np.int64)
        """Kind of each node: its GPU type at its price."""
        self._type, self._price = kinds[:, 0].astype(np.int64), np.maximum(kinds[:, 1], 1).astype(np.int64)
        of_namespace = {space: number for number, team in reversed([*enumerate(teams)]) for space in team.namespaces}
        self._of_namespace = of_namespace
        spaces = (name.partition("/")[0] for name in pods.names)
        self.team: IntArray = np.fromiter(
            (of_namespace.get(space, len(teams)) for space in spaces), np.int64, len(pods)
        )
        milli = np.array([shape.total_gpu_milli for shape in pods.shapes], dtype=np.int64)
        self.milli: IntArray = milli[pods.shape] if len(milli) else np.zeros(0, dtype=np.int64)
        since = np.zeros(len(pods), dtype=np.int64) if pods.started_s is None else pods.started_s
        most = np.array([team.max_wait_s for team in self.teams])[self.team]
        self._is_late: BoolArray = (pods.node == PENDING) & (since > 0) & (snapshot.at_s - since >= most)
        started = np.where(pods.node == PENDING, 0, since)
        least = np.array([team.min_run_s for team in self.teams])[self.team]
        self._has_run: BoolArray = (started == 0) | (snapshot.at_s == 0) | (snapshot.at_s - started >= least)
        since = started if pods.saved_s is None else np.maximum(started, pods.saved_s)
        lost_s = np.where(since > 0, np.maximum(snapshot.at_s - since, RESTART_S), UNKNOWN_S)
        self.work: IntArray = np.ceil(self.milli * lost_s / 1000).astype(np.int64)
        """Work that a stop of each pod loses, in seconds of devices. Shape (pods,)."""
        width = len(self._types)
        self._in_usd = np.array([team.share.usd_per_hour is not None for team in self.teams])
        self._weight = np.array([team.weight for team in self.teams])
        self._usage = np.array([1000 * team.usage for team in self.teams])
        self.share = np.zeros((len(self.teams), width), dtype=np.int64)
        self.most = np.full_like(self.share, NO_LIMIT)
        self._share_usd, self.most_usd = np.zeros(len(self.teams), dtype=np.int64), np.full(len(self.teams), NO_LIMIT)
        for number, team in enumerate(teams):
            given, loan = team.share.gpu_milli, team.borrowing.gpu_milli
            self.share[number] = [given.get(name, 0) for name in self._types]
            self.most[number] = self.share[number] + [loan.get(name, NO_LIMIT) for name in self._types]
            self._share_usd[number] = round((team.share.usd_per_hour or 0.0) * MICRO * 1000)
            if team.borrowing.usd_per_hour is not None:
                self.most_usd[number] = self._share_usd[number] + round(team.borrowing.usd_per_hour * MICRO * 1000)
        # In thousandths of devices, shape (teams, types), as are their shares and the most that they may hold.
        self.used = np.zeros((len(self.teams), width), dtype=np.int64)
        self.usd = np.zeros(len(self.teams), dtype=np.int64)
        rows = np.flatnonzero(holds & (pods.node != PENDING))
        kind = self.of_node[pods.node[rows]]
        np.add.at(self.used, (self.team[rows], self._type[kind]), self.milli[rows])
        np.add.at(self.usd, self.team[rows], self.milli[rows] * self._price[kind])
        self._taker = self._late_one = -1
        self._mine, self._width = np.zeros(len(kinds)), np.zeros(len(kinds), dtype=np.int64)
        self.view: Hashable = None
        """Key of what may be taken for the pods that are being placed: equal ones mean the same."""

    def charge(self, row: int, node: int, sign: int) -> None:
        """Counts what a pod holds on a node (sign 1), or no longer (-1)."""
        team, kind, milli = self.team[row], self.of_node[node], sign * self.milli[row]
        self.used[team, self._type[kind]] += milli
        self.usd[team] += milli * self._price[kind]

    def beyond(self) -> IntArray:
        """Thousandths of devices of each kind that each team is beyond its share; negative: below. (teams, kinds)."""
        by_type = (self.used - self.share)[:, self._type]
        by_price = -((self._share_usd - self.usd)[:, None] // self._price)
        found: IntArray = np.where(self._in_usd[:, None], by_price, by_type)
        return found

    def _owed(self, beyond: IntArray, team: IntArray | int) -> FloatArray:
        """What teams owe that are so far beyond their share, in thousandths of devices by their weight; 0: nothing."""
        owed: FloatArray = np.where(beyond > 0, beyond + self._usage[team], 0.0) / self._weight[team]
        return owed

    def _left(self, team: int) -> IntArray:
        """Thousandths of devices of each kind that a team may still take. Shape (kinds,)."""
        by_price, by_type = self.most_usd[team] - self.usd[team], self.most[team] - self.used[team]
        left: IntArray = np.minimum(by_price // self._price, by_type[self._type])
        return left

    def allowed(self, row: int) -> BoolArray | None:
        """Nodes on which the limit of its team lets a pod start; None: all. Shape (nodes,)."""
        if not self.milli[row] or (fits := self._left(int(self.team[row])) >= self.milli[row]).all():
            return None
        return np.asarray(fits[self.of_node], dtype=np.bool_)

    def is_at_limit(self, rows: Sequence[int], eligible: BoolArray) -> bool:
        """Whether the limit of their team keeps pods from starting together on nodes of any kind that they may use."""
        team, asked = int(self.team[rows[0]]), self.asked(rows)
        return bool(asked) and not (self._left(team)[self.of_node] >= asked)[eligible].any()

    def asked(self, rows: Sequence[int]) -> int:
        """Thousandths of devices that these pods ask for."""
        return int(self.milli[list(rows)].sum())

    def is_served_first(self, rows: Sequence[int]) -> bool:
        """Whether pods that start together have all waited for as long as anybody of their team may."""
        return bool(self._is_late[list(rows)].all())

    def debt(self, rows: Sequence[int], gpu_types: Sequence[str], before: int = 0) -> float:
        """What the team of these pods owes once they start, in devices by its weight; 0.0: it is within its share, or
        they waited too long. before: thousandths of devices that it gets before.
        """
        team, asked = int(self.team[rows[0]]), self.asked(rows)
        if self.is_served_first(rows):
            return 0.0
        kinds = [not gpu_types or self._types[each] in gpu_types for each in self._type.tolist()]
        if not asked or not any(kinds):
            return 0.0
        beyond = int(self.beyond()[team][kinds].min()) + before + asked
        return float(self._owed(np.array(beyond), team)) / 1000

    def consider(self, rows: Sequence[int]) -> None:
        """From now on, others are asked for what these pods need, which start together; for nothing without pods."""
        self._taker = int(self.team[rows[0]]) if rows else -1
        self._late_one = rows[0] if rows and self.is_served_first(rows) and self.asked(rows) else -1
        if rows:
            asked, is_late = self.asked(rows), self._late_one >= 0
            is_allowed = (self._left(self._taker) >= asked) & (asked > 0)
            owed = self._owed(self.beyond()[self._taker] + asked, self._taker)
            self._mine = np.where(is_allowed, owed * (not is_late), NO_LIMIT)
            # What it takes of shares comes back, as its own holds it: all that is beyond shares then is of others.
            share = self._share_usd[self._taker] // self._price + self.share[self._taker][self._type]
            self._width = np.where(is_allowed & is_late & (asked <= share), self.milli[list(rows)].max(), 0)

    def resistance(self, own: IntArray, priority: IntArray, node: IntArray, never: int, ending: int) -> IntArray:
        """Priority above which each pod may be stopped for those that are being placed. Shape (pods,).

        own: the same for pods of its own team. priority, node: of each pod in the draft.
        """
        self.view = None
        if self._taker < 0:
            return own
        may_take = self._owed(self.beyond(), np.arange(len(self.teams))[:, None]) > self._mine
        may_take[self._taker] = self._late_one >= 0
        self.view = self._taker, self._mine.tobytes(), self._width.tobytes(), may_take.tobytes()
        runs = (self.milli > 0) & (own != never) & (own != ending) & (node != PENDING)
        others, kind = self.team != self._taker, self.of_node[node]
        may = may_take[self.team, kind] | (self.milli < self._width[kind])
        # Who was served for his waiting keeps it in this plan: those that it was taken from would take it back.
        may &= runs & self._has_run & ~self._is_late & (others | (priority <= priority[self._late_one]))
        found: IntArray = np.where(may, LENT + priority, np.where(runs & (others | self._is_late), never, own))
        return found

    def may_lose(self, gone: Iterable[int], node: IntArray, gang: IntArray) -> bool:
        """Whether their teams may lose all of these pods to those that are being placed.

        node, gang: of each pod. The last that is taken from a team may be larger than what it is beyond its share.
        """
        lost: dict[tuple[int, int], dict[int, int]] = {}
        kinds: dict[tuple[int, int], int] = {}
        for row in gone:
            team, kind = int(self.team[row]), int(self.of_node[node[row]])
            if team != self._taker and self.milli[row]:
                key = team, -1 if self._in_usd[team] else int(self._type[kind])
                units, unit = lost.setdefault(key, {}), int(gang[row]) if gang[row] >= 0 else -1 - row
                units[unit] = units.get(unit, 0) + int(self.milli[row])
                kinds[key] = kind
        if not lost or self._taker < 0:
            return True
        beyond = self.beyond()
        for key, units in lost.items():
            team, kind, total = key[0], kinds[key], sum(units.values())
            mine = self._mine[kind]
            if mine == 0 and not self._width[kind] and beyond[team, kind] - total + max(units.values()) <= 0:
                return False
            if mine > 0 and self._owed(beyond[team, kind] - total, team) < mine:
                return False
        return True

    def why(self, row: int, unit: str) -> str:
        """Why a pod is stopped for a unit of this label, in words."""
        space, name = unit.split("/")[1] if "/" in unit else "", self.teams[self.team[row]].name
        if not space or self._of_namespace.get(space, len(self.teams) - 1) == self.team[row]:
            return "which has higher priority, or waited for as long as its team has it"
        loser = f"team {name}" if name else "pods of no team"
        return f"whose team is within its share, borrows less than {loser}, or has it wait no longer"

    def words(self, rows: Sequence[int], eligible: BoolArray) -> str:
        """What a team that waits beyond its share is told; empty where it is within."""
        number, asked = int(self.team[rows[0]]), self.asked(rows)
        team, kinds = self.teams[number], np.unique(self.of_node[eligible])
        is_within = not asked or not len(kinds) or bool((self.beyond()[number][kinds] + asked <= 0).any())
        if is_within or number == len(self.teams) - 1:
            return ""
        if self._in_usd[number]:
            held, share = (f"${each / MICRO / 1000:.2f}/h" for each in (self.usd[number], self._share_usd[number]))
        else:
            types = sorted({int(self._type[kind]) for kind in kinds})
            held = ", ".join(f"{self.used[number, each] / 1000:g} {self._types[each]}" for each in types)
            share = ", ".join(f"{self.share[number, each] / 1000:g}" for each in types)
        return f"its team {team.name} holds {held} of its share of {share}, and {asked / 1000:g} more would be borrowed"


def gpu_types_of(shapes: Iterable[PodShape]) -> tuple[str, ...]:
    """GPU types that some of these pods ask for; empty: any."""
    named = [shape.gpu_types for shape in shapes if shape.gpus]
    return () if not all(named) else tuple(sorted({each for types in named for each in types}))
