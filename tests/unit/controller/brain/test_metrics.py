"""Metrics of the brain and of its background deciders."""

from collections import Counter
from collections.abc import Iterator

import pytest

from controller.brain.inline import SlotCounts
from controller.brain.link import Link
from controller.brain.remote import BrainMetrics, RayBrain
from controller.deciders.decisions import Decisions
from controller.metrics.registry import Meter
from tests.builders.fake_brain import FakeBrain, NoChance


@pytest.fixture
def brain() -> Iterator[RayBrain]:
    link = Link(FakeBrain(), Decisions(), NoChance())
    yield RayBrain(link, Decisions(), lambda: 0.0)
    link.close()


def test_counters_rise_by_what_is_new(brain: RayBrain) -> None:
    meter = Meter()
    metrics, slots = BrainMetrics(meter), SlotCounts()
    brain.counts.plans["local"] = 2
    slots.thoughts["polish", "local"] = 3
    metrics.publish(brain, slots)
    slots.thoughts["polish", "local"] += 1
    slots.failures["polish", "stuck"] += 1
    slots.actions["polish"] += 5
    metrics.publish(brain, slots)

    def value(name: str, **labels: str) -> float | None:
        return meter.registry.get_sample_value(name, labels)

    assert value("tonnage_brain_plans_total", by="local") == 2
    assert value("tonnage_brain_slot_thoughts_total", slot="polish", by="local") == 4
    assert value("tonnage_brain_slot_failures_total", slot="polish", reason="stuck") == 1
    assert value("tonnage_brain_slot_actions_total", slot="polish") == 5
    assert value("tonnage_brain_slot_up", slot="polish") == 0


def test_a_slot_that_never_gave_a_sign_has_no_series(brain: RayBrain) -> None:
    meter = Meter()

    BrainMetrics(meter).publish(brain, SlotCounts(thoughts=Counter()))

    assert meter.registry.get_sample_value("tonnage_brain_slot_up", {"slot": "polish"}) is None
