"""Flood: pending pods that fit nowhere, each of a shape of its own."""

from threading import Event

from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import beside_canaries
from tests.controlplane.faults.workload import Object
from tests.controlplane.manifests import pod
from tests.controlplane.operators import create_all


def flood(play: Play, rounds: int) -> None:
    """Pending pods, each of a shape of its own and larger than any other; half ask more than a plan looks at."""
    with beside_canaries(play) as tenant:
        made = [_odd(f"odd-{n}", tenant.namespace, n) for n in range(500 * rounds)]
        create_all(play.stage.plane.kubeconfig, tenant.pods, made)
        play.injected["pods that fit nowhere, each of a shape of its own"] += len(made)
        Event().wait(15.0)


def _odd(name: str, namespace: str, number: int) -> Object:
    terms = [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": [f"v{number}-{t}-{v}" for v in range(40)]}]}
        for t in range((12, 30)[number % 2])
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    made = pod(name, gpus=9, affinity={"nodeAffinity": required}, schedulerName="tonnage")
    made["metadata"]["namespace"] = namespace
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{number + 1}m"}
    return made
