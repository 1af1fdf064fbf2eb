"""Hours of services, learnt from readings: what placement keeps peaks apart by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster.arrays import FloatArray
from cluster.power import PowerTable
from cluster.snapshot import Snapshot
from controller.api.power_domain import LearnedHours, LearnedStatus
from controller.loops.power.control import LEARN_EVERY_S, ServiceProfiles
from controller.loops.power.domain_tree import power_tree
from controller.loops.power.loop import PowerLoopState, PowerView
from power.control.daily_profile import (
    HOURS,
    MOST_PACKED,
    DailyProfile,
    complete_profiles,
    is_near,
    packed,
    profiles_after,
    unpacked,
)
from power.control.state import Fleet, allocator_of, first_state
from power.control.step import step
from power.rules import PowerRules
from tests.builders.fleet import Pod, node, pod, world
from tests.builders.power import Device, Domain, power_table, row_of

DAY_S, HOUR_S = 86_400.0, 3600.0
IDLE_W, MOST_W = 60.0, 400.0
GPUS = 4
TABLE = power_table(
    [Domain(name, kind="node") for name in ("a", "b")], [Device(f"{n}-{d}", n) for n in ("a", "b") for d in range(GPUS)]
)
SHOP = [
    pod("shop-0", 2, on="a", devices=(0, 1), owner="ns/shop"),
    pod("shop-1", 1, on="b", devices=(0,), owner="ns/shop"),
]


def watts(share: float) -> float:
    return IDLE_W + share * (MOST_W - IDLE_W)


def seen(at_s: float, pods: Sequence[Pod] = SHOP) -> Snapshot:
    return world([node("a", GPUS), node("b", GPUS)], pods, at_s=at_s)


def draws(busy: float, held: Mapping[str, int] = {"a": 2, "b": 1}) -> FloatArray:
    """So many devices of each node work at this share, the last ones of the table, the others rest."""
    return np.array([watts(busy) if d >= GPUS - held[n] else IDLE_W for n in ("a", "b") for d in range(GPUS)])


def by_hour(hour: int) -> float:
    return 0.9 if 8 <= hour < 20 else 0.2


def after(days: float, every_s: float = 60.0, table: PowerTable = TABLE) -> Mapping[str, DailyProfile]:
    courses: Mapping[str, DailyProfile] = {}
    for at_s in np.arange(0.0, days * DAY_S + every_s, every_s):
        courses = profiles_after(courses, seen(float(at_s)), table, draws(by_hour(int(at_s // HOUR_S) % 24)))
    return courses


def test_after_a_day_a_service_has_a_course_and_not_before() -> None:
    assert complete_profiles(after(0.95)) == {}

    (course,) = complete_profiles(after(1.0)).values()

    assert course == pytest.approx([by_hour(hour) for hour in range(HOURS)], abs=0.02)


def test_gpus_that_hold_no_pod_do_not_count() -> None:
    """One that rests beside a busy one is not the service's: those that draw most are taken to hold its pods."""
    one = profiles_after(profiles_after({}, seen(0.0), TABLE, draws(0.9)), seen(60.0), TABLE, draws(0.9))["ns/shop"]

    assert one.gpu_s == 3 * 60.0
    assert one.drawn_gpu_s / one.gpu_s == pytest.approx(0.9)


def test_a_node_that_others_use_too_teaches_nothing() -> None:
    mixed = [*SHOP, pod("other", 1, on="a", devices=(2,), owner="ns/other"), pod("own", 1, on="b", devices=(1,))]

    assert profiles_after({}, seen(0.0, mixed), TABLE, draws(0.9)) == {}


def test_nor_does_a_node_of_which_something_is_not_known() -> None:
    unheard = draws(0.9)
    unheard[-1] = np.nan
    managed = TABLE.devices.managed.copy()
    managed[0] = False
    opted_out = replace(TABLE, devices=replace(TABLE.devices, managed=managed))

    (course,) = profiles_after(profiles_after({}, seen(0.0), TABLE, unheard), seen(60.0), TABLE, unheard).values()
    assert course.gpu_s == 2 * 60.0  # node a alone
    assert profiles_after({}, seen(0.0), opted_out, unheard) == {}


def test_a_node_outside_every_domain_teaches_nothing() -> None:
    away = [pod("shop-0", 1, on="b", devices=(0,), owner="ns/shop")]
    table = power_table([Domain("a", kind="node")], [Device(f"a-{d}", "a") for d in range(GPUS)])

    assert profiles_after({}, seen(0.0, away), table, np.full(GPUS, MOST_W)) == {}


def test_an_hour_that_was_seen_for_minutes_says_nothing() -> None:
    assert complete_profiles(after(2.0, every_s=HOUR_S)) == {}  # one reading an hour represents five minutes of it


def test_a_new_day_counts_three_tenths() -> None:
    courses = after(1.0)
    for minute in range(1, 61 * 24):
        courses = profiles_after(courses, seen(DAY_S + minute * 60.0), TABLE, draws(0.5))

    (course,) = complete_profiles(courses).values()
    assert course[12] == pytest.approx(0.9 - 0.3 * 0.4, abs=0.02)
    assert course[3] == pytest.approx(0.2 + 0.3 * 0.3, abs=0.02)


def test_a_service_that_is_gone_for_two_weeks_is_forgotten() -> None:
    courses = after(1.0)

    assert profiles_after(courses, seen(14.0 * DAY_S, []), TABLE, draws(0.0)).keys() == {"ns/shop"}
    assert profiles_after(courses, seen(16.0 * DAY_S, []), TABLE, draws(0.0)) == {}


