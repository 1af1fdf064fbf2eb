"""Shares of teams: idle ones are lent, and come back by exactly as many stops as they need."""

from dataclasses import replace

import numpy as np

from cluster.actions import Bind, Evict, HoldSeats
from cluster.plans import Plan
from cluster.snapshot import PENDING, Snapshot
from cluster.teams import Amounts, Team
from cluster.workloads import Gang, GpuType
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Pod, node, pod, world


def team(name: str, gpus: float = 0, *, most: float | None = None, **rest: object) -> Team:
    """Team of the namespace of its name, with a share of A100s; most: that it may borrow."""
    borrowing = Amounts() if most is None else Amounts({"A100": round(1000 * most)})
    return Team(name, frozenset({name}), Amounts({"A100": round(1000 * gpus)}), borrowing, **rest)  # type: ignore[arg-type]


def seen(nodes: int, pods: list[Pod], *teams: Team, gangs: tuple[Gang, ...] = (), gpus: int = 8) -> Snapshot:
    made = world([node(f"n{n:03d}", gpus=gpus) for n in range(nodes)], pods, gangs)
    return replace(made, teams=teams, at_s=100_000.0)


def planned(now: Snapshot) -> Plan:
    return pack(now, Packer(now, BestFit()))


def after(now: Snapshot, plan: Plan) -> Snapshot:
    return now.after(each for each in plan.actions if not isinstance(each, HoldSeats))


def held(now: Snapshot, team: str) -> float:
    """Devices of a team."""
    milli = np.array([shape.total_gpu_milli for shape in now.pods.shapes])[now.pods.shape]
    mine = np.array([name.startswith(f"{team}/") for name in now.pods.names]) & (now.pods.node != PENDING)
    return float(milli[mine].sum() / 1000)


def waits(team: str, count: int, gpus: int = 1, **rest: object) -> list[Pod]:
    return [pod(f"{team}/p{n:03d}", gpus, **rest) for n in range(count)]


def filled(team: str, nodes: int, gpus: int = 1, start: int = 0, **rest: object) -> list[Pod]:
    """Pods of a team that fill nodes of eight devices."""
    each = range(0, 8, gpus)
    places = [(n, tuple(range(d, d + gpus))) for n in range(start, start + nodes) for d in each]
    return [
        pod(f"{team}/r{n:03d}", gpus, on=f"n{where:03d}", devices=devices, **rest)
        for n, (where, devices) in enumerate(places)
    ]


def test_an_idle_share_is_lent_and_comes_back_by_exactly_as_many_stops() -> None:
    a, b = team("a", 160), team("b", 160)
    alone = seen(40, waits("a", 320), a, b)
    full = after(alone, planned(alone))
    assert held(full, "a") == 320

    both = replace(full, pods=full.pods.plus(seen(40, waits("b", 160)).pods))
    plan = planned(both)
    stopped = [each.pod for each in plan.actions if isinstance(each, Evict)]
    shared = after(both, plan)

    assert len(stopped) == 160
    assert (held(shared, "a"), held(shared, "b")) == (160, 160)
    again = planned(shared)
    assert not again.actions
    assert {each.reason.words.rpartition("; ")[2] for each in again.unplaced} == {
        "its team a holds 160 A100 of its share of 160, and 1 more would be borrowed"
    }

    stays = np.flatnonzero([not name.startswith("b/") for name in shared.pods.names])
    left = replace(shared, pods=shared.pods.only(stays))
    assert held(after(left, planned(left)), "a") == 320


def test_those_who_borrow_most_lose_first_and_nobody_takes_his_own_back() -> None:
    now = seen(3, [*filled("a", 2), *filled("b", 1, start=2), *waits("c", 8)], team("a"), team("b"), team("c"))
    plan = planned(now)
    shared = after(now, plan)

    assert (held(shared, "a"), held(shared, "b"), held(shared, "c")) == (8, 8, 8)
    assert not planned(shared).actions


def test_weights_divide_what_is_lent() -> None:
    now = seen(3, [*filled("a", 3), *waits("b", 24)], team("a", weight=1.0), team("b", weight=2.0))

    shared = after(now, planned(now))

    assert (held(shared, "a"), held(shared, "b")) == (8, 16)
    assert not planned(shared).actions


def test_what_waits_beyond_the_limit_on_borrowing_is_told_so() -> None:
    now = seen(3, waits("a", 24), team("a", 8, most=4))
    plan = planned(now)

    assert held(after(now, plan), "a") == 12
    words = (
        "its team a holds 12 A100 of its share of 8, and 1 more would be borrowed, which its limit on borrowing does"
    )
    assert {(each.reason.code, each.reason.words) for each in plan.unplaced} == {("TeamLimit", f"{words} not allow")}


