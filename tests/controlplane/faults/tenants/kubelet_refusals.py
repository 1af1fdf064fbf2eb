"""Kubelets that refuse pods for devices which their nodes still offer."""

import json

from tests.controlplane.faults.stage import NotConvergedError, Play
from tests.controlplane.faults.tenants.tenant import beside_canaries
from tests.controlplane.faults.workload import Object
from tests.controlplane.manifests import GPU, pod
from tests.until import comes_true

LIARS, OFFERED = 4, 12
"""Nodes whose kubelet has 8 devices while they offer so many, as with devices that died while they are allocatable."""


def kubelet_refusals(play: Play, rounds: int) -> None:
    """Kubelets refuse pods for devices that their nodes still offer; the owner makes new ones, which go elsewhere."""
    with beside_canaries(play) as tenant:
        admin = play.stage.admin
        names = [each["metadata"]["name"] for each in play.stage.nodes if _is_in(each, "bind")][:LIARS]
        _offer(play, names, OFFERED)
        try:
            for number in range(rounds):
                replicas = LIARS * OFFERED
                for name in names:
                    admin("label", "node", name, f"round-{number}=liar", "--overwrite")
                others = [each["metadata"]["name"] for each in play.stage.nodes if _is_in(each, "bind")][
                    LIARS : 2 * LIARS
                ]
                for name in others:
                    admin("label", "node", name, f"round-{number}=honest", "--overwrite")
                assert (answer := tenant.create(_owned(f"owned-{number}", number, replicas),
                        f"/apis/apps/v1/namespaces/{tenant.namespace}/replicasets")).is_ok, answer.message  # fmt: skip
                label = f"owned-{number}"

                def run(label: str = label, replicas: int = replicas) -> bool:
                    mine = play.stage.witness.pods(tenant.namespace)
                    return (
                        sum(e.phase == "Running" and e.name.startswith(f"{tenant.namespace}/{label}") for e in mine)
                        == replicas
                    )

                if not comes_true(run, 60.0):
                    raise NotConvergedError(f"not all {replicas} replicas run")
            refused = {each for each in play.stage.witness.ledger.failed if each.startswith(f"{tenant.namespace}/")}
            play.injected["pods refused by kubelets"] += len(refused)
            most = LIARS * (OFFERED - 8)
            if not 0 < len(refused) <= most:
                raise AssertionError(f"{len(refused)} pods were refused; nodes that are held back lose {most} at most")
            # Which devices a kubelet chose is not known, and those past the eighth are none.
            admin.within(tenant.namespace)("delete", "replicasets,pods", "--all")
        finally:
            _offer(play, names, 8)


def _owned(name: str, number: int, replicas: int) -> Object:
    where = {"key": f"round-{number}", "operator": "Exists"}
    required = {"nodeSelectorTerms": [{"matchExpressions": [where]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    spec = pod(name, gpus=1, schedulerName="tonnage", affinity=affinity, terminationGracePeriodSeconds=0)["spec"]
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def _is_in(node: Object, pool: str) -> bool:
    labels = node["metadata"]["labels"]
    return bool(labels["pool"] == pool and labels["corner"] == "open")


def _offer(play: Play, names: list[str], gpus: int) -> None:
    status = {"status": {"allocatable": {GPU: str(gpus)}, "capacity": {GPU: str(gpus)}}}
    for name in names:
        play.stage.admin("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
