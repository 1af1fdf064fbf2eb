"""Random volumes: claims that are bound, that wait for their first pod, or that can never bind, and nodes' limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.controlplane.oracle.random_pods import HOSTNAME, NAMESPACES, RACK, ZONE, Object

DRIVER = "csi.example.com"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


@dataclass(frozen=True, slots=True)
class Volumes:
    """Classes, volumes and claims of a cluster."""

    classes: tuple[Object, ...]
    volumes: tuple[Object, ...]
    """Those with a `claimRef` are given the claim's uid before they are created."""
    claims: tuple[Object, ...]
    limits: tuple[Object, ...]
    """CSINodes."""
    uses: Mapping[str, Mapping[str, Sequence[str]]]
    """Names of claims by the way in which they bind, then by namespace."""


def random_volumes(chance: Random, nodes: Sequence[str]) -> Volumes:
    classes, volumes, claims = _classes(chance), list[Object](), list[Object]()
    uses: dict[str, dict[str, list[str]]] = {}

    def claim(how: str, namespace: str, name: str, **spec: Any) -> Object:
        made = _claim(namespace, name, **spec)
        claims.append(made)
        uses.setdefault(how, {}).setdefault(namespace, []).append(name)
        return made

    def bound(how: str, namespace: str, name: str, mode: str, driver: str = "") -> None:
        volume = f"pv-{namespace}-{name}"
        made = claim(how, namespace, name, accessModes=[mode], storageClassName="", volumeName=volume)
        made["metadata"]["annotations"] = {BIND_COMPLETED: "yes"}
        pv = _volume(chance, volume, nodes, modes=[mode], driver=driver)
        pv["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        volumes.append(pv)

    for namespace in NAMESPACES:
        bound("bound", namespace, "bound-0", "ReadWriteOnce")
        bound("bound", namespace, "bound-1", chance.choice(("ReadWriteMany", "ReadOnlyMany")))
        bound("alone", namespace, "alone-0", "ReadWriteOncePod")
        for number in range(3):
            bound("limited", namespace, f"limited-{number}", "ReadWriteMany", driver=DRIVER)
        size = chance.choice(("1Gi", "5Gi", "20Gi"))
        selected = {"selector": {"matchLabels": {"speed": "high"}}} if chance.random() < 0.25 else {}
        claim("static", namespace, "static-0", storageClassName="wait-static", storage=size, **selected)
        claim("made", namespace, "made-0", storageClassName=chance.choice(("wait-made", "wait-made-in-zone")))
        claim("immediate", namespace, "immediate-0", storageClassName="at-once")
        broken = claim(
            "broken", namespace, "broken-0", storageClassName=chance.choice(("no-such-class", "wait-nobody"))
        )
        if chance.random() < 0.4:  # bound to a volume that is gone
            broken["spec"] |= {"volumeName": "no-such-volume", "storageClassName": ""}
            broken["metadata"]["annotations"] = {BIND_COMPLETED: "yes"}
    for number in range(chance.randint(0, 4)):
        pv = _volume(chance, f"free-{number}", nodes, modes=["ReadWriteOnce"])
        pv["spec"] |= {
            "storageClassName": chance.choice(("wait-static", "wait-static", "other")),
            "capacity": {"storage": chance.choice(("2Gi", "10Gi", "50Gi"))},
        }
        if chance.random() < 0.4:
            pv["metadata"]["labels"] = {**pv["metadata"].get("labels", {}), "speed": "high"}
        volumes.append(pv)
    limits = tuple(_limit(node, chance.choice((0, 1, 2))) for node in nodes if chance.random() < 0.5)
    return Volumes(classes, tuple(volumes), tuple(claims), limits, uses)


def _classes(chance: Random) -> tuple[Object, ...]:
    zones = chance.sample(("z0", "z1", "z2"), chance.choice((1, 2)))
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    return (
        _class("wait-static", "kubernetes.io/no-provisioner", waits=True),
        _class("wait-nobody", "kubernetes.io/no-provisioner", waits=True),
        _class("wait-made", DRIVER, waits=True),
        _class("wait-made-in-zone", DRIVER, waits=True) | {"allowedTopologies": allowed},
        _class("at-once", DRIVER, waits=False),
    )


def _class(name: str, provisioner: str, *, waits: bool) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
    }


def _claim(namespace: str, name: str, *, storage: str = "1Gi", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **spec},
    }


def _volume(chance: Random, name: str, nodes: Sequence[str], *, modes: Sequence[str], driver: str = "") -> Object:
    """A volume that some nodes reach: by its own affinity, by the labels of its zone, or all."""
    source: Object = {"hostPath": {"path": f"/mnt/disks/{name}"}}
    if driver:
        source = {"csi": {"driver": driver, "volumeHandle": name}}
    spec: Object = {"capacity": {"storage": "10Gi"}, "accessModes": list(modes), **source}
    labels: dict[str, str] = {}
    match chance.choices(("all", "zones", "racks", "node", "labels", "old labels"), (35, 20, 10, 10, 15, 10))[0]:
        case "zones":
            spec["nodeAffinity"] = _reached_from(ZONE, chance.sample(("z0", "z1", "z2"), chance.choice((1, 2))))
        case "racks":
            spec["nodeAffinity"] = _reached_from(RACK, chance.sample(("r0", "r1", "r2", "r3"), 2))
        case "node":
            spec["nodeAffinity"] = _reached_from(HOSTNAME, [chance.choice(nodes)])
        case "labels":
            labels = {ZONE: chance.choice(("z0", "z1", "z0__z2"))}
        case "old labels":
            labels = {"failure-domain.beta.kubernetes.io/zone": chance.choice(("z0", "z1"))}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def _reached_from(key: str, values: Sequence[str]) -> Object:
    expression = {"key": key, "operator": "In", "values": list(values)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _limit(node: str, count: int) -> Object:
    allocatable = {"allocatable": {"count": count}} if count else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": node},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": node, "topologyKeys": [], **allocatable}]},
    }
