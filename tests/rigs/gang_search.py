"""Gangs on small fleets beside an exact search: most members, on the fewest racks, nodes and empty nodes broken."""

from collections import Counter
from dataclasses import dataclass
from random import Random

import pulp

from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang, PodShape
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