def test_priorities_decide_within_a_team_and_not_between_teams() -> None:
    teams = team("a", 8), team("b", 8)
    within = seen(2, [*filled("a", 1), *filled("b", 1, start=1), *waits("b", 2, priority=9)], *teams)

    assert {each.pod.partition("/")[0] for each in planned(within).actions if isinstance(each, Evict)} == {"b"}


def test_a_share_is_taken_back_from_pods_of_higher_priority_and_of_no_team() -> None:
    now = seen(1, [*filled("x", 1, priority=1000), *waits("a", 3)], team("a", 3))

    assert len([each for each in planned(now).actions if isinstance(each, Evict)]) == 3


def test_pods_that_borrow_run_for_their_least_time() -> None:
    young, old = filled("b", 1, started_s=99_900), filled("b", 1, started_s=99_600)
    teams = team("a", 8), team("b", min_run_s=300.0)

    assert not planned(seen(1, [*young, *waits("a", 1)], *teams)).actions
    assert planned(seen(1, [*old, *waits("a", 1)], *teams)).actions
    without_a_clock = replace(seen(1, [*young, *waits("a", 1)], *teams), at_s=0.0)
    assert planned(without_a_clock).actions, "a plan from files"


def test_a_pod_that_waited_as_long_as_anybody_may_takes_although_its_team_would_owe_more() -> None:
    """Eight devices of a team without a share, for a pod of eight of another: it would owe as much as it takes."""
    teams = team("a", 0, max_wait_s=3600.0), team("b", 0)
    fresh, late = (pod("a/wide", 8, started_s=100_000 - for_s) for for_s in (3599, 3600))

    assert not planned(seen(1, [*filled("b", 1), fresh], *teams)).actions
    stopped = [each for each in planned(seen(1, [*filled("b", 1), late], *teams)).actions if isinstance(each, Evict)]
    assert len(stopped) == 8


def test_who_lost_to_a_pod_that_waited_too_long_does_not_take_that_back() -> None:
    """Four devices each; with a fifth, the first owes more than the second with its fourth, which takes an old one."""
    halves = [*filled("a", 1, started_s=90_000)[:4], *filled("b", 1, started_s=99_990)[4:]]
    now = seen(1, [*halves, pod("a/late", 1, started_s=1)], team("a", 0), team("b", 0))

    after_all = after(now, planned(now))

    assert after_all.pods.node[after_all.pods.names.row("a/late")] != PENDING


def test_a_pod_that_waited_too_long_takes_nothing_of_a_share() -> None:
    late = pod("a/wide", 8, started_s=1)

    assert not planned(seen(1, [*filled("b", 1), late], team("a", 0), team("b", 8))).actions


def stopped(now: Snapshot) -> set[str]:
    return {each.pod for each in planned(now).actions if isinstance(each, Evict)}


def test_a_pod_that_waited_too_long_takes_from_its_own_team_but_nothing_of_higher_priority() -> None:
    late, own = pod("a/wide", 8, started_s=1), filled("a", 1, started_s=90_000)
    dear = [replace(own[0], priority=1), *own[1:]]

    assert len(stopped(seen(1, [*own, late], team("a", 8)))) == 8
    assert len(stopped(seen(1, [*own, late], team("a", 8, most=0)))) == 8, "at the limit of its team, too"
    assert not stopped(seen(1, [*dear, late], team("a", 8)))
    assert not stopped(seen(1, [*own, pod("a/wide", 8, started_s=99_000)], team("a", 8)))


def test_a_pod_that_waited_too_long_has_its_turn_after_one_like_it_that_fits_nowhere() -> None:
    like = [pod(f"a/{name}", 8, started_s=since) for name, since in (("fresh", 99_990), ("late", 1))]
    plan = planned(seen(1, [*filled("a", 1, started_s=90_000), *like], team("a", 16)))

    assert {each.pod for each in plan.actions if isinstance(each, Bind)} <= {"a/late"}
    assert len([each for each in plan.actions if isinstance(each, Evict)]) == 8


def test_a_late_pod_without_devices_stops_none_of_its_team_that_have_some() -> None:
    full = filled("a", 1, started_s=90_000, cpu_milli=12_000)

    assert not stopped(seen(1, [*full, pod("a/late", 0, cpu_milli=12_000, started_s=1)], team("a", 8)))


