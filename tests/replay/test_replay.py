"""What was decided once is decided again: recorded cycles through today's deciders."""

from pathlib import Path

import pytest

from cli.verbs.bundle import brain_with, bundle_in
from controller.cycle import stopped
from controller.guard import Limits
from controller.recording.bundle import replayed, settings_from
from tests.replay.record import BUNDLES, DEADLINE_S, golden

HERE = Path(__file__).parent


LONG = ("day",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in sorted(BUNDLES)]
)
def test_recorded_cycles_are_decided_as_they_were(name: str) -> None:
    bundle = bundle_in(str(HERE / f"{name}.tar.gz"))
    settings, unknown = settings_from(bundle.about.settings)
    limits = Limits(**settings.limits.model_dump())

    cycles = list(replayed(bundle.cycles(), brain_with(settings, stopped), limits, DEADLINE_S))

    assert unknown == ()
    expected = (HERE / f"{name}.plans.txt").read_text(encoding="utf-8")
    assert golden((each.entry.number, each.after) for each in cycles) == expected, "python -m tests.replay.record"
    assert [each.entry.number for each in cycles if not each.is_same] == []


def test_every_bundle_of_the_folder_is_played() -> None:
    assert {file.name.removesuffix(".tar.gz") for file in HERE.glob("*.tar.gz")} == set(BUNDLES)


def test_the_bundles_stay_small() -> None:
    assert sum(file.stat().st_size for file in HERE.glob("*.tar.gz")) < 200_000
