"""Markdown reference of all kinds, made from their models; `python -m controller.api.reference` prints it."""

import sys
from collections.abc import Iterable, Iterator, Mapping

from controller.api import labels
from controller.api.conditions import CONDITIONS
from controller.api.crds import Schema, structural
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.labels import CATEGORY
from controller.api.notation import DURATION_PATTERN

HEAD = """\
# Manifests

<!-- Made by `make crds` from controller/api; a test fails when it is out of date. -->

`tonnage plan -f` reads YAML and JSON: files, folders (every `.yaml`, `.yml` and `.json` file in them at any depth) and
`-`, which is standard input. A file may hold many documents, and lists as `kubectl get -o yaml` prints them.

- Kinds of `tonnage.dev/v1alpha1` are validated strictly: unknown fields, numbers in quotes, NaN and duplicate keys are
  errors.
- Of `Node` and `Pod` of `v1`, only the fields that placement needs are read; all others are ignored.
- Of `PriorityClass`, the value and the preemption policy are resolved into pods, as admission does. Of `ResourceQuota`,
  hard, used and scopes: pods past one have no place, and services are planned within what it leaves. Of `Namespace`,
  the labels.
- Of `PodDisruptionBudget`, how many of its pods may be stopped: by its status, or else by its specification.
- Of `PersistentVolumeClaim`, `PersistentVolume`, `StorageClass` and `CSINode`, what decides where pods with volumes may
  run. Claims of a StatefulSet's templates and of ephemeral volumes are made. A claim without `status.phase` is one that
  is yet to be applied, and is planned as it will be bound; a pod whose claim is in no file has no place.
- An object with `metadata.generateName` and no name gets a name from its place in the files.
- Objects of other kinds are skipped with a note on standard error. One that asks for accelerators counts as a workload
  without a place: in the plan, in its JSON, and in the exit status of `--fail-on-unplaced`. So does a suspended one.
- All errors are reported together, each with file, document, line, object and field. Nothing is planned then, and the
  exit status is 2. What a cluster has, a Node, a running Pod or a Pod with a `uid`, costs itself alone where Tonnage
  does not understand it: a note names it, and a pod that waits counts as not placed.

Quantities are written as in Kubernetes (`500m`, `1.5`, `16Gi`, `1e3`), durations with their unit (`40ms`, `30s`,
`1m30s`). Unquoted words are text: `no`, `on`, `1:30` and dates have no special meaning. A large fleet is read several
times faster from JSON than from YAML.
"""

CLUSTER = """\
## On a cluster

`kubectl apply --server-side -f deploy/crds` installs the kinds. The API server then validates objects by the fields and
rules below, as `tonnage plan -f` validates files. Unknown fields are refused, or dropped with a warning if the client
asks for that. `kubectl explain` shows the meaning and unit of each field.

| kind | in kubectl | namespaced |
|---|---|---|
{names}
`kubectl get {category}` shows objects of all kinds. Every status has the `observedGeneration` that it describes, and
`conditions` (type, status, reason, message, `lastTransitionTime`), each with an `observedGeneration` of its own, so
`kubectl wait --for=condition=Ready modelservice/chat` waits for the latest change:

| condition | holds when |
|---|---|
{conditions}

`kubectl scale gang train --replicas=16` sets `spec.minMembers`. A ModelService has no scale subresource: the number of
its instances and their GPU types follow from its demand.
"""

COMMON = ("observedGeneration", "conditions")
"""Fields of every status."""

NODE = {
    "`status.allocatable`, else `status.capacity`": (
        "`cpu`, `memory`, and up to 16 whole GPUs as `nvidia.com/gpu` or `amd.com/gpu`"
    ),
    "`metadata.labels`": "its GPUType (by that object's `spec.nodeLabel`), node selectors, topology of gangs",
    "`spec.taints`": "pods that do not tolerate them are not placed there; `PreferNoSchedule` is ignored",
    "`spec.unschedulable`, condition `Ready`": (
        "running pods stay, no new ones are placed there; a node without conditions counts as ready"
    ),
}
POD = {
    "`spec.containers`, `spec.initContainers`, `spec.overhead`, `spec.resources`": (
        "its requests, counted as in Kubernetes, with init containers, sidecars and pod-level requests; a limit "
        "without a request counts as the request"
    ),
    "`spec.nodeSelector`, required node affinity": (
        "nodes on which it may run; a condition on the label of a GPUType selects that type"
    ),
    "`spec.volumes`": "where its claims are bound, or can be; each is attached, where its driver limits their number",
    "`spec.tolerations`, `spec.priority`": (
        "as in Kubernetes; a `priorityClassName` without `priority` has that of the PriorityClass in the files, or "
        "else, except for the system's own classes, 0 with a note"
    ),
    "`spec.preemptionPolicy: Never`": "no pod is stopped for it, whatever their priorities",
    "`spec.nodeName`": "the node on which it runs",
    "`status.phase`": "`Succeeded` and `Failed` pods use no resources",
    f"label `{labels.GANG_LABEL}`": "the Gang of which it is a member, in the same namespace",
    f"label `{labels.SERVICE_LABEL}`": (
        "the ModelService of which it is an instance, in the same namespace; an instance names exactly one GPUType"
    ),
    f'annotation `{labels.GPU_MILLI_ANNOTATION}: "300"`': (
        "fraction of one GPU, in thousandths, instead of whole devices"
    ),
    f'annotation `{labels.GPU_TYPES_ANNOTATION}: "a100,h100"`': "the GPUTypes on which it may run",
    f'annotation `{labels.DEVICES_ANNOTATION}: "0,3"`': (
        "indices of a running pod's devices. If it is missing, the fullest devices that fit are assumed, largest "
        "requests first, with a note"
    ),
    f'annotation `{labels.MOVABLE_ANNOTATION}: "true"`': (
        "whether the pod may be stopped and started elsewhere to make room. Default: `true` for instances of a "
        "service, `false` for other pods"
    ),
    f'annotation `{labels.DO_NOT_DISRUPT_ANNOTATION}: "true"`': (
        "the pod is not stopped while it runs, whatever for; also Karpenter's `karpenter.sh/do-not-disrupt` and, "
        'with "false", `cluster-autoscaler.kubernetes.io/safe-to-evict`'
    ),
    f"annotation `{labels.CHOSEN_NODE_ANNOTATION}`, `spec.schedulerName`": (
        "that Tonnage placed a running pod. Others are kube-scheduler's, which alone stops them, but on nodes of "
        "pools that Tonnage owns"
    ),
}
FOOT = "Everything else of a pod that decides where it may run is on the page [filters.md](filters.md).\n"


