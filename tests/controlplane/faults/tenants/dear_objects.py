"""Dear objects: constraints by the thousand, services that nest hundreds of levels deep, gangs of absurd size."""

from collections.abc import Iterator
from threading import Event

from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import beside_canaries
from tests.controlplane.faults.truth import OURS
from tests.controlplane.faults.workload import Object, small_service
from tests.controlplane.manifests import pod

MANY = 3_000
LEVELS = 600
"""Levels of a map in a template; Python's readers end before 1,000, and so does this scenario's."""
TOLERATIONS = [{"key": f"k{n}", "operator": "Exists"} for n in range(MANY)]
SELECTOR = {f"k{n}": "v" for n in range(MANY)}
TERMS = [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}] * MANY
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}}}


def dear_objects(play: Play, rounds: int) -> None:
    """Pods with thousands of constraints, for Tonnage and for others; services and gangs that nobody can mean."""
    with beside_canaries(play) as tenant:
        ours = f"{OURS}/namespaces/{tenant.namespace}"
        for number in range(rounds):
            for what, path, obj in _objects(tenant.namespace, number, ours, tenant.pods):
                assert (answer := tenant.create(obj, path)).is_ok, answer.message
                play.injected[what] += 1
            Event().wait(4.0)


def _objects(namespace: str, number: int, ours: str, pods: str) -> Iterator[tuple[str, str, Object]]:
    """(what it is, path of the collection, object)."""
    for n in range(10):
        asks = {"gpus": 1, "schedulerName": "tonnage"}
        yield f"pods with {MANY:,} tolerations", pods, pod(f"tolerates-{number}-{n}", **asks, tolerations=TOLERATIONS)
        held = {"schedulerName": "nobody", "nodeSelector": SELECTOR, "affinity": AFFINITY}
        yield f"pods with {MANY:,} selectors × {MANY:,} terms", pods, pod(f"held-{number}-{n}", **held)
        asks |= {"nodeSelector": SELECTOR, "affinity": AFFINITY}
        yield f"pods with {MANY:,} selectors × {MANY:,} terms", pods, pod(f"waits-{number}-{n}", **asks)
        member = pod(f"absurd-{number}-{n}", gpus=2**50, schedulerName="tonnage")
        member["metadata"]["labels"] = {"tonnage.dev/gang": f"absurd-{number}"}
        yield "members of a gang with 2^50 GPUs each", pods, member
    gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": {"name": f"absurd-{number}"}}
    yield "gangs of them", f"{ours}/gangs", {**gang, "spec": {"minMembers": 10}}
    deep = small_service(namespace) | {"metadata": {"name": f"deep-{number}"}}
    levels: Object = {}
    for _ in range(LEVELS):
        levels = {"a": levels}
    deep["spec"]["template"]["spec"]["containers"][0]["more"] = levels
    yield f"services of {LEVELS} levels", f"{ours}/modelservices", deep
