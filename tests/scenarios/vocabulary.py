"""Vocabulary of scenarios: a small cluster in short words or as manifests, and what is to be decided for it and why.

    rule: one sentence
    given:
      nodes:    [{name, type, gpus, cpu, memory, labels, taints, cordoned}]
      pods:     [{name, gpus or milli, cpu, memory, on, devices, priority, gang, types, selector, tolerations, movable,
                  count}]    # count: that many, called NAME-0, NAME-1, ...
      gangs:    [{name, min, within}]
      prices:   {TYPE: dollars per device and hour}    # of types that are not among the objects; 1 where not given
      files:    [paths of manifests, from the root of the repository]
      objects:  [Kubernetes objects as in any manifest]
      settings: {the operator's settings that differ from their defaults}
      half_started_s_ago: {GANG: seconds since it runs with too few members}
    expect:     # of the plan after the guard; each with its reason
      - placed:   {POD: NODE, TYPE or a list of them}    # a pod may be a pattern, NAME-*
        unplaced: {Pod/NAME or Gang/NAME: code of the reason}
        evicted:  [POD]
        scaled:   {SERVICE: {TYPE: instances}}
        planned:  {SERVICE: {TYPE: instances}}    # the mix, changed or not
        unserved: {SERVICE: code of the reason}
        refused:  {POD or SERVICE: code of the guard's reason}
        together: {LABEL: [PODS]}    # on nodes that share a value of the label
        actions:  how many
        because:  one sentence

Objects without a namespace are in `default`, and names in `expect` are short for those.
"""

from pathlib import Path
from typing import Any

import msgspec

from cluster.errors import ConfigError
from controller.objects.documents import read_documents

Object = dict[str, Any]


class _Words(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A mapping of the vocabulary; a word that it does not have is a mistake."""


class NodeWords(_Words):
    name: str
    type: str = ""
    """GPUType; its nodes carry the type's name as the label of their product."""
    gpus: int = 0
    cpu: str = "96"
    memory: str = "512Gi"
    labels: dict[str, str] = {}
    taints: list[Object] = []
    cordoned: bool = False


class PodWords(_Words):
    name: str
    gpus: int = 0
    milli: int = 0
    """Thousandths of one GPU, instead of `gpus`."""
    cpu: str = "1"
    memory: str = "1Gi"
    on: str = ""
    """The node where it runs; empty: it waits."""
    devices: list[int] = []
    """Those that it holds there; empty: the first that are free."""
    priority: int = 0
    gang: str = ""
    types: list[str] = []
    selector: dict[str, str] = {}
    tolerations: list[Object] = []
    movable: bool = False
    count: int = 1


class GangWords(_Words):
    name: str
    min: int
    within: str = ""


class Given(_Words):
    nodes: list[NodeWords] = []
    pods: list[PodWords] = []
    gangs: list[GangWords] = []
    prices: dict[str, float] = {}
    files: list[str] = []
    objects: list[Object] = []
    settings: Object = {}
    half_started_s_ago: dict[str, float] = {}


class Expected(_Words):
    because: str
    placed: dict[str, str | list[str]] = {}
    unplaced: dict[str, str] = {}
    evicted: list[str] | None = None
    scaled: dict[str, dict[str, int]] = {}
    planned: dict[str, dict[str, int]] = {}
    unserved: dict[str, str] = {}
    refused: dict[str, str] = {}
    together: dict[str, list[str]] = {}
    actions: int | None = None


class Scenario(_Words):
    rule: str
    given: Given
    expect: list[Expected]


def scenario_in(file: Path) -> Scenario:
    """Raises ConfigError when it is no YAML, msgspec.ValidationError at the first word that is not of the vocabulary.

    Read as manifests are, so that `on` is a word and a key that stands twice is a mistake.
    """
    documents, mistakes, _ = read_documents([str(file)])
    if mistakes:
        raise ConfigError(tuple(mistakes))
    (document,) = documents
    return msgspec.convert(document.content, Scenario)


def qualified(name: str) -> str:
    """`namespace/name` of a short name."""
    return name if "/" in name else f"default/{name}"


def manifests_of(given: Given) -> list[Object]:
    """The short words as Kubernetes objects, followed by the objects that are given as such."""
    types = {node.type for node in given.nodes if node.type}
    written = {each["metadata"]["name"] for each in given.objects if each.get("kind") == "GPUType"}
    made = [_gpu_type(name, given.prices.get(name, 1.0)) for name in sorted(types - written)] if not given.files else []
    return [
        *made,
        *map(_node, given.nodes),
        *map(_gang, given.gangs),
        *(each for pod in given.pods for each in _pods(pod)),
        *given.objects,
    ]


def _gpu_type(name: str, price: float) -> Object:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "GPUType",
        "metadata": {"name": name},
        "spec": {"nodeLabel": {"values": [name]}, "memory": "80Gi", "pricePerHour": {"onDemand": price}},
    }


def _node(node: NodeWords) -> Object:
    labels = {"kubernetes.io/hostname": node.name, **({"nvidia.com/gpu.product": node.type} if node.gpus else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels | node.labels},
        "spec": {"unschedulable": node.cordoned, "taints": node.taints},
        "status": {
            "allocatable": {
                "cpu": node.cpu,
                "memory": node.memory,
                **({"nvidia.com/gpu": str(node.gpus)} if node.gpus else {}),
            }
        },
    }


def _gang(gang: GangWords) -> Object:
    topology = {"topology": {"within": gang.within}} if gang.within else {}
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": gang.name},
        "spec": {"minMembers": gang.min, **topology},
    }


def _pods(pod: PodWords) -> list[Object]:
    names = [pod.name] if pod.count == 1 else [f"{pod.name}-{n}" for n in range(pod.count)]
    return [_pod(name, pod) for name in names]


def _pod(name: str, pod: PodWords) -> Object:
    annotations = {
        "tonnage.dev/gpu-milli": str(pod.milli) if pod.milli else "",
        "tonnage.dev/devices": ",".join(map(str, pod.devices)),
        "tonnage.dev/gpu-types": ",".join(pod.types),
        "tonnage.dev/movable": "true" if pod.movable else "",
    }
    resources = {
        "requests": {"cpu": pod.cpu, "memory": pod.memory},
        **({"limits": {"nvidia.com/gpu": pod.gpus}} if pod.gpus else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"tonnage.dev/gang": pod.gang} if pod.gang else {},
            "annotations": {key: value for key, value in annotations.items() if value},
        },
        "spec": {
            "containers": [{"name": "c", "resources": resources}],
            "priority": pod.priority,
            "nodeSelector": pod.selector,
            "tolerations": pod.tolerations,
            **({"nodeName": pod.on} if pod.on else {}),
        },
        "status": {"phase": "Running" if pod.on else "Pending"},
    }
