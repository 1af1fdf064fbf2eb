"""Nulls: one in every optional field of every kind, and of a service's template."""

from collections.abc import Iterator, Mapping
from threading import Event
from typing import Any

from controller.api.kinds import OWN_KINDS
from tests.builders.crd_cases import FULL, having, schema_of
from tests.controlplane.faults.stage import Play
from tests.controlplane.faults.tenants.tenant import TRUE_WITHIN_S, beside_canaries
from tests.controlplane.faults.truth import OURS, lasting_untruths, untrue
from tests.controlplane.faults.workload import Object, small_service
from tests.controlplane.plain_api import PlainApi

AT_ONCE = 8
"""Objects with nulls at a time: how many services there are is not what is tried."""


def nulls(play: Play, rounds: int) -> None:
    """A null in every optional field of every kind, one object each, and in those of a service's template."""
    with beside_canaries(play) as tenant:
        for kind in OWN_KINDS:
            inside = f"/namespaces/{tenant.namespace}" if kind.is_namespaced else ""
            # What belongs to the cluster is written by its administrators, who make mistakes, too.
            api = tenant.api if kind.is_namespaced else play.api()
            made = list(with_nulls(kind.name, tenant.namespace))
            if kind.name == "ModelService":
                made += [_with_template(tenant.namespace, each) for each in templates_with_nulls(play.api())]
            for first in range(0, len(made), AT_ONCE):
                _try_nulls(play, api, f"{OURS}{inside}/{kind.plural}", made[first : first + AT_ONCE], tenant.namespace)
        Event().wait(4.0)


def _try_nulls(play: Play, api: PlainApi, path: str, objects: list[Object], namespace: str) -> None:
    """Creates these, waits until what is said of them is true, and deletes them."""
    for number, obj in enumerate(objects):
        obj["metadata"]["name"] = f"null-{number}"
        play.injected["nulls taken" if api.send("POST", path, obj).is_ok else "nulls refused"] += 1
    admin = play.api()
    play.untrue += lasting_untruths(lambda: untrue(admin, [namespace]), TRUE_WITHIN_S)
    for number in range(len(objects)):
        api.send("DELETE", f"{path}/null-{number}")


def _with_template(namespace: str, template: Object) -> Object:
    made = small_service(namespace)
    made["spec"]["template"] = template
    return made


def with_nulls(kind: str, namespace: str) -> Iterator[Object]:
    """Full objects of a kind, each with a null in one optional field of its spec."""
    full = {**FULL[kind], "metadata": {"name": "full"}}
    full.pop("status", None)
    if kind == "ModelService":
        full = small_service(namespace) | {"spec": {**FULL[kind]["spec"], **small_service(namespace)["spec"]}}
    full["metadata"].pop("namespace", None)
    for path in optional_fields(schema_of(kind)["properties"]["spec"], "spec", full["spec"]):
        yield having(full, path, None)


def optional_fields(schema: Mapping[str, Any], path: str, value: Any) -> Iterator[str]:
    """Paths of all fields that a schema does not require, where an object has what holds them."""
    if isinstance(value, dict) and "properties" in schema:
        for name, field in schema["properties"].items():
            here = f"{path}.{name}"
            if name not in schema.get("required", ()):
                yield here
            if name in value:
                yield from optional_fields(field, here, value[name])
    elif value and (held := schema.get("items") or schema.get("additionalProperties")):
        inner = value[0] if isinstance(value, list) else next(iter(value.values()))
        yield from optional_fields(held, f"{path}[]", inner)


def templates_with_nulls(api: PlainApi) -> Iterator[Object]:
    """Pod templates with a null in each field that Kubernetes has for a pod and for a container."""
    parts = api.send("GET", "/openapi/v3/api/v1").body["components"]["schemas"]
    fields = {name: parts[f"io.k8s.api.core.v1.{name}"]["properties"] for name in ("PodSpec", "Container")}
    pod_nulls = dict.fromkeys(fields["PodSpec"])
    container = dict.fromkeys(fields["Container"]) | {"name": "server", "image": "example.com/none"}
    yield {"metadata": None, "spec": {**pod_nulls, "containers": [container]}}
    term = {"matchExpressions": None, "matchFields": None}
    for required in (None, {"nodeSelectorTerms": None}, {"nodeSelectorTerms": [term]}, {"nodeSelectorTerms": [None]}):
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}, "podAffinity": None}
        yield {
            "metadata": {"labels": None, "annotations": None},
            "spec": {"containers": [container], "affinity": affinity},
        }
    yield {"spec": {"containers": [None]}}
