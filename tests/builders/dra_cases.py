"""Random small cases of allocation by ResourceClaims on one node, as objects of resource.k8s.io/v1.

Devices are whole GPUs, parts of GPUs that share counters, and GPUs with several allocations; some are tainted, some are
held already. Claims want some of them in the ways of the published API.
"""

from random import Random
from typing import Any

from tests.builders.dra import DRIVER

NODE, CLASS = "n", "gpu.nvidia.com"
PART_SIZES = {"small": (1, 1), "medium": (2, 2), "large": (4, 3)}
"""Eighths of the memory and sevenths of the multiprocessors."""
TAINTS = [{"key": "broken", "effect": "NoSchedule"}, {"key": "broken", "value": "ecc", "effect": "NoExecute"}]
TOLERATIONS = [
    {"operator": "Exists"},
    {"key": "broken", "operator": "Equal", "value": "ecc"},
    {"key": "broken", "operator": "Exists", "effect": "NoSchedule"},
]
POLICIES = [
    None,
    {"default": "10Gi", "validRange": {"min": "5Gi", "step": "5Gi"}},
    {"default": "10Gi", "validRange": {"min": "10Gi", "max": "30Gi"}},
    {"default": "20Gi", "validValues": ["10Gi", "20Gi", "40Gi"]},
]


def case(seed: int) -> dict[str, Any]:
    """`node`, `slices`, `classes`, allocated claims (`held`) and those to be allocated (`wanted`)."""
    random = Random(seed)  # noqa: S311 - seeded on purpose
    sets, devices = [], []
    for gpu in range(random.randint(1, 3)):
        made = random.choice((_whole, _parted, _parted, _shared))(random, f"gpu-{gpu}")
        sets += made[0]
        devices += made[1]
    lists = [{"devices": devices}, *([{"sharedCounters": sets}] if sets else [])]
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": len(lists)}
    spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool}
    expression = f"device.driver == '{DRIVER}'"
    return {
        "node": {"metadata": {"name": NODE}},
        "slices": [{"metadata": {"name": f"s{n}"}, "spec": {**spec, **each}} for n, each in enumerate(lists)],
        "classes": [{"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}],
        "held": [_held(random, n, each) for n, each in enumerate(devices) if random.random() < 0.1],
        "wanted": [_wanted(random, n) for n in range(random.choice((1, 1, 2)))],
    }


def _device(random: Random, name: str, size: str, memory: int, **more: Any) -> dict[str, Any]:
    attributes = {"size": {"string": size}, "numa": {"int": random.randint(0, 1)}}
    taints = {"taints": [random.choice(TAINTS)]} if random.random() < 0.15 else {}
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": f"{memory}Gi"}},
        **taints,
        **more,
    }


def _whole(random: Random, name: str) -> tuple[list[Any], list[Any]]:
    return [], [_device(random, name, "whole", 80)]


def _shared(random: Random, name: str) -> tuple[list[Any], list[Any]]:
    device = _device(random, name, "shared", 80, allowMultipleAllocations=True)
    if (policy := random.choice(POLICIES)) is not None:
        device["capacity"]["memory"]["requestPolicy"] = policy
    if random.random() < 0.6:
        return [], [device]
    uses = {"consumesCounters": [{"counterSet": f"{name}-set", "counters": {"modes": {"value": "1"}}}]}
    alone = _device(random, f"{name}-alone", "whole", 80, **uses)
    return [{"name": f"{name}-set", "counters": {"modes": {"value": "1"}}}], [{**device, **uses}, alone]


def _parted(random: Random, name: str) -> tuple[list[Any], list[Any]]:
    def counters(eighths: int, sevenths: int, first: int) -> dict[str, Any]:
        slices = {f"slice-{n}": {"value": "1"} for n in range(first, first + eighths)}
        return {"memory": {"value": f"{10 * eighths}Gi"}, "multiprocessors": {"value": str(14 * sevenths)}, **slices}

    def uses(*amounts: int) -> list[Any]:
        return [{"counterSet": f"{name}-set", "counters": counters(*amounts)}]

    devices = [_device(random, name, "whole", 80, consumesCounters=uses(8, 7, 0))]
    for _ in range(random.randint(1, 5)):
        size = random.choice(list(PART_SIZES))
        eighths, sevenths = PART_SIZES[size]
        first = random.randrange(0, 8, eighths)
        part = f"{name}-{size}-{first}"
        if part not in {each["name"] for each in devices}:
            devices.append(_device(random, part, size, 10 * eighths, consumesCounters=uses(eighths, sevenths, first)))
    devices.sort(key=lambda each: each["name"])  # as Tonnage tries them: the first choice is then the same
    return [{"name": f"{name}-set", "counters": counters(8, 7, 0)}], devices


def _held(random: Random, number: int, device: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"request": "r", "driver": DRIVER, "pool": NODE, "device": device["name"]}
    if device.get("allowMultipleAllocations"):
        result |= {"shareID": f"share-{number}", "consumedCapacity": {"memory": f"{random.choice((10, 20, 60))}Gi"}}
    fields = [{"key": "metadata.name", "operator": "In", "values": [NODE]}]
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    meta = {"name": f"held-{number}", "namespace": "ns", "uid": f"uid-held-{number}"}
    return {"metadata": meta, "status": {"allocation": allocation}}


def _wanted(random: Random, number: int) -> dict[str, Any]:
    requests = [_request(random, f"r{n}") for n in range(random.randint(1, 2))]
    if len(requests) == 1 and random.random() < 0.15:
        requests[0]["exactly"] = {**requests[0]["exactly"], "allocationMode": "All"}
        del requests[0]["exactly"]["count"]
    constraints = []
    if random.random() < 0.3:
        kind = random.choice(("matchAttribute", "distinctAttribute"))
        of = {"requests": ["r0"]} if random.random() < 0.4 else {}
        if kind == "distinctAttribute":  # of a request for two, kube-scheduler 1.36 compares the last alone
            for each in requests:
                each["exactly"]["count"] = 1
                each["exactly"]["allocationMode"] = "ExactCount"
        constraints.append({kind: f"{DRIVER}/{random.choice(('numa', 'numa', 'size', 'none'))}", **of})
    meta = {"name": f"wanted-{number}", "namespace": "ns", "uid": f"uid-wanted-{number}"}
    return {"metadata": meta, "spec": {"devices": {"requests": requests, "constraints": constraints}}}


def _request(random: Random, name: str) -> dict[str, Any]:
    exactly: dict[str, Any] = {
        "deviceClassName": CLASS,
        "allocationMode": "ExactCount",
        "count": random.choice((1, 1, 2)),
    }
    if random.random() < 0.7:
        sizes = random.sample(["whole", "shared", "shared", *PART_SIZES], random.randint(1, 2))
        expression = " || ".join(f"device.attributes['{DRIVER}'].size == '{size}'" for size in sizes)
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    if random.random() < 0.3:
        exactly["tolerations"] = [random.choice(TOLERATIONS)]
    if random.random() < 0.5:
        asked = random.choice(("memory",) * 5 + ("rays",))
        exactly["capacity"] = {"requests": {asked: f"{random.choice((1, 10, 15, 50))}Gi"}}
    return {"name": name, "exactly": exactly}
