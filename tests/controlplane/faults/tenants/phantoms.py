"""Phantoms: pods that nobody schedules, and that claim devices by annotations."""

from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import beside_canaries
from tests.controlplane.faults.workload import PLACEMENT_MODES, SHARE, Object, placed, share
from tests.controlplane.manifests import pod
from tests.controlplane.operators import create_all

MARKS = {"tonnage.dev/node": "n000", "tonnage.dev/devices": "0", "tonnage.dev/epoch": "1"}


def phantoms(play: Play, rounds: int) -> None:
    """Pods that nobody schedules reserve devices by annotations, under a quota of no GPU at all."""
    with beside_canaries(play) as tenant:
        tenant.quota({"requests.nvidia.com/gpu": "0", "tonnage.dev/gpu-milli": "0"})
        gated: Mapping[str, Any] = PLACEMENT_MODES["gate"]
        nobody: Mapping[str, Any] = {"schedulerName": "nobody"}
        forms: Mapping[str, Callable[[str], Object]] = {
            "marks on pods of nobody": lambda name: pod(name, annotations={**MARKS, **SHARE}, **nobody),
            "marks on gated pods": lambda name: pod(name, annotations={**MARKS, **SHARE}, **gated),
            "shares of pods of nobody": lambda name: pod(name, annotations=SHARE, **nobody),
            "whole GPUs past the quota": lambda name: placed(name, tenant.namespace, "bind", gpus=8),
        }
        for number in range(100 * rounds):
            for what, form in forms.items():
                tenant.tries(what, tenant.create(form(f"phantom-{number}")))
        shares = [share(f"share-{n}", tenant.namespace) for n in range(100 * rounds)]
        create_all(play.stage.plane.kubeconfig, tenant.pods, shares)
        play.injected["shares past the quota"] += len(shares)
        Event().wait(6.0)
        if held := [each.name for each in play.stage.witness.pods(tenant.namespace) if each.node]:
            raise AssertionError(f"{len(held)} pods past the quota of their namespace were placed")
