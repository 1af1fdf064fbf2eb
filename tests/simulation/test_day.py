"""A day lives through arrivals, tides and a lost node with the controller's own loop, and nothing gets lost in it."""

import time
from dataclasses import replace

import pytest

from cluster.errors import ConfigError
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang
from controller.brain.inline import InlineBrain, decisions_from
from controller.deciders.decisions import Decisions
from controller.settings import settings_from, with_changes
from simulator.day.simulation import DayMoment, DaySettings, background_gain, check_day, live, tide
from simulator.world import SimulatedWorld
from tests.builders.fleet import node, pod, world
from tests.builders.many_services import tight_manifests
from tests.builders.mix import profile, service
from tests.mix_exact.comparison import observed

SHORT = DaySettings(hours=8, step_s=1200, lose_hour=3.0, repair_hours=2.0, job_hours=1.0, seed=3)


def fleet() -> Snapshot:
    return world(
        [node("a", gpus=8), node("b", gpus=8), node("h", gpus=4, gpu_type="H100")],
        [
            pod("one", gpus=1),
            pod("half", gpus=1, gpu_milli=500),
            *(pod(f"g{n}", gpus=2, gang="pair") for n in range(2)),
        ],
        gangs=[Gang("pair", 2)],
        services=[service("ns/chat", rate=30)],
        profiles=[profile("A100", [[10.0]])],
        prices={"A100": 2.0, "H100": 5.0},
    )


def lived(settings: DaySettings = SHORT, within: SimulatedWorld | None = None) -> list[DayMoment]:
    brain = InlineBrain(Decisions(policy="bestfit"), time.monotonic)
    return list(live(fleet(), brain, settings, lambda: 0.0, within))


def test_the_same_day_again_is_the_same_day() -> None:
    assert lived() == lived()


def test_another_seed_is_another_day() -> None:
    assert lived() != lived(replace(SHORT, seed=4))


def test_a_lost_node_takes_its_gpus_along_and_brings_them_back() -> None:
    gpus = [moment.gpus for moment in lived(replace(SHORT, lose="a"))]

    # 20 GPUs in all, 8 of them on a; three cycles an hour.
    assert gpus == [20] * 9 + [12] * 6 + [20] * 9


def test_nothing_runs_on_a_lost_node() -> None:
    within = SimulatedWorld(replace(fleet(), at_s=0.0))

    for moment in live(fleet(), InlineBrain(Decisions(policy="bestfit"), time.monotonic), SHORT, lambda: 0.0, within):
        assert moment.gpus_used <= moment.gpus
        if moment.gpus < 20:
            seen = within.observe()
            down = [row for row, up in enumerate(seen.nodes.schedulable) if not up]
            assert not set(down) & set(seen.pods.node.tolist())


def test_what_ran_on_a_lost_node_waits_or_runs_elsewhere() -> None:
    within = SimulatedWorld(replace(fleet(), at_s=0.0))
    lived(replace(SHORT, hours=3.0, lose_hour=None), within)
    on_a = {name for name, at in zip(within.observe().pods.names, within.observe().pods.node, strict=True) if at == 0}

    lost = within.lose("a")

    assert set(lost) == on_a
    pods = within.observe().pods
    assert all(pods.node[pods.names.row(name) or 0] == PENDING for name in lost)


def test_services_follow_the_tide() -> None:
    moments = lived(replace(SHORT, hours=24.0, lose_hour=None, load=0.01))
    by_hour = {moment.at_s / 3600: moment.services_per_hour for moment in moments}

    # 30 requests/s at the peak need three A100 of 10 each; in the night 35 % of that need two.
    assert by_hour[15.0] == pytest.approx(6.0)
    assert by_hour[4.0] == pytest.approx(4.0)


def test_an_instance_that_starts_is_paid_for_while_it_loads() -> None:
    first, *rest = lived(replace(SHORT, hours=24.0, lose_hour=None, load=0.01))

    # Two A100 of $2 start at midnight, and one more on the way to the peak: each loads for 150 s.
    assert (first.loading_s, first.loading_dollars) == pytest.approx((150.0, 2 * 2.0 * 150 / 3600))
    assert sum(moment.loading_s for moment in rest) == pytest.approx(150.0)
    assert sum(moment.loading_dollars for moment in rest) == pytest.approx(2.0 * 150 / 3600)


def test_the_tide_is_high_at_three_and_low_at_three() -> None:
    assert tide(15.0) == pytest.approx(1.0)
    assert tide(3.0) == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("snapshot", "settings", "place"),
    [
        (world([node("a")], [pod("one", gpus=1)]), SHORT, "fleet"),
        (world([node("a", gpus=1)], [pod("cpu")]), SHORT, "fleet"),
        (fleet(), replace(SHORT, lose="z"), "--lose z"),
    ],
)
def test_a_day_with_nothing_to_see_is_refused(snapshot: Snapshot, settings: DaySettings, place: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        check_day(snapshot, settings)

    assert wrong.value.mistakes[0].place == place


def test_what_background_tasks_find_is_told_in_dollars() -> None:
    tight = observed(tight_manifests(3, services=5))
    decisions = decisions_from(with_changes(settings_from({}), plan_deadline_s=0.3), awaits_pods=False)

    questions, alone, with_answers = background_gain(tight, decisions)

    assert questions > 0
    assert 0 < with_answers <= alone
