"""Baseline of a day: services on one type each that follow their demand, beside the same jobs and the same failure."""

from dataclasses import replace

import pytest

from cluster.snapshot import Snapshot
from controller.brain.inline import InlineBrain
from controller.deciders.decisions import Decisions
from simulator.day.simulation import DayMoment, DaySettings, baseline_day, live, one_type_each
from simulator.world import SimulatedWorld
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service

SHORT = DaySettings(hours=8, step_s=1200, lose_hour=3.0, repair_hours=2.0, job_hours=1.0, seed=3)


def fleet(**wanted: float) -> Snapshot:
    return world(
        [node("a", gpus=8), node("b", gpus=8), node("h", gpus=4, gpu_type="H100")],
        [pod("one", gpus=1), pod("two", gpus=2)],
        services=[service("ns/chat", rate=wanted.get("rate", 30.0))],
        profiles=[profile("A100", [[10.0]]), profile("H100", [[20.0]])],
        prices={"A100": 2.0, "H100": 5.0},
    )


def test_each_service_is_on_the_type_that_serves_its_peak_at_the_least_cost() -> None:
    # 30 requests/s: three A100 of 10 each for $6, or two H100 of 20 each for $10.
    one_type = one_type_each(fleet())

    assert one_type.types == {"ns/chat": "A100"}
    assert one_type.fleet.services[0].gpu_types == ("A100",)


def test_a_service_that_no_type_alone_can_serve_keeps_its_types() -> None:
    # 200 requests/s: 16 A100 serve 160 of them and 4 H100 serve 80.
    one_type = one_type_each(fleet(rate=200.0))

    assert one_type.types == {}
    assert one_type.fleet.services[0].gpu_types == ()


def test_the_baseline_follows_demand_on_its_one_type_and_loses_the_same_node() -> None:
    settings = replace(SHORT, load=0.01)

    _, day = baseline_day(fleet(rate=60.0), settings, Decisions(), lambda: 0.0, lost="h")
    moments = list(day)

    # 60 requests/s at the peak are six A100 of 10 each at $2. At three in the night 35 % of it needs three, at 07:40
    # 56 % needs four.
    assert {round(moment.services_per_hour, 6) for moment in moments} == {6.0, 8.0}
    assert {moment.lost for moment in moments} == {"", "h"}


def test_no_node_is_lost_where_the_day_lost_none() -> None:
    _, day = baseline_day(fleet(), replace(SHORT, hours=5.0), Decisions(), lambda: 0.0, lost="")

    assert {moment.lost for moment in day} == {""}


def test_days_of_one_seed_have_the_same_jobs_whatever_places_them() -> None:
    def jobs(policy: str) -> set[str]:
        within = SimulatedWorld(replace(fleet(), at_s=0.0))
        brain = InlineBrain(Decisions(policy=policy), lambda: 0.0)
        arrived: set[str] = set()
        for _ in live(fleet(), brain, SHORT, lambda: 0.0, within):
            arrived.update(name for name in within.observe().pods.names if name.startswith("day/"))
        return arrived

    assert jobs("bestfit") == jobs("random") != set()


def test_spot_instances_cost_the_spot_price() -> None:
    base = fleet()
    spot = replace(base, services=(replace(base.services[0], spot=True),))
    labelled = world(
        [node("a", gpus=8, labels={"tonnage.dev/capacity-type": "spot"})],
        [pod("one", gpus=1)],
        services=spot.services,
        profiles=base.profiles,
        prices={"A100": 2.0},
    )
    cheap = replace(labelled, gpu_types=tuple(replace(each, spot_price_per_hour=0.5) for each in labelled.gpu_types))

    (first, *_) = lived(cheap)

    # Midnight: 54 % of 30 requests/s need two A100 of 10 each, at $0.50.
    assert first.services_per_hour == pytest.approx(1.0)


def test_every_pod_that_waits_has_a_reason() -> None:
    moments = lived(replace(fleet(), services=()), load=3.0)

    assert all(sum(moment.waits.values()) == moment.waiting for moment in moments)
    assert any("NoNodeFits" in moment.waits for moment in moments)


def lived(of: Snapshot, *, load: float = 0.01) -> list[DayMoment]:
    brain = InlineBrain(Decisions(policy="bestfit"), lambda: 0.0)
    return list(live(of, brain, replace(SHORT, hours=4.0, lose_hour=None, load=load), lambda: 0.0))
