"""Compositions of faults on a real control plane, a fixed few at once; `make faults` plays others for hours."""

from pathlib import Path

import pytest

from simulator.controlplane.binaries import Programs
from tests.chaos.compositions import drawn
from tests.chaos.on_server import play, theatre
from tests.deploy.helm import rendered

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

SEEDS = range(12)


def test_nothing_is_lost_doubled_or_untrue_on_a_real_server_with_real_processes(
    kept_folder: Path, programs: Programs
) -> None:
    rendered()  # a skip where there is no Helm, before anything starts
    folder = kept_folder / "compositions"
    folder.mkdir()
    with theatre(programs, folder) as (there, operators):
        verdicts = play(there, operators, [drawn(seed, on_server=True) for seed in SEEDS])

    assert not {seed: each.violations for seed, each in zip(SEEDS, verdicts, strict=True) if each.violations}
    assert sum(each.injected["pod"] for each in verdicts) >= len(SEEDS)
