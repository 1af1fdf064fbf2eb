"""Long annotations: of 250 kB, on pods, gangs and services, changed again and again."""

from collections.abc import Iterator
from threading import Event

from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import beside_canaries
from tests.controlplane.faults.truth import OURS
from tests.controlplane.faults.workload import PLACEMENT_MODES, SHARE, Object, placed, small_service
from tests.controlplane.manifests import pod

LONG_TEXT = "x" * 250_000
"""Value of an annotation; the API server takes 256 KiB of them on one object."""


def long_annotations(play: Play, rounds: int) -> None:
    """Annotations of 250 kB on pods, gangs and services, changed again and again."""
    with beside_canaries(play) as tenant:
        ours, paths = f"{OURS}/namespaces/{tenant.namespace}", list[str]()
        for number in range(20 * rounds):
            tried = pod(f"types-{number}", annotations={**SHARE, "tonnage.dev/gpu-types": LONG_TEXT},
                        **PLACEMENT_MODES["gate"])  # fmt: skip
            tenant.tries("GPU types of 250 kB", tenant.create(tried))
            for path, obj in _long_objects(tenant.namespace, number, ours):
                assert (answer := tenant.create(obj, path)).is_ok, answer.message
                paths.append(f"{path}/{obj['metadata']['name']}")
        play.injected["objects with an annotation of 250 kB"] += len(paths)
        for path in paths:
            changed = {"metadata": {"annotations": {"example.com/long": LONG_TEXT[::-1][4:]}}}
            assert (answer := tenant.patch(path, changed)).is_ok, answer.message
            play.injected["changes of such an annotation"] += 1
        Event().wait(4.0)


def _long_objects(namespace: str, number: int, ours: str) -> Iterator[tuple[str, Object]]:
    """(path of the collection, object): a pod and a gang, and now and then a service."""
    metadata = {"name": f"long-{number}", "annotations": {"example.com/long": LONG_TEXT}}
    held = placed(metadata["name"], namespace, ("bind", "gate")[number % 2])
    held["metadata"] |= metadata
    yield f"/api/v1/namespaces/{namespace}/pods", held
    gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "spec": {"minMembers": 2}}
    yield f"{ours}/gangs", {**gang, "metadata": metadata}
    if number % 10 == 0:  # each is a plan of its own, which is not what is tried here
        yield f"{ours}/modelservices", small_service(namespace) | {"metadata": metadata}
