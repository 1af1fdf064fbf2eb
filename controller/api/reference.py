"""The reference of all kinds in Markdown, made from their models; `python -m controller.api.reference` prints it."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from controller.api import labels
from controller.api.conditions import ACCEPTED, DEGRADED, PLANNED, READY
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.labels import CATEGORY
from controller.api.pruning import model_in
from controller.api.quantity import duration

Schema = dict[str, Any]

HEAD = """\
# Manifests

<!-- Made by `make crds` from controller/api; a test fails when it is out of date. -->

`tonnage plan -f` reads YAML and JSON: files, folders (every `.yaml`, `.yml` and `.json` file in them at any depth) and
`-`, which is standard input. A file may hold many documents, and lists as `kubectl get -o yaml` prints them.

- Kinds of `tonnage.dev/v1alpha1` are read strictly: a field that does not exist, a number in quotes, NaN, a key that
  appears twice are mistakes.
- `Node` and `Pod` of `v1` are read as far as placement needs them; the rest of them is left alone.
- Objects of other kinds are passed over with a note on standard error.
- All mistakes are told at once, each with file, document, line, object and field. Then nothing is planned and the exit
  status is 2.

Quantities are written as in Kubernetes (`500m`, `1.5`, `16Gi`, `1e3`), lengths of time with their unit (`40ms`, `30s`,
`1m30s`). Plain words are text: `no`, `on`, `1:30` and dates mean nothing else. A large fleet is read several times
faster from JSON than from YAML.
"""

CLUSTER = """\
## On a cluster

`kubectl apply --server-side -f deploy/crds` makes the kinds known. The API server then holds objects to the fields and
rules below, as `tonnage plan -f` holds files; a field that does not exist is refused, or dropped with a warning where
the client asks for that. `kubectl explain` says of each field what it means, with its unit.

| kind | in kubectl | in a namespace |
|---|---|---|
{names}
`kubectl get {category}` shows objects of all kinds. Statuses carry conditions, each with the `observedGeneration` that
it was said of, so `kubectl wait --for=condition=Ready modelservice/chat` waits for the change that was made last:

| condition | holds when |
|---|---|
| `{accepted}` | the object is right by itself and beside the objects that it names |
| `{planned}` | the last plan could give it what it asks for |
| `{ready}` | the cluster is as that plan wants it |
| `{degraded}` | it works, but less well than was asked |

