"""Gangs on small fleets beside an exact search: most members, on the fewest racks, nodes and empty nodes broken."""

from collections import Counter
from dataclasses import dataclass
from random import Random

import pulp

from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang, MemberGroup, PodShape
from placement.mix.pulp_solver import solve
from tests.builders.fleet import Node, Pod, node, pod, world

RACK = "topology.tonnage.dev/rack"


@dataclass(frozen=True)
class Seated:
    """How a gang sits: members, racks of its preferred level, nodes, and nodes among them that were empty before."""

    members: int
    racks: int
    nodes: int
    broken: int

    @property
    def price(self) -> tuple[int, int, int, int]:
        return -self.members, self.racks, self.nodes, self.broken


NOT_SEATED = Seated(0, 0, 0, 0)


def one_gang(seed: int) -> Snapshot:
    """A partly used fleet of up to nine nodes on up to three racks, and one gang of up to twelve members that waits."""
    chance = Random(seed)  # noqa: S311 - not for secrets
    racks = chance.randint(1, 3)
    nodes: list[Node] = []
    pods: list[Pod] = []
    for number in range(chance.randint(3, 9)):
        name, gpus = f"n{number}", chance.choice((8, 8, 8, 4))
        used = chance.choice((0, 0, chance.randint(0, gpus)))
        nodes.append(
            node(name, gpus, cpu_milli=12_000 * gpus, labels={RACK: f"r{chance.randrange(racks)}"}),
        )
        pods += [pod(f"ns/{name}-{d}", 1, on=name, devices=(d,), cpu_milli=8_000, priority=9) for d in range(used)]
    widths = chance.choice(((1,), (2,), (4,), (2,), (1, 2), (1, 4), (2, 4), (0, 2)))
    sizes = [chance.choice(widths) for _ in range(chance.randint(2, 12))]
    members = [
        pod(f"ns/g-{n}", width, gang="ns/g", cpu_milli=chance.choice((4_000, 10_000)) if len(widths) > 1 else 8_000)
        for n, width in enumerate(sizes)
    ]
    within, prefer = chance.choice(((RACK, None), (None, RACK), (None, None)))
    least = len(sizes) if chance.random() < 0.5 else chance.randint(1, len(sizes))
    gang = Gang("ns/g", min_members=least, within=within, prefer_within=prefer)
    return world(nodes, [*pods, *members], [gang])


def seated(seen: Snapshot, after: Snapshot, gang: int = 0) -> Seated:
    """How a gang sits after a plan."""
    pods, there = seen.pods, after.pods.node
    rows = [r for r in range(len(pods)) if pods.gang[r] == gang and there[r] != PENDING]
    if not rows:
        return NOT_SEATED
    used = {int(there[r]) for r in rows}
    held = {int(n) for n in pods.node if n != PENDING}
    racks = {seen.nodes.labels[n][RACK] for n in used} if seen.gangs[gang].prefer_within else set()
    return Seated(len(rows), len(racks), len(used), len(used - held))


def best(seen: Snapshot, gang: int = 0) -> Seated:
    """The least price of all ways to seat a gang in free resources, by an exact model; `NOT_SEATED` where none is."""
    wanted, pods, free, nodes = seen.gangs[gang], seen.pods, seen.free(), range(len(seen.nodes))
    waiting = [r for r in range(len(pods)) if pods.gang[r] == gang and pods.node[r] == PENDING]
    count: Counter[PodShape] = Counter(pods.shapes[pods.shape[r]] for r in waiting)
    idle = (free.gpu_milli == 1000).sum(axis=1)
    held = {int(n) for n in pods.node if n != PENDING}
    racks = sorted({labels[RACK] for labels in seen.nodes.labels})
    rack_of = [racks.index(labels[RACK]) for labels in seen.nodes.labels]
    model = pulp.LpProblem("gang", pulp.LpMinimize)
    x = {
        (s, v): model.add_variable(f"x_{n}_{v}", 0, many, pulp.LpInteger)
        for n, (s, many) in enumerate(count.items())
        for v in nodes
    }
    used = [model.add_variable(f"u_{v}", 0, 1, pulp.LpInteger) for v in nodes]
    on_rack = [model.add_variable(f"r_{d}", 0, 1, pulp.LpInteger) for d in range(len(racks))]
    for v in nodes:
        model += pulp.lpSum(s.gpus * x[s, v] for s in count) <= int(idle[v])
        model += pulp.lpSum(s.cpu_milli * x[s, v] for s in count) <= int(free.cpu_milli[v])
        for s, many in count.items():
            model += x[s, v] <= many * used[v]
        model += used[v] <= on_rack[rack_of[v]]
    for s, many in count.items():
        model += pulp.lpSum(x[s, v] for v in nodes) <= many
    members = pulp.lpSum(x.values())
    model += members >= wanted.min_members
    if wanted.within:
        model += pulp.lpSum(on_rack) <= 1
    parts = [-1 * members, pulp.lpSum(on_rack), pulp.lpSum(used), pulp.lpSum(used[v] for v in nodes if v not in held)]
    found: list[int] = []
    for number, part in enumerate(parts):
        if number == 1 and not wanted.prefer_within:
            found.append(0)
            continue
        model.setObjective(part)
        if not solve(model).has_answer:
            return NOT_SEATED
        found.append(round(pulp.value(part)))
        model += part <= found[-1]
    return Seated(-found[0], found[1], found[2], found[3])


