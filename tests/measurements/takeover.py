"""Time from the SIGKILL of a leader until the next pod is bound, beside many pods, on a real API server.

`python -m tests.measurements.takeover --pods 20000` makes that many bound pods on nodes that nobody simulates, and
kills the leader three times. The new one lists everything anew before its first plan.
"""

import argparse
import json
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from controller.kube.leader_election import LeaseTimes
from tests.controlplane.installation import Site, account_of, site_with
from tests.controlplane.manifests import GPU, pod
from tests.controlplane.operators import OperatorProcess, create_all, operator, until
from tests.controlplane.plain_api import PlainApi

GPUS = 8
POOLS = [{"placer": "bind"}]


def node(number: int) -> dict[str, Any]:
    has = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: str(GPUS)}
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "labels": labels},
            "status": {"allocatable": has, "capacity": has}}  # fmt: skip


def leads(process: OperatorProcess) -> bool:
    return any(line.get("event") == "leadership taken" for line in list(process.lines))


def filled(site: Site, pods: int) -> None:
    """Bound pods on all nodes but the last, which has room for what is measured."""
    many = [pod(f"p{n}", gpus=1, schedulerName="somebody", nodeName=f"n{n // GPUS}") for n in range(pods)]
    create_all(site.server.kubeconfig, "/api/v1/nodes", [node(n) for n in range(pods // GPUS)])
    create_all(site.server.kubeconfig, "/api/v1/namespaces/default/pods", many)


def killed(site: Site, number: int, folder: Path) -> dict[str, float]:
    """Seconds from the kill until the other leads, and until its first bind."""
    api = PlainApi(site.server.kubeconfig)
    with ExitStack() as stack:
        made = []
        for name in ("one", "two"):
            (folder / f"{name}{number}").mkdir()
            made.append(stack.enter_context(
                operator(account_of(site), folder / f"{name}{number}", pools=POOLS, fenced=True,
                         managed_namespaces="all")))  # fmt: skip
        until(lambda: any(map(leads, made)), "one of them leads")
        old, new = made if leads(made[0]) else reversed(made)
        until(lambda: new.probe("/readyz") == 200, "the other stands by")
        time.sleep(5 * LeaseTimes().retry_s)
        old.process.kill()
        killed_at_s = time.monotonic()
        api.send("POST", "/api/v1/namespaces/default/pods", pod(f"next-{number}", gpus=1, schedulerName="tonnage"))
        path, led_at_s = f"/api/v1/namespaces/default/pods/next-{number}", 0.0
        while "nodeName" not in api.send("GET", path).body["spec"]:
            led_at_s = led_at_s or (time.monotonic() if leads(new) else 0.0)
            if time.monotonic() - killed_at_s > 120:
                raise RuntimeError(f"not bound: {new.lines[-5:]}")
            time.sleep(0.02)
        bound_at_s = time.monotonic()
        api.send("DELETE", path, {"gracePeriodSeconds": 0})
    api.close()
    return {"leads_s": round(led_at_s - killed_at_s, 2), "bound_s": round(bound_at_s - killed_at_s, 2)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pods", type=int, default=20_000)
    given = options.parse_args()
    with site_with([node(given.pods // GPUS)]) as site, TemporaryDirectory() as folder:
        site.kubectl("apply", "-f", "examples/gpu-types.yaml")
        began_s = time.monotonic()
        filled(site, given.pods)
        print(json.dumps({"pods": given.pods, "made_in_s": round(time.monotonic() - began_s)}), flush=True)  # noqa: T201
        for number in range(3):
            print(json.dumps(killed(site, number, Path(folder))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