`kubectl scale gang train --replicas=16` sets `spec.minMembers`. A ModelService has no scale: how many instances it has,
and of which types, follows from its demand.
"""

NODE = {
    "`status.allocatable`, else `status.capacity`": (
        "`cpu`, `memory`, and whole GPUs, 16 at most, as `nvidia.com/gpu` or `amd.com/gpu`"
    ),
    "`metadata.labels`": "which GPUType it has (`spec.nodeLabel` there), selectors, topology of gangs",
    "`spec.taints`": "kept away unless tolerated; `PreferNoSchedule` keeps nobody away",
    "`spec.unschedulable`, condition `Ready`": (
        "what runs there stays, nothing new starts; a node without conditions is ready"
    ),
}
POD = {
    "`spec.containers`, `spec.initContainers`, `spec.overhead`, `spec.resources`": (
        "what it asks, counted as Kubernetes counts it: init containers, sidecars and pod-level requests included; a "
        "limit without a request is a request"
    ),
    "`spec.nodeSelector`, required node affinity": (
        "where it may run; conditions on the label of a GPUType count as that type"
    ),
    "`spec.tolerations`, `spec.priority`": (
        "as in Kubernetes; a `priorityClassName` without `priority` counts as 0, with a note, unless it is one of the "
        "system's"
    ),
    "`spec.nodeName`": "it runs there",
    "`status.phase`": "`Succeeded` and `Failed` hold nothing",
    f"label `{labels.GANG_LABEL}`": "the Gang that it is a member of, in the same namespace",
    f"label `{labels.SERVICE_LABEL}`": (
        "the ModelService that it is an instance of, in the same namespace; an instance names its one GPUType"
    ),
    f'annotation `{labels.GPU_MILLI_ANNOTATION}: "300"`': (
        "a share of one GPU, in thousandths, instead of whole devices"
    ),
    f'annotation `{labels.GPU_TYPES_ANNOTATION}: "a100,h100"`': "the GPUTypes that it may run on",
    f'annotation `{labels.DEVICES_ANNOTATION}: "0,3"`': (
        "which devices a running pod holds. Where it is missing, the fullest devices that fit are assumed, the largest "
        "ask first, with a note"
    ),
    f'annotation `{labels.MOVABLE_ANNOTATION}: "true"`': (
        'it may be stopped and started elsewhere to make room. Instances of a service may unless they say `"false"`; '
        'other pods may not unless they say `"true"`'
    ),
}
FOOT = """\
Pod affinity, topology spread, volumes, host ports, the limit of pods per node and resources other than CPU, memory and
GPUs are not heeded. A note says so for pending pods that require pod affinity, spread or such a resource.
"""


def reference(kinds: Iterable[Kind] = KINDS) -> str:
    """The whole page."""
    own = own_kinds(kinds)
    parts = [HEAD, _cluster(own), *(_kind(kind) for kind in own), _core("Node", NODE), _core("Pod", POD), FOOT]
    return "\n".join(parts)


def _cluster(own: Iterable[Kind]) -> str:
    rows = (
        f"| {kind.name} | {', '.join(f'`{name}`' for name in (kind.plural, *kind.short_names))} | "
        f"{'yes' if kind.is_namespaced else 'no'} |\n"
        for kind in own
    )
    named = {"accepted": ACCEPTED, "planned": PLANNED, "ready": READY, "degraded": DEGRADED}
    return CLUSTER.format(names="".join(rows), category=CATEGORY, **named)


def _core(kind: str, read: Mapping[str, str]) -> str:
    rows = "".join(f"| {what} | {meaning} |\n" for what, meaning in read.items())
    return f"## {kind} (v1)\n\n| what is read | what it means |\n|---|---|\n{rows}"


def _kind(kind: Kind) -> str:
    doc = " ".join((kind.model.__doc__ or "").split())
    scope = "In a namespace." if kind.is_namespaced else "Not in a namespace."
    head = f"## {kind.name}\n\n{doc.removesuffix(' Not namespaced.')} {scope}\n\n"
    table = "| field | type | default | meaning |\n|---|---|---|---|\n"
    rows = "".join(f"{row}\n" for row in _rows(_part(kind, "spec"), "spec"))
    return head + table + rows + _rules(kind) + (_status(kind) if kind.has_status else "")


def _status(kind: Kind) -> str:
    rows = "".join(f"{row}\n" for row in _status_rows(_part(kind, "status")))
    return "\nWhat Tonnage writes back:\n\n| field | type | meaning |\n|---|---|---|\n" + rows


def _rules(kind: Kind) -> str:
    """What must hold between the fields, as the one who broke it is told."""
    if not kind.rules:
        return ""
    lines = (f"- `{'.'.join(rule.at).replace('.[]', '[]')}`: {rule.message}\n" for rule in kind.rules if rule.at)
    whole = (f"- {rule.message}\n" for rule in kind.rules if not rule.at)
    return "\nWhat is refused besides, and what is said of it:\n\n" + "".join((*lines, *whole))


def _part(kind: Kind, name: str) -> type[BaseModel]:
    part = kind.model.model_fields[name].annotation
    assert isinstance(part, type) and issubclass(part, BaseModel)  # noqa: S101, PT018  # parts are models
    return part


def _status_rows(status: type[BaseModel]) -> Iterator[str]:
    """Rows without defaults: nobody but Tonnage fills these in."""
    for row in _rows(status, "status"):
        field, kind, _, meaning = row.removeprefix("| ").removesuffix(" |").split(" | ")
        yield f"| {field} | {kind} | {meaning} |"


def _rows(model: type[BaseModel], path: str) -> Iterator[str]:
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    for field in model.model_fields.values():
        name = f"{path}.{field.alias}"
        described = _resolved(schema["properties"][str(field.alias)], definitions)
        default = "required" if field.alias in required else _default(field, described)
        yield f"| `{name}` | {_type(described, definitions)} | {default} | {field.description or ''} |"
        inner = model_in(field.annotation)
        if inner is not None:
            yield from _rows(inner, f"{name}[]" if described.get("type") == "array" else name)


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    """The schema behind a reference, and behind `X or null`, which in a manifest is a field that is left out."""
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) == 1:
        schema = {**options[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return schema


def _type(schema: Schema, definitions: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(_resolved(schema['items'], definitions), definitions)}{_bounds(schema)}"
    if kind == "string" and "ms" in schema.get("pattern", ""):
        return "length of time"
    if schema.get("format") == "date-time":
        return "instant"
    names = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "object": "object"}
    return names[str(kind)] + _bounds(schema)


def _bounds(schema: Schema) -> str:
    """`, from 1 to 16`; the bounds of text say little to a reader."""
    low, high = schema.get("minimum"), schema.get("maximum")
    parts = []
    if "exclusiveMinimum" in schema:
        parts.append(f"above {schema['exclusiveMinimum']:g}")
    if low is not None:
        parts.append(f"from {low:,}" if abs(low) < 2**31 else "")
    if high is not None:
        parts.append(f"to {high:,}" if abs(high) < 1e9 else "")
    if "exclusiveMaximum" in schema:
        parts.append(f"to below {schema['exclusiveMaximum']:g}")
    if schema.get("minItems"):
        parts.append("not empty")
    words = " ".join(part for part in parts if part)
    return f", {words}" if words else ""


def _default(field: FieldInfo, described: Schema) -> str:
    match field.default:
        case None | () | BaseModel():
            return ""
        case bool():
            return f"`{str(field.default).lower()}`"
        case "":
            return ""
        case Decimal() | str() | int():
            return f"`{field.default}`"
        case float():
            is_time = described.get("type") == "string"
            return f"`{duration(field.default)}`" if is_time else f"`{field.default:g}`"
    return ""


if __name__ == "__main__":
    sys.stdout.write(reference())