BLOCK = "topology.tonnage.dev/block"


def one_tree(seed: int) -> Snapshot:
    """A partly used fleet of up to ten nodes on racks in blocks, and a gang of two or three groups, each in one rack or
    block, or in a block with smaller ones in a rack each; all in one block, or anywhere.
    """
    chance = Random(seed)  # noqa: S311 - not for secrets
    blocks = chance.randint(1, 2)
    nodes: list[Node] = []
    pods: list[Pod] = []
    for number in range(chance.randint(4, 10)):
        name, gpus = f"n{number}", chance.choice((8, 8, 4))
        block, rack = chance.randrange(blocks), chance.randrange(2)
        nodes.append(node(name, gpus, labels={BLOCK: f"b{block}", RACK: f"b{block}r{rack}"}))
        used = chance.choice((0, 0, chance.randint(0, gpus)))
        pods += [pod(f"ns/{name}-{d}", 1, on=name, devices=(d,), priority=9) for d in range(used)]
    width, groups = chance.choice((1, 2, 4)), list[MemberGroup]()
    for number in range(chance.randint(2, 3)):
        names = [f"ns/g-{number}-{n}" for n in range(chance.randint(1, 5))]
        pods += [pod(name, width, gang="ns/g") for name in names]
        least = len(names) if chance.random() < 0.6 else chance.randint(1, len(names))
        groups.append(MemberGroup(f"g{number}", least, tuple(names), within=chance.choice((RACK, RACK, BLOCK, None))))
    if chance.random() < 0.3:
        inner = tuple(groups[:2])
        groups[:2] = [MemberGroup("both", sum(each.least for each in inner), groups=inner, within=BLOCK)]
    within = chance.choice((BLOCK, None, None))
    gang = Gang("ns/g", sum(each.least for each in groups), within=within, groups=tuple(groups))
    return world(nodes, pods, [gang])


def broken_levels(seen: Snapshot, after: Snapshot) -> list[str]:
    """Groups whose members run in more than one domain of their level, or too few of them run."""
    gang, pods = seen.gangs[0], seen.pods
    node_of = {pods.names[r]: int(after.pods.node[r]) for r in range(len(pods)) if after.pods.node[r] != PENDING}
    runs = frozenset(name for name in node_of if name.startswith("ns/g-"))
    if not runs:
        return []

    def wrong(group: MemberGroup) -> list[str]:
        there = {seen.nodes.labels[node_of[pod]][group.within] for pod in group.pods if pod in runs and group.within}
        bad = [group.name] if len(there) > 1 or group.lacks(runs) > 0 else []
        return bad + [each for inner in group.groups for each in wrong(inner)]

    whole = MemberGroup("whole", gang.min_members, groups=gang.groups, within=gang.within)
    return wrong(whole)