def test_the_same_snapshot_again_teaches_nothing() -> None:
    once = profiles_after(profiles_after({}, seen(0.0), TABLE, draws(0.9)), seen(60.0), TABLE, draws(0.9))
    twice = profiles_after(once, seen(60.0), TABLE, draws(0.9))

    assert (twice["ns/shop"].gpu_s, twice["ns/shop"].seen_s) == (once["ns/shop"].gpu_s, once["ns/shop"].seen_s)


class Standing:
    """State of the fast loop, as far as planning uses it."""

    def __init__(self) -> None:
        self.draw_w = draws(0.0)

    def wanted_w(self) -> FloatArray:
        return self.draw_w

    def fleets(self) -> Mapping[str, Fleet]:
        return {"row": Fleet("a100", 4)}


def courses_told(profiles: ServiceProfiles, until_s: float, from_s: float = 0.0) -> Mapping[str, FloatArray]:
    """What planning gets at the end of such a time, looking twice as often as it learns."""
    loop_state: Any = Standing()
    courses: Mapping[str, FloatArray] = {}
    for at_s in np.arange(from_s, until_s + 1.0, LEARN_EVERY_S / 2):
        loop_state.draw_w = draws(by_hour(int(at_s // HOUR_S) % 24))
        courses = profiles.after(seen(float(at_s)), loop_state, TABLE)
    return courses


def test_planning_gets_the_courses_that_the_operator_saw() -> None:
    profiles = ServiceProfiles()
    assert courses_told(profiles, 0.95 * DAY_S) == {}

    course = courses_told(profiles, DAY_S, 0.95 * DAY_S)["ns/shop"]

    assert course == pytest.approx([by_hour(hour) for hour in range(HOURS)], abs=0.02)


def test_it_gets_none_where_that_is_switched_off() -> None:
    assert courses_told(ServiceProfiles(learns=False), DAY_S) == {}


def test_hours_survive_being_packed_to_half_a_percent() -> None:
    courses = after(1.0)

    again = unpacked(packed(courses), DAY_S)

    assert again["ns/shop"].share == pytest.approx(courses["ns/shop"].share, abs=0.002)
    assert complete_profiles(again).keys() == {"ns/shop"}


def test_an_hour_that_was_not_observed_stays_unknown() -> None:
    again = unpacked(packed(after(0.5)), DAY_S)["ns/shop"].share

    assert np.isnan(again).any()
    assert not np.isnan(again).all()


def test_what_is_packed_is_bounded_and_keeps_the_services_known_best() -> None:
    half, whole = after(0.5)["ns/shop"], after(1.0)["ns/shop"]

    made = packed({**{f"ns/half-{n:03}": half for n in range(100)}, "ns/whole": whole})

    assert len(made) == MOST_PACKED
    assert "ns/whole" in made
    assert sum(len(name) + len(hours) for name, hours in made.items()) < 8192


def test_hours_that_ripple_are_no_change() -> None:
    old = packed(after(1.0))

    assert is_near(old, packed({name: replace(c, share=c.share * 0.99) for name, c in after(1.0).items()}))
    assert not is_near(old, packed({name: replace(c, share=c.share * 0.9) for name, c in after(1.0).items()}))
    assert not is_near(old, {})


@pytest.mark.parametrize(
    ("products", "devices", "is_believed"), [("a100", 4, True), ("h100", 4, False), ("a100", 9, False)]
)
def test_a_new_leader_knows_the_hours_of_the_one_before_where_the_fleet_fits(
    products: str, devices: int, is_believed: bool
) -> None:
    services = tuple(LearnedHours(service=name, hours=hours) for name, hours in packed(after(1.0)).items())
    learned = LearnedStatus(
        time=DAY_S, products=products, devices=devices, spike_watts=1.0, excess_watts=1.0, services=services
    )

    told = courses_told(ServiceProfiles(lambda: {"row": learned}), DAY_S + 300.0, DAY_S + 60.0)

    assert told.keys() == ({"ns/shop"} if is_believed else set())


def test_a_device_that_its_cap_holds_back_wants_what_it_needs_and_of_one_unheard_nobody_knows() -> None:
    allocator = allocator_of(row_of([Device(f"g{n}", f"n{n}") for n in range(3)], 900.0), PowerRules(stuck_s=0.0))
    state = first_state(allocator)
    readings = allocator.tree.table.readings
    for at_s in np.arange(0.0, 60.0, 2.0):
        cap_w = np.minimum(state.ledger.cap_w, 400.0)
        heard_s = np.array([at_s, at_s, 0.0])
        readings = replace(
            readings,
            at_s=heard_s,
            draw_w=np.array([150.0 + 0.01 * at_s % 0.05, cap_w[1], 150.0]),
            cap_w=cap_w,
            sequence=state.ledger.sequence,
        )
        state, _ = step(allocator, state, readings, float(at_s))
    loop_state = PowerLoopState(
        epoch=1,
        since_s=0.0,
        at_s=58.0,
        view=PowerView({}, {}),
        tree=power_tree({}, {}),
        heard=frozenset(),
        table=allocator.tree.table,
        allocator=allocator,
        state=state,
    )

    wanted_w = loop_state.wanted_w()

    assert wanted_w is not None
    assert wanted_w[0] == pytest.approx(150.0, abs=0.1)
    assert wanted_w[1] == state.need_w[1] > readings.draw_w[1]
    assert np.isnan(wanted_w[2])
    assert replace(loop_state, allocator=None).wanted_w() is None
