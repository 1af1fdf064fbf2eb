"""Devices that are paid for and of no use: nodes that offer fewer than they have, and holders that do not run. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.snapshot import Snapshot
from cluster.workloads import MAX_GPUS_PER_NODE, WHOLE_GPU_MILLI
from controller.api import notation, structs
from controller.objects.manifests import Manifests
from controller.objects.read import Read
from controller.queries.advice import Advice

COUNT_LABEL, PRESENT_LABEL = "nvidia.com/gpu.count", "nvidia.com/gpu.present"
"""Labels by which GPU feature discovery says what a node has, whatever its device plugin offers."""
DEVICE = re.compile(r"gpu|/mig-|gaudi|tpu|neuron|npu")
"""Names of resources that are accelerators, of any vendor."""
LONG_S = 900.0
"""Seconds after which a pod that holds devices should run. Chosen: large images and models take some minutes."""


def useless_devices(manifests: Manifests, now: Snapshot, at_s: float) -> tuple[Advice, ...]:
    """Advice on devices that nobody can use. now: the snapshot of these manifests. at_s: seconds since the epoch."""
    return (*_not_offered(manifests, now), *_held_in_vain(manifests, now, at_s))


def _not_offered(manifests: Manifests, now: Snapshot) -> Iterator[Advice]:
    """Devices of nodes whose plugin or driver offers fewer than the node has.

    Where pods have claims, a node without any such resource may offer its devices as ResourceSlices.
    """
    has_claims = any(each.object.spec.resource_claims for each in manifests.pods)
    price_of = {
        (each.object.spec.node_label.key, value): each.object.spec.price_per_hour.on_demand
        for each in manifests.gpu_types
        for value in each.object.spec.node_label.values
    }
    found: list[tuple[float, str, int]] = []
    for read in manifests.nodes:
        labels = read.object.metadata.labels
        price = next((price_of[label] for label in labels.items() if label in price_of), None)
        is_marked = price is not None or labels.get(PRESENT_LABEL) == "true"
        if missing := _missing(read.object, labels, is_marked=is_marked, may_be_in_slices=has_claims):
            found.append(((price or 0.0) * min(missing, MAX_GPUS_PER_NODE), read.name, missing))
    if found:
        found.sort(key=lambda each: (-each[0], each[1]))
        count, nodes = sum(missing for *_, missing in found), len(found)
        waiting = sum(now.pods.shapes[number].gpus > 0 for number in now.pods.shape[now.pods.pending].tolist())
        while_words = f", while {waiting} pods wait for some" if waiting else ""
        yield Advice(
            "useless",
            f"{count} or more devices of {nodes} node{'' if nodes == 1 else 's'} are not offered to pods{while_words}: "
            "a device failed, or the driver or device plugin does not work",
            "look at the driver's and the plugin's pods on each node; repair it, or give it back",
            sum(dollars for dollars, *_ in found),
            tuple(name for _, name, _ in found),
        )


def _missing(node: structs.Node, labels: Mapping[str, str], *, is_marked: bool, may_be_in_slices: bool) -> int:
    """Devices that a node has and does not offer; 1 where it is only known to have some."""
    try:
        have, offered = (
            {name: notation.whole(notation.quantity(written)) for name, written in each.items() if DEVICE.search(name)}
            for each in (node.status.capacity, {**node.status.capacity, **node.status.allocatable})
        )
    except ValueError:
        return 0
    if any(have.values()) or any(offered.values()):
        return sum(max(0, count - offered.get(name, 0)) for name, count in have.items())
    if may_be_in_slices:
        return 0
    count = labels.get(COUNT_LABEL, "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 5 else int(is_marked)


def _held_in_vain(manifests: Manifests, now: Snapshot, at_s: float) -> Iterator[Advice]:
    """Devices whose holders do not run, and have not for long."""
    prices = [*(each.price_per_hour for each in now.gpu_types), 0.0]
    found: list[tuple[float, str, str, float]] = []
    for read in manifests.pods:
        row = now.pods.names.row(read.name)
        node = -1 if row is None else int(now.pods.node[row])
        if row is None or node < 0 or not (milli := now.pods.shapes[int(now.pods.shape[row])].total_gpu_milli):
            continue
        why, since = _not_running(read)
        since_s = notation.instant_or_none(since)
        if why and (since_s is None or at_s - since_s >= LONG_S):
            devices = milli / WHOLE_GPU_MILLI
            dollars = devices * prices[int(now.nodes.gpu_type[node])]
            found.append((dollars, f"{read.name} on {now.nodes.names[node]}", why, devices))
    if found:
        found.sort(key=lambda each: (-each[0], each[1]))
        reasons = ", ".join(f"{count} {why}" for why, count in Counter(why for *_, why, _ in found).most_common(3))
        pods = f"{len(found)} pod{'s hold' if len(found) > 1 else ' holds'}"
        yield Advice(
            "useless",
            f"{pods} {sum(devices for *_, devices in found):.4g} GPUs without running: {reasons}",
            "kubectl describe pod says why; mend or delete it, so that its devices serve others",
            sum(dollars for dollars, *_ in found),
            tuple(name for _, name, *_ in found),
        )


def _not_running(read: Read[structs.Pod]) -> tuple[str, str | None]:
    """Why a bound pod does not run, and since when; ("", None) for one that does."""
    # Times and what containers wait for are read here alone, so that they cost nothing where pods are watched.
    content: Any = read.document.content if read.document is not None else {"metadata": {}}
    status: Any = content.get("status") or {}
    created = content["metadata"].get("creationTimestamp")
    if (deleted := read.object.metadata.deletion_timestamp) is not None:
        return "being deleted", deleted
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waits = [str((((each.get("state") or {}).get("waiting")) or {}).get("reason") or "") for each in containers]
    reason = next((each for each in waits if each not in ("", "ContainerCreating", "PodInitializing")), "")
    if reason:
        return reason, created
    if created is not None and status.get("phase") != "Running":  # of unknown age, it may just have been bound
        return f"phase {status.get('phase')}", created
    at = {each["type"]: each.get("lastTransitionTime") for each in status.get("conditions") or ()
          if each.get("status") == "False"}  # fmt: skip
    return ("not ready", at["Ready"] or created) if "Ready" in at else ("", None)