def mixed(late: Pod, *, gpus: int = 1) -> Snapshot:
    """Two nodes, each with four devices of b, within its share of eight, and four of a, beside a late pod of a."""
    own = [
        each if n % (8 // gpus) < 4 // gpus else replace(each, name=f"a/{n}")
        for n, each in enumerate(filled("b", 2, gpus, started_s=90_000))
    ]
    return seen(2, [*own, late], team("a", 8), team("b", 8))


def test_a_pod_that_waited_too_long_takes_of_a_share_what_comes_back_elsewhere() -> None:
    now = mixed(pod("a/late", 8, started_s=1))

    later = after(now, planned(now))
    assert later.pods.node[later.pods.names.row("a/late")] != PENDING
    for _ in range(3):
        later = after(later, planned(later))

    assert (held(later, "a"), held(later, "b")) == (8, 8)
    assert later.pods.node[later.pods.names.row("a/late")] != PENDING
    assert not planned(later).actions


def test_a_pod_that_waited_too_long_takes_nothing_of_a_share_that_is_as_wide_or_where_its_own_is_less() -> None:
    wide, late = mixed(pod("a/late", 4, started_s=1), gpus=4), mixed(pod("a/late", 8, started_s=1))
    less = replace(late, teams=(team("a", 7), team("b", 8)))

    assert {each.partition("/")[0] for each in stopped(wide)} == {"a"}
    assert not stopped(less)


def test_a_gang_waited_too_long_once_its_last_member_did() -> None:
    def plan_of(last_s: int) -> int:
        gang = [pod(f"a/g{n}", 4, gang="a/g", started_s=(1, last_s)[n]) for n in range(2)]
        now = seen(1, [*filled("b", 1), *gang], team("a", 0), team("b", 0), gangs=(Gang("a/g", 2),))
        return sum(isinstance(each, Evict) for each in planned(now).actions)

    assert (plan_of(99_990), plan_of(2)) == (0, 8)


def test_the_least_work_is_lost() -> None:
    pods = [each if n != 5 else replace(each, saved_s=99_990) for n, each in enumerate(filled("b", 1, started_s=1_000))]

    plan = planned(seen(1, [*pods, *waits("a", 1)], team("a", 8), team("b")))

    assert [each.pod for each in plan.actions if isinstance(each, Evict)] == ["b/r005"]


def test_the_seat_of_a_pod_that_takes_is_held_for_it() -> None:
    plan = planned(seen(1, [*filled("b", 1), *waits("a", 1)], team("a", 8), team("b")))

    (hold,) = [each for each in plan.actions if isinstance(each, HoldSeats)]
    assert hold.held.holder == "a/p000"


def test_the_seat_of_a_late_pod_is_held_for_it_against_those_of_its_team_that_it_stopped() -> None:
    plan = planned(seen(1, [*filled("a", 1, started_s=90_000), pod("a/late", 8, started_s=1)], team("a", 8)))

    (hold,) = [each for each in plan.actions if isinstance(each, HoldSeats)]
    assert hold.held.holder == "a/late"


def test_a_gang_takes_its_share_whole() -> None:
    gang = Gang("a/g", 3)
    waiting = [pod(f"a/g{n}", 8, gang="a/g") for n in range(3)]
    now = seen(4, [*filled("b", 4, 2), *waiting], team("a", 24), team("b", 8), gangs=(gang,))

    plan = planned(now)

    assert len([each for each in plan.actions if isinstance(each, Bind)]) == 3
    assert len([each for each in plan.actions if isinstance(each, Evict)]) == 12
    short = replace(now, teams=(team("a", 23), team("b", 9)))
    assert not planned(short).actions


def test_a_share_in_dollars_counts_what_devices_cost() -> None:
    a = Team("a", frozenset({"a"}), Amounts(usd_per_hour=10.0))
    now = replace(
        seen(1, [*filled("b", 1), *waits("a", 8)], a, team("b")),
        gpu_types=(GpuType("A100", 80 << 30, price_per_hour=4.0),),
    )

    assert held(after(now, planned(now)), "a") == 5  # $20 of its $10: 2.5 beyond, b has 3


def test_of_those_who_borrow_the_one_who_borrowed_less_lately_is_first() -> None:
    now = seen(1, [*waits("a", 4, 2), *waits("b", 4, 2)], team("a", usage=5.0), team("b"))
    shared = after(now, planned(now))

    assert (held(shared, "a"), held(shared, "b")) == (2, 6)  # owing 7 and 6
