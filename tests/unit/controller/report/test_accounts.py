"""Accounts: every device is held by somebody or idle, at its price."""

from dataclasses import replace

from cluster.teams import Team
from cluster.workloads import GpuType
from controller.report.accounts import accounts_of
from tests.builders.fleet import node, pod, world


def test_every_device_is_on_one_account_with_its_price() -> None:
    half = pod("b/part", 1, gpu_milli=500, on="n", devices=(2,))
    now = world([node("n", gpus=4)], [pod("a/wide", 2, on="n", devices=(0, 1)), half, pod("a/waits", 1)])
    now = replace(now, teams=(Team("research", frozenset({"a"})),), gpu_types=(GpuType("A100", 1, price_per_hour=4.0),))

    assert accounts_of(now) == {
        ("research", "a", "A100", "used"): (2.0, 8.0),
        ("", "b", "A100", "used"): (0.5, 2.0),
        ("", "", "A100", "idle"): (1.5, 6.0),
    }
