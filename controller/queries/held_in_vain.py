"""Devices that are paid for and of no use, because the pods that hold them do not run. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cluster.snapshot import Snapshot
from cluster.workloads import WHOLE_GPU_MILLI
from controller.api import notation, structs
from controller.objects.manifests import Manifests
from controller.objects.read import Read
from controller.queries.advice import Advice

LONG_S = 900.0
"""Seconds after which a pod that holds devices should run. Chosen: large images and models take some minutes."""


def held_in_vain(manifests: Manifests, now: Snapshot, at_s: float) -> Iterator[Advice]:
    """Devices whose holders do not run, and have not for long.

    now: the snapshot of these manifests. at_s: seconds since the epoch.
    """
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
            "held",
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