def reference(kinds: Iterable[Kind] = KINDS) -> str:
    """Markdown of the whole page."""
    own = own_kinds(kinds)
    rows = (
        f"| {kind.name} | {', '.join(f'`{name}`' for name in (kind.plural, *kind.short_names))} | "
        f"{'yes' if kind.is_namespaced else 'no'} |\n"
        for kind in own
    )
    conditions = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in CONDITIONS.items())
    parts = [
        HEAD,
        CLUSTER.format(names="".join(rows), category=CATEGORY, conditions=conditions),
        *(_kind(kind) for kind in own),
        _core("Node", NODE),
        _core("Pod", POD),
        FOOT,
    ]
    return "\n".join(parts)


def _core(kind: str, read: Mapping[str, str]) -> str:
    rows = "".join(f"| {what} | {meaning} |\n" for what, meaning in read.items())
    return f"## {kind} (v1)\n\n| field read | meaning |\n|---|---|\n{rows}"


def _kind(kind: Kind) -> str:
    doc = " ".join((kind.model.__doc__ or "").split())
    scope = "Namespaced." if kind.is_namespaced else "Not namespaced."
    head = f"## {kind.name}\n\n{doc.removesuffix(' Not namespaced.')} {scope}\n\n`spec`:\n\n"
    parts = structural(kind.model)["properties"]
    fields = "".join(f"{line}\n" for line in _fields(parts["spec"]))
    status = "".join(f"{line}\n" for line in _fields(parts["status"], written=True)) if kind.has_status else ""
    return head + fields + _rules(kind) + (f"\n`status`, written by Tonnage:\n\n{status}" if status else "")


def _rules(kind: Kind) -> str:
    """Rules between fields, with the messages that violations get."""
    if not kind.rules:
        return ""
    lines = (f"- `{'.'.join(rule.at).replace('.[]', '[]')}`: {rule.message}\n" for rule in kind.rules if rule.at)
    whole = (f"- {rule.message}\n" for rule in kind.rules if not rule.at)
    return "\nRules between fields, with the messages of violations:\n\n" + "".join((*lines, *whole))


def _fields(schema: Schema, indent: str = "", *, written: bool = False) -> Iterator[str]:
    """A line for each field, those of an object below it, without what every status has.

    written: of a status, which nobody but Tonnage writes and so has no defaults.
    """
    for name, field in schema.get("properties", {}).items():
        if name in COMMON:
            continue
        default = "required" if name in schema.get("required", ()) else _default(field)
        kind = ", ".join(filter(None, (_type(field), "" if written else default)))
        yield f"{indent}- `{name}` ({kind}): {field.get('description', '')}".rstrip(" :")
        yield from _fields(field.get("items", field), f"{indent}  ", written=written)


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema['items'])}{_bounds(schema)}"
    if schema.get("pattern") == DURATION_PATTERN:
        return "duration"
    if schema.get("format") == "date-time":
        return "timestamp"
    names = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "object": "object"}
    return names[str(kind)] + _bounds(schema)


def _bounds(schema: Schema) -> str:
    """Bounds as text, such as `, from 1 to 16`. Lengths of text are left out."""
    low, high = schema.get("minimum"), schema.get("maximum")
    parts = []
    if low is not None and abs(low) < 2**31:
        parts.append(f"above {low:g}" if schema.get("exclusiveMinimum") else f"from {low:,}")
    if high is not None and abs(high) < 1e9:
        parts.append(f"to below {high:g}" if schema.get("exclusiveMaximum") else f"to {high:,}")
    if schema.get("minItems"):
        parts.append("not empty")
    return f", {' '.join(parts)}" if parts else ""


def _default(schema: Schema) -> str:
    match schema.get("default"):
        case None | dict():
            return ""
        case bool() as default:
            return f"default `{str(default).lower()}`"
        case float() as default:
            return f"default `{default:g}`"
        case default:
            return f"default `{default}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
