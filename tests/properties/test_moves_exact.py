"""Moves for pods that wait, beside an exact search on small fleets; and whom no decision ever disturbs."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations

from cluster.actions import Evict, Move, Start
from cluster.disruption import DisruptionBudget
from cluster.snapshot import PENDING, Snapshot
from cluster.teams import Amounts, Team
from cluster.workloads import Gang
from placement.engine.packer import Packer
from placement.move_price import MovePrice
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world

CASES, GPUS = 200, 4


def scattered(seed: int) -> tuple[Snapshot, list[int]]:
    """A fleet full of pods of one and two devices, of which many have gone, and wide pods that wait; sizes of these."""
    rng = random.Random(seed)  # noqa: S311
    count, pods = rng.randint(3, 5), list[Pod]()
    for n in range(count):
        at = 0
        while at < GPUS:
            size = min(rng.choice((1, 1, 1, 2)), GPUS - at)
            if rng.random() < 0.55:
                name = f"s/n{n}-{at}"
                devices = tuple(range(at, at + size))
                pods.append(pod(name, size, on=f"n{n}", devices=devices, movable=rng.random() < 0.85, owner="s/small"))
            at += size
    wide = [rng.choice((3, 4, 4))] * rng.randint(1, 2)
    waits = [pod(f"w/{number}", size) for number, size in enumerate(wide)]
    return world([node(f"n{n}", gpus=GPUS) for n in range(count)], [*pods, *waits]), wide


class Exact:
    """The fewest pods that must move so that wide ones start: every set of them, the smallest first."""

    def __init__(self, now: Snapshot) -> None:
        sizes = [now.pods.shapes[shape].gpus for shape in now.pods.shape]
        self.free = [int(gpus) for gpus in now.nodes.gpus]
        self.movable = list[tuple[int, int]]()
        for row, at in enumerate(now.pods.node.tolist()):
            if at != PENDING:
                self.free[at] -= sizes[row]
                if now.pods.movable[row]:
                    self.movable.append((at, sizes[row]))

    def fewest(self, wide: Sequence[int]) -> int | None:
        for count in range(len(self.movable) + 1):
            kinds = {tuple(sorted(chosen)) for chosen in combinations(self.movable, count)}
            if any(self._fits(chosen, wide) for chosen in kinds):
                return count
        return None

    def _fits(self, moved: Sequence[tuple[int, int]], wide: Sequence[int]) -> bool:
        """Whether they, and the wide ones, have room, where those that move have theirs before they leave."""
        before, after = list(self.free), list(self.free)
        for at, size in moved:
            after[at] += size
        return _fit(tuple(sorted((size for _, size in moved), reverse=True)), tuple(sorted(wide)), tuple(before),
                    tuple(after))  # fmt: skip


@cache
def _fit(moved: tuple[int, ...], wide: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """before, after: what is free on each node before anybody leaves, where all that move must fit, and afterwards."""
    if moved:
        size, rest = moved[0], moved[1:]
        return any(
            _fit(rest, wide, _less(before, n, size), _less(after, n, size))
            for n in range(len(before))
            if before[n] >= size
        )
    if not wide:
        return True
    return any(_fit((), wide[1:], before, _less(after, n, wide[0])) for n in range(len(after)) if after[n] >= wide[0])


def _less(free: tuple[int, ...], n: int, size: int) -> tuple[int, ...]:
    return (*free[:n], free[n] - size, *free[n + 1 :])


def test_wide_pods_get_room_by_hardly_more_moves_than_the_fewest() -> None:
    """All start that any moves let start, by 1.08 times the fewest moves in all."""
    ours = least = helped = 0
    for seed in range(CASES):
        now, wide = scattered(seed)
        plan = pack(now, Packer(now, BestFit()), moves=MovePrice())
        started = sum(isinstance(each, Start) for each in plan.actions)
        exact = Exact(now)
        assert started == max(count for count in range(len(wide) + 1) if exact.fewest(wide[:count]) is not None), seed
        fewest = exact.fewest(wide[:started]) or 0
        moves = sum(isinstance(each, Move) for each in plan.actions)
        assert moves >= fewest, seed
        ours, least, helped = ours + moves, least + fewest, helped + bool(fewest)
    print(f"{CASES} cases, {helped} with moves: {ours} for {least}, {ours / least:.3f}")  # noqa: T201
    assert helped > CASES / 4
    assert ours <= 1.08 * least


def mixed(seed: int) -> Snapshot:
    """A fleet with pods of others, gangs, budgets, teams and priorities, beside much that waits."""
    rng = random.Random(seed)  # noqa: S311
    count, full, pods, gangs = rng.randint(2, 5), rng.uniform(0.3, 0.8), list[Pod](), list[Gang]()
    for n in range(count):
        for device in range(GPUS):
            if rng.random() < full:
                gang = f"{rng.choice('ab')}/g{rng.randrange(3)}" if rng.random() < 0.2 else ""
                space = gang.partition("/")[0] or rng.choice("abc")
                of_others = not gang and rng.random() < 0.3
                pods.append(pod(f"{space}/n{n}-{device}", 1, on=f"n{n}", devices=(device,), gang=gang,
                                movable=rng.random() < 0.9, priority=rng.choice((0, 0, 5)), strangers=of_others,
                                settled=of_others, owner=f"{space}/own"))  # fmt: skip
    for number in range(rng.randint(1, 5)):
        gang = f"{rng.choice('abc')}/w{number}" if rng.random() < 0.3 else ""
        space = gang.partition("/")[0] or rng.choice("abc")
        members = rng.randint(2, 3) if gang else 1
        if gang:
            gangs.append(Gang(gang, members))
        size, priority = rng.choice((1, 3, 4)), rng.choice((0, 0, 10))
        pods += [pod(f"{space}/w{number}-{m}", size, gang=gang, priority=priority) for m in range(members)]
    gangs += [Gang(name, rng.randint(1, 3)) for name in sorted({each.gang for each in pods if each.node and each.gang})]
    running = [each.name for each in pods if each.node]
    budgets = [
        DisruptionBudget(f"x/{n}", rng.randint(0, 2), tuple(rng.sample(running, rng.randint(0, len(running)))))
        for n in range(rng.randint(0, 3))
    ]
    made = world([node(f"n{n}", gpus=GPUS) for n in range(count)], pods, gangs, budgets=budgets)
    shares = [1000 * rng.randint(0, count * GPUS // 2) for _ in "ab"]
    of_teams = zip("ab", shares, strict=True)
    teams = tuple(Team(name, frozenset({name}), Amounts({"A100": share})) for name, share in of_teams)
    return replace(made, teams=teams if rng.random() < 0.6 else (), at_s=10_000.0)


def test_no_decision_disturbs_strangers_or_takes_more_than_a_budget_allows() -> None:
    done = Counter[str]()
    for seed in range(600):
        now = mixed(seed)
        plan = pack(now, Packer(now, BestFit()), moves=MovePrice())
        stopped = {each.pod for each in plan.actions if isinstance(each, Evict | Move)}
        done.update(type(each).__name__ for each in plan.actions)
        of_others = {name for row, name in enumerate(now.pods.names) if now.pods.strangers is not None
                     and now.pods.strangers[row]}  # fmt: skip
        assert not stopped & of_others, seed
        for budget in now.budgets:
            assert len(stopped & {*budget.pods}) <= budget.allowed, (seed, budget)
    print(f"600 fleets: {dict(done)}")  # noqa: T201
    assert done["Move"] > 50
    assert done["Evict"] > 100


def test_a_settled_fleet_does_not_move_for_a_week() -> None:
    """Ages grow, checkpoints are made, and what waits cannot be helped: a plan every ten minutes does nothing."""
    fleets = 0
    for seed in range(10):
        now, _ = scattered(seed)
        plan = pack(now, Packer(now, BestFit()), moves=MovePrice())
        now = now.after(plan.actions)
        while (plan := pack(now, Packer(now, BestFit()), moves=MovePrice())).actions:
            now = now.after(plan.actions)
        fleets += bool((now.pods.node == PENDING).any())
        runs = now.pods.node != PENDING
        for at_s in range(0, 7 * 86_400, 600):
            started = runs * 1
            saved = runs * (at_s // 3600 * 3600 + 1)
            later = replace(now, at_s=float(at_s + 600), pods=replace(now.pods, started_s=started, saved_s=saved))
            assert not pack(later, Packer(later, BestFit()), moves=MovePrice()).actions, (seed, at_s)
    assert fleets >= 2  # in which somebody waits
