"""Work of packing: no unit uses up what the units behind it need."""

from cluster.actions import Bind, Evict
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.planner import WORK_PER_S, pack, packing_work_of
from placement.policies.published import BestFit
from tests.builders.fleet import Node, Pod, node, pod, world

HOST = "kubernetes.io/hostname"
DEADLINE_S = 2.0
"""Default of `plan_deadline_s`."""


def packed(seen: Snapshot, work: float) -> tuple[Plan, float]:
    """The plan within that work, and what it used of it."""
    budget = Budget(work)
    plan = pack(seen, Packer(seen, BestFit()), budget)
    return plan, work - budget.work


def bound(plan: Plan) -> set[str]:
    return {action.pod for action in plan.actions if isinstance(action, Bind)}


def host(name: str, gpus: int = 8, **rest: object) -> Node:
    return node(name, gpus=gpus, labels={HOST: name}, **rest)


def in_one_host(gang: str, members: int, **rest: object) -> tuple[Gang, list[Pod]]:
    pods = [pod(f"{gang}-{n}", 1, gang=gang, priority=10, **rest) for n in range(members)]
    return Gang(gang, members, within=HOST, priority=10), pods


def thousand_hosts_and_gangs(gangs: int) -> Snapshot:
    """1,000 nodes with 6 free GPUs, one that may be freed, and one that may not; unlike gangs that need 8; 100 pods."""
    hosts = [host(f"n{n}") for n in range(1000)]
    runs = [pod(f"high-{n}", 1, on=f"n{n}", devices=(0,), priority=100) for n in range(1000)]
    runs += [pod(f"low-{n}", 1, on=f"n{n}", devices=(1,)) for n in range(1000)]
    wanted = [in_one_host(f"g{n}", 8, cpu_milli=1000 + n) for n in range(gangs)]
    singles = [pod(f"single-{n}", 1, priority=5) for n in range(100)]
    members = [member for _, pods in wanted for member in pods]
    return world(hosts, [*runs, *members, *singles], [gang for gang, _ in wanted])


def test_gangs_that_cannot_fit_leave_the_deadline_to_the_pods_behind_them() -> None:
    plan, used = packed(thousand_hosts_and_gangs(20), packing_work_of(DEADLINE_S))
    _, used_without = packed(thousand_hosts_and_gangs(0), packing_work_of(DEADLINE_S))

    assert bound(plan) == {f"single-{n}" for n in range(100)}
    assert {each.reason.code for each in plan.unplaced} == {"GangHeldBack"}
    assert (used - used_without) / 20 <= 0.010 * WORK_PER_S, "more than 10 ms for a gang"


def test_equal_gangs_that_cannot_fit_cost_no_more_than_one() -> None:
    def used_by(gangs: int) -> float:
        wanted = [in_one_host(f"g{n}", 4) for n in range(gangs)]
        members = [member for _, pods in wanted for member in pods]
        return packed(world([host("a", 2), host("b", 3)], members, [gang for gang, _ in wanted]), 1e9)[1]

    assert used_by(200) == used_by(1)


def hard_to_place(name: str) -> tuple[Gang, list[Pod]]:
    """Two members of which a host of `with_unequal_devices` holds either, and by all sums both; but it does not."""
    two = pod(f"{name}-0", 2, gpu_milli=600, gang=name, priority=10)
    one = pod(f"{name}-1", 1, gang=name, priority=10)
    return Gang(name, 2, within=HOST, priority=10), [two, one]


def with_unequal_devices(hosts: int) -> tuple[list[Node], list[Pod]]:
    """Hosts with 1000, 700 and 500 thousandths left on their devices: 2 x 600 leave no whole one, and need it."""
    names = [f"n{n}" for n in range(hosts)]
    shares = [
        pod(f"{name}-{n}", 1, gpu_milli=milli, on=name, devices=(n,), priority=10)
        for name in names
        for n, milli in ((1, 300), (2, 500))
    ]
    return [host(name, gpus=3) for name in names], shares


