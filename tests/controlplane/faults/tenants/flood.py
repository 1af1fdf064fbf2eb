"""Flood: pending pods that fit nowhere, each of a shape of its own, made by a tenant as fast as a few clients can."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event

from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import TENANT, Tenant, beside_canaries
from tests.controlplane.faults.workload import Object
from tests.controlplane.manifests import pod
from tests.controlplane.plain_api import PlainApi

CLIENTS = 8
"""More make the API server itself late on two cores: with 32 it takes 8 s for them, and canaries wait to be created."""


def flood(play: Play, rounds: int) -> None:
    """Pending pods, each of a shape of its own and larger than any other; half ask more than a plan looks at."""
    with beside_canaries(play) as tenant:
        made = [_odd(f"odd-{n}", tenant.namespace, n) for n in range(500 * rounds)]
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda some: _create(tenant, some), (made[n::CLIENTS] for n in range(CLIENTS))))
        play.injected["pods that fit nowhere, each of a shape of its own"] += len(made)
        Event().wait(15.0)


def _create(tenant: Tenant, made: list[Object]) -> None:
    with closing(PlainApi(tenant.play.stage.plane.kubeconfig, TENANT, "system:authenticated")) as api:
        for each in made:
            answer = api.send("POST", tenant.pods, each)
            assert answer.is_ok, answer.message


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
