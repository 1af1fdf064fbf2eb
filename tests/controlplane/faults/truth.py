"""Statuses beside what the cluster shows: what Tonnage says of services and gangs that is not so."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.controlplane.plain_api import PlainApi
from tests.until import comes_true

OURS = "/apis/tonnage.dev/v1alpha1"


def untrue(api: PlainApi, namespaces: Iterable[str]) -> list[str]:
    """Statements of these namespaces' statuses that are not so now."""
    return [each for namespace in namespaces for each in _untrue_in(api, namespace)]


def lasting_untruths(look: Callable[[], list[str]], within_s: float) -> list[str]:
    """What is still found at the last look; the first at which nothing is ends it.

    A look reads pods before statuses, so that one of an instance that starts in between is no lie.
    """
    found: list[str] = []

    def is_all_true() -> bool:
        found[:] = look()
        return not found

    comes_true(is_all_true, within_s, pause_s=0.5)
    return found


def _untrue_in(api: PlainApi, namespace: str) -> Iterator[str]:
    pods = api.send("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    deployments = api.send("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments").body["items"]
    running, members, wanted = Counter[str](), Counter[str](), Counter[str]()
    for pod in pods:
        labels = pod["metadata"].get("labels", {})
        if pod["status"].get("phase") == "Running":
            running[labels.get("tonnage.dev/service", "")] += 1
            members[labels.get("tonnage.dev/gang", "")] += 1
    for each in deployments:
        wanted[each["metadata"]["labels"].get("tonnage.dev/service", "")] += each["spec"]["replicas"]
    for service in api.send("GET", f"{OURS}/namespaces/{namespace}/modelservices").body["items"]:
        name = service["metadata"]["name"]
        about, status = f"ModelService/{namespace}/{name}", service.get("status", {})
        yield from _of_generation(about, service)
        if "template" in service["spec"]:
            yield from _differs(about, status, "wantedInstances", wanted[name])
            yield from _differs(about, status, "runningInstances", running[name])
        is_whole = _is_ready(status) and status.get("wantedInstances") != status.get("runningInstances")
        if is_whole:
            yield f"{about} is Ready with {status.get('runningInstances')} of {status.get('wantedInstances')} instances"
    for gang in api.send("GET", f"{OURS}/namespaces/{namespace}/gangs").body["items"]:
        name = gang["metadata"]["name"]
        about, status = f"Gang/{namespace}/{name}", gang.get("status", {})
        yield from _of_generation(about, gang)
        yield from _differs(about, status, "running", members[name])
        if _is_ready(status) != (members[name] >= gang["spec"]["minMembers"]):
            yield f"{about} says Ready={_is_ready(status)} with {members[name]} members of {gang['spec']['minMembers']}"


def _of_generation(about: str, obj: Mapping[str, Any]) -> Iterator[str]:
    said, is_now = obj.get("status", {}).get("observedGeneration"), obj["metadata"]["generation"]
    if said != is_now:
        yield f"{about} has a status of generation {said}, and is of {is_now}"


def _differs(about: str, status: Mapping[str, Any], field: str, is_so: int) -> Iterator[str]:
    if status.get(field, 0) != is_so:
        yield f"{about} says {field} {status.get(field, 0)}, and it is {is_so}"


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
