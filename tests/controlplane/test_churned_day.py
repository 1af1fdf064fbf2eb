"""A fleet that a day of churn has fragmented, on a real API server: what waits before pods move, and after."""

import random
from functools import partial
from pathlib import Path
from typing import Any

from simulator.controlplane.server import ControlPlane
from tests.controlplane.auditor import audit
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod_spec
from tests.controlplane.operators import create_all, operator, until
from tests.controlplane.test_moves import COUNT, OURS, PER_NODE, PODS, kubectl, labelled, running, server

__all__ = ["kubectl", "server"]  # fixtures
HOURS, USD = 24, 1.5
"""Steps of the day, and dollars per device and hour."""
OPERATOR: dict[str, Any] = {"pools": [{"placer": "bind"}], "interval_s": 1.0}


def come(kubectl: Kubectl, hour: int, pods: int, gpus: int) -> None:
    """Work of an hour: so many movable pods of one owner."""
    labels = {"app": "work", "hour": str(hour)}
    template = {"metadata": {"labels": labels, "annotations": {"tonnage.dev/movable": "true"}},
                "spec": pod_spec(gpus=gpus, **OURS)}  # fmt: skip
    spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
    kubectl("create", "-f", "-", stdin={"apiVersion": "apps/v1", "kind": "ReplicaSet",
                                        "metadata": {"name": f"hour-{hour}"}, "spec": spec})  # fmt: skip


def holds(kubectl: Kubectl, devices: int) -> bool:
    """Whether pods with a node hold so many devices together."""
    pods = kubectl.get("pods")["items"]
    limits = (each["spec"]["containers"][0]["resources"]["limits"] for each in pods if each["spec"].get("nodeName"))
    return sum(int(each["nvidia.com/gpu"]) for each in limits) == devices


def test_a_fleet_fragmented_by_a_day_of_churn_runs_what_waits_within_the_limit_of_moves(
    server: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Work comes each hour and goes in part; then whole nodes are asked for, three quarters of what is free in all."""
    rng, asked = random.Random(7), 0  # noqa: S311
    for folder in ("day", "moves"):
        (tmp_path / folder).mkdir()
    with operator(server.kubeconfig, tmp_path / "day", make_room=False, **OPERATOR):
        for hour in range(HOURS):
            gpus, pods = rng.choice((1, 1, 2)), rng.randint(8, 24)
            if asked + pods * gpus <= COUNT * PER_NODE:
                come(kubectl, hour, pods, gpus)
                asked += pods * gpus
            until(partial(holds, kubectl, asked), f"hour {hour}: all runs")
            if hour < HOURS - 1:
                work = [each for each in kubectl.get("replicasets")["items"] if each["spec"]["replicas"] > 1]
                for each in rng.sample(work, min(3, len(work))):
                    kept = each["spec"]["replicas"] // 2
                    one = each["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
                    asked -= (each["spec"]["replicas"] - kept) * int(one)
                    kubectl("scale", "replicaset", each["metadata"]["name"], f"--replicas={kept}")
                until(partial(holds, kubectl, asked), f"hour {hour}: a part has gone")
        before = set(running(kubectl, "work"))
        wide = (COUNT * PER_NODE - asked) * 3 // 4 // PER_NODE
        create_all(server.kubeconfig, PODS, [labelled("wide", n, PER_NODE) for n in range(wide)])
        until(lambda: len(running(kubectl, "wide")) > 0, "those run for which there are nodes")
        seen = [len(running(kubectl, "wide")) for _ in range(10)]
        ran = seen[-1]
    idle_usd = USD * (COUNT * PER_NODE - asked - ran * PER_NODE)
    with operator(server.kubeconfig, tmp_path / "moves", **OPERATOR):
        until(lambda: len(running(kubectl, "wide")) == wide, "all wide pods run")
        until(lambda: len(running(kubectl, "work")) == len(before), "all that moved run")
    moved = len(before - running(kubectl, "work").keys())
    after_usd = USD * (COUNT * PER_NODE - asked - wide * PER_NODE)
    print(f"{asked} devices of work: {ran} → {wide} of {wide} wide pods run, idle ${idle_usd:.0f} → ${after_usd:.0f} "  # noqa: T201
          f"an hour, {moved} of {len(before)} pods moved")  # fmt: skip
    assert ran < wide, "the day has fragmented the fleet"
    assert moved <= len(before) // 4, "at most a quarter of a namespace within an hour"
    found: Any = audit(kubectl)
    assert found.is_clean, found