def test_a_gang_that_is_hard_to_place_has_its_turn_after_those_that_are_not() -> None:
    hosts, shares = with_unequal_devices(200)
    gang, members = hard_to_place("g")
    singles = [pod(f"single-{n}", 1) for n in range(50)]
    # Each host costs the gang some 600 places: 120,000 in all. It may use a twentieth of 60,000, then half of the rest.
    plan, _ = packed(world(hosts, [*shares, *members, *singles], [gang]), 60_000)

    assert bound(plan) == {f"single-{n}" for n in range(50)}
    assert {each.workload: each.reason.code for each in plan.unplaced} == {"Gang/g": "WorkUsedUp"}


def test_a_gang_that_is_hard_to_place_is_tried_everywhere_when_work_remains() -> None:
    hosts, shares = with_unequal_devices(200)
    gang, members = hard_to_place("g")
    plan, _ = packed(world([*hosts, host("roomy", gpus=4)], [*shares, *members], [gang]), 1_000_000)

    assert bound(plan) == {"g-0", "g-1"}


def test_large_gangs_that_fit_have_the_work_that_they_need_in_their_turn() -> None:
    gang, members = Gang("g", 400), [pod(f"g-{n}", 1, gang="g") for n in range(400)]
    singles = [pod(f"single-{n}", 1) for n in range(400)]
    seen = world([host(f"n{n}") for n in range(50)], [*members, *singles], [gang])

    plan, _ = packed(seen, packing_work_of(DEADLINE_S) / 4)

    assert bound(plan) == {f"g-{n}" for n in range(400)}


def test_a_plan_uses_the_same_work_whatever_its_packer_has_rated_before() -> None:
    seen = world([node(f"n{n}", gpus=8) for n in range(50)], [pod(f"p{n}", gpus=1 + n % 3) for n in range(20)])
    cold, warm = Packer(seen, BestFit()), Packer(seen, BestFit())
    for shape in seen.pods.shapes:
        warm.choose(shape)
    budgets = Budget(1e9), Budget(1e9)

    plans = [pack(seen, packer, budget) for packer, budget in zip((cold, warm), budgets, strict=True)]

    assert plans[0] == plans[1]
    assert budgets[0].work == budgets[1].work


def test_no_pod_is_stopped_for_an_equally_important_one() -> None:
    """A less important pod runs elsewhere, so that preemption is tried; but it holds no GPU."""
    equal = pod("equal", 1, on="a", devices=(0,), priority=10, never_preempts=True)  # it would not do the same in turn
    runs = [equal, pod("less", on="b", priority=1)]

    plan, _ = packed(world([node("a", gpus=1), node("b")], [*runs, pod("waits", 1, priority=10)]), 1e9)

    assert plan.actions == ()


def test_no_pod_is_stopped_where_a_less_important_one_would_do() -> None:
    busy = [pod(f"mid-{n}", 1, on=f"n{n}", devices=(0,), priority=5) for n in range(99)]
    least = pod("least", 1, on="n99", devices=(0,), priority=1)
    seen = world([node(f"n{n}", gpus=1) for n in range(100)], [*busy, least, pod("urgent", 1, priority=10)])

    plan, _ = packed(seen, 1e9)

    assert [action.pod for action in plan.actions if isinstance(action, Evict)] == ["least"]


def test_a_node_with_fewer_important_pods_is_cleared_before_one_with_more() -> None:
    # Both nodes run a pod of priority 5; beside it node a runs one of 4, and node b one of 0.
    runs = [(4, "a", 0), (5, "a", 1), (5, "b", 0), (0, "b", 1)]
    running = [pod(f"{on}{n}", 1, on=on, devices=(n,), priority=priority) for priority, on, n in runs]
    seen = world([node("a", gpus=2), node("b", gpus=2)], [*running, pod("urgent", 2, priority=10)])

    plan, _ = packed(seen, 1e9)

    assert {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}["urgent"] == "b"
