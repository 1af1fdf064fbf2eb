"""Tenants that hold what they have: each costs its neighbours nothing, on a real kernel."""

import os
import time
from functools import partial
from typing import Any

import pytest

from tests.kernel.holders import HOLDERS
from tests.kernel.node import FROZEN, _sleep as sleep, begin_in_pod, in_pod, node, uid_of
from tests.kernel.test_found_calls import cpu_s
from tests.kernel.test_sandbox_client import run
from tests.rigs.kernel.guest import Guest
from tests.rigs.launcher import run_in

PIDS = 80
"""The kubelet's podPidsLimit of the pod that holds."""


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_tenant_that_holds_costs_its_neighbour_nothing(guest: Guest, holder: str) -> None:
    found = guest.call(f"{__name__}:beside", holder)

    assert found["refused"] == []
    assert found["frozen_ms"] <= 100
    assert found["share_afterwards"] <= 0.01


def beside(holder: str) -> dict[str, Any]:
    """The holder is at work before its pod is taken over, and goes on beside the neighbour's calls."""
    with node() as made:
        for name in ("a", "b"):
            made.add_pod(name, memory_mib=256 if name == "a" else 512)
        made.files.write(made.homes["a"], "pids.max", str(PIDS))
        run_in(made.files.folder(made.homes["b"]), sleep)
        begin_in_pod(made, "a", HOLDERS[holder])
        time.sleep(0.3)
        made.pids_per_call = 40
        made.start()
        made.send_orders()
        made.until(lambda report: uid_of("a") in report.sandboxes and not report.sandboxes[uid_of("b")].trouble)
        found = [
            in_pod(made, "b", partial(run, ["/bin/sh", "-c", "sleep 0.2; exit 0"], mem, 20.0))
            for mem in ("64Mi", "128Mi", None)
        ]
        refused = [each["reason"] for each in found if (each["outcome"], each["isolated"]) != ("exited", True)]
        made.files.write(made.homes["a"], "cgroup.kill", "1")
        while "populated 1" in made.files.read(made.homes["a"], "cgroup.events"):
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.01)
        share = min(_share(made) for _ in range(3))
        frozen_ms = [float(line) * 1e3 for line in FROZEN.read_text(encoding="ascii").split()]
        return {"refused": refused, "frozen_ms": max(frozen_ms, default=0.0), "share_afterwards": share}


def _share(made: Any) -> float:
    before_s = cpu_s(made)
    time.sleep(3)
    return (cpu_s(made) - before_s) / 3
