"""Background work of the operator at the chart's defaults, on a real API server and a real Prometheus."""

import asyncio

import pytest

from cluster.errors import BuildError
from tests.controlplane.installation import account_of, site_with
from tests.rigs.controlplane.background_hour import EXAMPLES, background_hour
from tests.rigs.controlplane.saved_fits import batches, handed_over
from tests.rigs.prometheus import prometheus_program

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


def test_the_examples_are_fitted_on_ray_and_a_new_leader_has_their_fits() -> None:
    try:
        prometheus_program()
    except BuildError as error:
        pytest.skip(f"no Prometheus: {error}")

    row = background_hour(minutes=0.5, days=2.0, idle_s=15.0)

    assert row["ran"]["load_fits done"] >= 1
    assert {name: count for name, count in row["new_leader_ran"].items() if "load_fits" in name and count} == {}
    assert set(row["ray_processes"]) >= {"gcs_server", "raylet", "controller.background.driver"}
    assert row["most_pss_mb"] < 260
    assert row["idle_core_share"] < 0.05


def test_the_fits_of_many_policies_are_there_for_the_next_leader() -> None:
    with site_with((EXAMPLES / "nodes.yaml").read_text(encoding="utf-8")) as site:
        row = asyncio.run(handed_over(account_of(site), batches(40, 2), 40))

    assert (row["without_fit"], row["same"], row["batches"]) == (0, True, 8)
