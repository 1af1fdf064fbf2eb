"""Verification of a batch plan, pod by pod, from the snapshot alone, without code of any planner."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cluster.snapshot import Snapshot

Seat = tuple[int, int, int]
"""(row of the pod, row of the node, bit mask of devices)."""


def wrongs(snapshot: Snapshot, seats: Sequence[Seat]) -> list[str]:
    """Violations of a plan; empty for a feasible one.

    Only for fleets without node selectors and taints, which the cases of this benchmark do not have.
    """
    return [*_wrong_seats(snapshot, seats), *_wrong_nodes(snapshot, seats), *_wrong_gangs(snapshot, seats)]


def usd_per_hour(snapshot: Snapshot, seats: Sequence[Seat]) -> float:
    """Cost of the nodes that a plan uses on an idle fleet, US dollars per hour.

    A node costs its GPUs at their price, or 3 cents per core and 0.4 cents per GiB, whichever is more.
    """
    usd = 0.0
    for node in {node for _, node, _ in seats}:
        gpu_type = int(snapshot.nodes.gpu_type[node])
        gpus = int(snapshot.nodes.gpus[node])
        by_gpus = gpus * snapshot.gpu_types[gpu_type].price_per_hour if gpu_type >= 0 else 0.0
        cores, gib = int(snapshot.nodes.cpu_milli[node]) / 1000, int(snapshot.nodes.memory_bytes[node]) / 2**30
        usd += max(by_gpus, 0.03 * cores + 0.004 * gib)
    return usd


def _wrong_seats(snapshot: Snapshot, seats: Sequence[Seat]) -> Iterator[str]:
    seen = set()
    for pod, node, devices in seats:
        shape = snapshot.pods.shapes[int(snapshot.pods.shape[pod])]
        gpu_type = int(snapshot.nodes.gpu_type[node])
        if pod in seen:
            yield f"pod {pod} sits twice"
        seen.add(pod)
        if snapshot.pods.node[pod] >= 0:
            yield f"pod {pod} ran already"
        if shape.gpus and shape.gpu_types and snapshot.gpu_types[gpu_type].name not in shape.gpu_types:
            yield f"pod {pod} may not use node {node}"
        if bin(devices).count("1") != shape.gpus or devices >> int(snapshot.nodes.gpus[node]):
            yield f"pod {pod} asked {shape.gpus} devices of node {node} and got {devices:b}"


def _wrong_nodes(snapshot: Snapshot, seats: Sequence[Seat]) -> Iterator[str]:
    pods = snapshot.pods
    running = [(p, int(pods.node[p]), int(pods.devices[p])) for p in range(len(pods)) if pods.node[p] >= 0]
    cpu: dict[int, int] = defaultdict(int)
    memory: dict[int, int] = defaultdict(int)
    gpu: dict[tuple[int, int], int] = defaultdict(int)
    for pod, node, devices in [*running, *seats]:
        shape = pods.shapes[int(pods.shape[pod])]
        cpu[node] += shape.cpu_milli
        memory[node] += shape.memory_bytes
        for device in range(devices.bit_length()):
            if devices >> device & 1:
                gpu[node, device] += shape.gpu_milli
    for node in cpu:
        if cpu[node] > snapshot.nodes.cpu_milli[node] or memory[node] > snapshot.nodes.memory_bytes[node]:
            yield f"node {node} has too little CPU or memory"
    for (node, device), milli in gpu.items():
        if milli > 1000:
            yield f"device {device} of node {node} is {milli} thousandths full"


def _wrong_gangs(snapshot: Snapshot, seats: Sequence[Seat]) -> Iterator[str]:
    pods = snapshot.pods
    where: dict[int, list[int]] = defaultdict(list)
    for pod in range(len(pods)):
        if pods.gang[pod] >= 0 and pods.node[pod] >= 0:
            where[int(pods.gang[pod])].append(int(pods.node[pod]))
    for pod, node, _ in seats:
        if pods.gang[pod] >= 0:
            where[int(pods.gang[pod])].append(node)
    for number, nodes in where.items():
        gang = snapshot.gangs[number]
        if len(nodes) < gang.min_members:
            yield f"{gang.name} starts with {len(nodes)} of {gang.min_members} members"
        if gang.within and len({snapshot.nodes.labels[node].get(gang.within) for node in nodes}) > 1:
            yield f"{gang.name} is spread over several {gang.within}"