def best_tree(seen: Snapshot) -> Seated:
    """The least price of all ways to seat a gang with levels of its groups, by an exact model."""
    gang, pods, free, nodes = seen.gangs[0], seen.pods, seen.free(), range(len(seen.nodes))
    model, held = pulp.LpProblem("tree", pulp.LpMinimize), {int(n) for n in pods.node if n != PENDING}
    width = next(pods.shapes[pods.shape[r]].gpus for r in range(len(pods)) if pods.node[r] == PENDING)
    used = [model.add_variable(f"u_{v}", 0, 1, pulp.LpInteger) for v in nodes]
    leaves: list[list[pulp.LpVariable]] = []

    def add(group: MemberGroup, name: str) -> list[list[pulp.LpVariable]]:
        """Members of each leaf on each node."""
        found = [each for n, inner in enumerate(group.groups) for each in add(inner, f"{name}_{n}")]
        if group.members:
            many = len(group.members)
            own = [model.add_variable(f"x{name}_{v}", 0, many, pulp.LpInteger) for v in nodes]
            for v in nodes:
                model.addConstraint(own[v] <= many * used[v])
            model.addConstraint(pulp.lpSum(own) <= many)
            leaves.append(own)
            found.append(own)
        model.addConstraint(pulp.lpSum(x for own in found for x in own) >= group.least)
        if group.within:
            labels = [seen.nodes.labels[v][group.within] for v in nodes]
            there = {d: model.add_variable(f"y{name}_{d}", 0, 1, pulp.LpInteger) for d in sorted(set(labels))}
            model.addConstraint(pulp.lpSum(there.values()) <= 1)
            for v in nodes:
                model.addConstraint(pulp.lpSum(own[v] for own in found) <= 99 * there[labels[v]])
        return found

    everyone = add(MemberGroup("whole", gang.min_members, groups=gang.groups, within=gang.within), "")
    for v in nodes:
        model.addConstraint(width * pulp.lpSum(own[v] for own in everyone) <= int((free.gpu_milli[v] == 1000).sum()))
    members = pulp.lpSum(x for own in everyone for x in own)
    found: list[int] = []
    for part in (-1 * members, pulp.lpSum(used), pulp.lpSum(used[v] for v in nodes if v not in held)):
        model.setObjective(part)
        if not solve(model).has_answer:
            return NOT_SEATED
        found.append(round(pulp.value(part) or 0))
        model.addConstraint(part <= found[-1])
    return Seated(-found[0], 0, found[1], found[2])


def full_fleet(seed: int) -> tuple[Snapshot, int]:
    """A nearly full fleet of two to six nodes with pods of priorities 0 to 3, and what wants in: one pod, or a gang.

    Returns also the number of its pods.
    """
    chance = Random(seed)  # noqa: S311 - not for secrets
    nodes: list[Node] = []
    pods: list[Pod] = []
    for number in range(chance.randint(2, 6)):
        free, held, cpu = list(range(8)), 0, 0
        while free and chance.random() < 0.93:
            width = min(len(free), chance.choice((1, 1, 1, 2, 2, 4)))
            devices, free = tuple(free[:width]), free[width:]
            rank, milli = chance.choice((0, 1, 1, 2, 3)), chance.choice((1000, 4000))
            name = f"ns/n{number}-{held}"
            pods.append(pod(name, width, on=f"n{number}", devices=devices, priority=rank, cpu_milli=milli))
            held, cpu = held + 1, cpu + milli
        nodes.append(node(f"n{number}", 8, cpu_milli=max(cpu, 1) + chance.choice((4000, 20_000, 64_000))))
    is_gang = chance.random() >= 0.5
    width, count = chance.choice((1, 2, 4) if is_gang else (1, 2, 4, 8)), chance.randint(2, 8) if is_gang else 1
    gang = "ns/w" if is_gang else ""
    wants = [pod(f"ns/w-{n}", width, gang=gang, priority=5, cpu_milli=2000) for n in range(count)]
    return world(nodes, [*pods, *wants], [Gang("ns/w", count, priority=5)] if is_gang else []), count


def fewest_stops(seen: Snapshot, count: int) -> tuple[int, int] | None:
    """Highest priority of a stopped pod, the least that suffices, and the fewest stops at it, by an exact model."""
    pods, free, nodes = seen.pods, seen.free(), range(len(seen.nodes))
    shape = pods.shapes[pods.shape[next(r for r in range(len(pods)) if pods.node[r] == PENDING)]]
    for top in sorted({-1, *(int(pods.priority[r]) for r in range(len(pods)) if pods.node[r] != PENDING)}):
        model = pulp.LpProblem("stops", pulp.LpMinimize)
        leaves = {
            r: model.add_variable(f"e_{r}", 0, 1, pulp.LpInteger)
            for r in range(len(pods))
            if pods.node[r] != PENDING and pods.priority[r] <= top
        }
        starts = [model.add_variable(f"x_{v}", 0, count, pulp.LpInteger) for v in nodes]
        model += pulp.lpSum(starts) >= count
        for v in nodes:
            here = [(pods.shapes[pods.shape[r]], leaf) for r, leaf in leaves.items() if pods.node[r] == v]
            idle = int((free.gpu_milli[v] == 1000).sum())
            model += shape.gpus * starts[v] <= idle + pulp.lpSum(s.gpus * leaf for s, leaf in here)
            cpu = pulp.lpSum(s.cpu_milli * leaf for s, leaf in here)
            model += shape.cpu_milli * starts[v] <= int(free.cpu_milli[v]) + cpu
        stops = pulp.lpSum(leaves.values())
        model.setObjective(stops + 0 * starts[0])
        if solve(model).has_answer:
            fewest = round(pulp.value(stops) or 0)
            return (top if fewest else -1), fewest
    return None
