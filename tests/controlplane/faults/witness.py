"""Witness of faults: follows every pod and node by its own watch and checks every state in between, not only the last.

It trusts no component and shares no code with what places pods (see `tests/controlplane/auditor.py`).
"""

import http.client
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Any

from tests.controlplane.auditor import DEVICES, GPU
from tests.controlplane.plain_api import PlainApi

ENDED = ("Succeeded", "Failed")
WATCH_FOR_S = 5
BREAKS = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True)
class Pod:
    """What matters of a pod."""

    uid: str
    name: str
    """`namespace/name`."""
    node: str
    devices: tuple[str, ...]
    gpus: int
    phase: str
    gang: str
    epoch: str
    is_owned: bool
    """Whether an owner recreates it."""

    @property
    def holds(self) -> bool:
        """Its devices are taken, also while it is being deleted."""
        return bool(self.node) and self.phase not in ENDED


def pod_from(obj: dict[str, Any]) -> Pod:
    meta, spec = obj["metadata"], obj["spec"]
    annotations = meta.get("annotations", {})
    requests = (container.get("resources", {}).get("limits", {}) for container in spec["containers"])
    return Pod(
        uid=meta["uid"],
        name=f"{meta['namespace']}/{meta['name']}",
        node=spec.get("nodeName", ""),
        devices=tuple(part for part in annotations.get(DEVICES, "").split(",") if part),
        gpus=sum(int(each.get(GPU, 0)) for each in requests),
        phase=obj["status"].get("phase", "Pending"),
        gang=meta.get("labels", {}).get("tonnage.dev/gang", ""),
        epoch=annotations.get("tonnage.dev/epoch", ""),
        is_owned=bool(meta.get("ownerReferences")),
    )


@dataclass
class Ledger:
    """All pods as one watch reported them, in its order, with every violation at any instant. Pure."""

    capacity: dict[str, int] = field(default_factory=dict)
    """GPUs by node, also of nodes that have gone."""
    nodes: set[str] = field(default_factory=set)
    pods: dict[str, Pod] = field(default_factory=dict)
    """By uid."""
    gone: dict[str, Pod] = field(default_factory=dict)
    """Pods that were deleted, as they were last, by uid."""
    double: set[str] = field(default_factory=set)
    """Devices that two pods held at one instant, nodes that were given more pods than they have devices."""
    failed: set[str] = field(default_factory=set)
    """Pods that a node turned away."""
    judged: int = 0
    """States that were looked at."""
    _held: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _taken: Counter[str] = field(default_factory=Counter)

    def put(self, pod: Pod) -> None:
        self.judged += 1
        before = self.pods.get(pod.uid)
        if before is not None:
            self._free(before)
        self.pods[pod.uid] = pod
        if pod.phase == "Failed":
            self.failed.add(pod.name)
        if pod.holds:
            self._hold(pod)

    def remove(self, uid: str) -> None:
        if pod := self.pods.pop(uid, None):
            self._free(pod)
            self.gone[uid] = pod

    def _hold(self, pod: Pod) -> None:
        for device in pod.devices:
            holders = self._held.setdefault((pod.node, device), set())
            holders.add(pod.uid)
            if len(holders) > 1:
                names = sorted(self.pods[uid].name for uid in holders)
                self.double.add(f"{pod.node} device {device}: {', '.join(names)}")
        self._taken[pod.node] += pod.gpus
        if self._taken[pod.node] > self.capacity.get(pod.node, self._taken[pod.node]):
            self.double.add(f"{pod.node}: {self._taken[pod.node]} GPUs for {self.capacity[pod.node]}, with {pod.name}")

    def _free(self, pod: Pod) -> None:
        if not pod.holds:
            return
        for device in pod.devices:
            self._held.get((pod.node, device), set()).discard(pod.uid)
        self._taken[pod.node] -= pod.gpus


class Witness:
    """Keeps a ledger by watches of pods and nodes, in two threads."""

    def __init__(self, kubeconfig: Path) -> None:
        self.ledger = Ledger()
        self.placed_at_s: dict[str, float] = {}
        """Instant at which each pod was first seen with a node, monotonic, by `namespace/name`."""
        self.lock = RLock()
        self._kubeconfig = kubeconfig
        self._over = Event()
        self._synced = {"pods": Event(), "nodes": Event()}
        self._threads = [Thread(target=self._follow, args=(what,), daemon=True) for what in self._synced]

    def __enter__(self) -> "Witness":
        for thread in self._threads:
            thread.start()
        assert all(event.wait(60) for event in self._synced.values()), "the witness sees nothing"
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * WATCH_FOR_S)

    def pods(self, namespace: str) -> list[Pod]:
        with self.lock:
            return [pod for pod in self.ledger.pods.values() if pod.name.startswith(f"{namespace}/")]

    def gone(self, namespace: str) -> list[Pod]:
        with self.lock:
            return [pod for pod in self.ledger.gone.values() if pod.name.startswith(f"{namespace}/")]

    def _follow(self, what: str) -> None:
        while not self._over.is_set():
            with suppress(*BREAKS):
                self._list_and_watch(what)
            self._over.wait(0.1)

    def _list_and_watch(self, what: str) -> None:
        path = f"/api/v1/{what}"
        with closing(PlainApi(self._kubeconfig)) as api:
            listed = api.send("GET", path)
        if not listed.is_ok:
            return
        with self.lock:
            self._take_list(what, listed.body["items"])
        self._synced[what].set()
        version = listed.body["metadata"]["resourceVersion"]
        while not self._over.is_set():
            # One watch after the other from the newest version: nothing between two is coalesced.
            with closing(self._events(path, version)) as events:
                for event in events:
                    if event["type"] == "ERROR":
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        with self.lock:
                            self._take(what, event["type"], event["object"])

    def _events(self, path: str, version: str) -> Iterator[dict[str, Any]]:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        # Asked for a few seconds at a time, so that its thread sees when it is over.
        query["timeoutSeconds"] = str(WATCH_FOR_S)
        with closing(PlainApi(self._kubeconfig)) as api, api.opened(path, query) as response:
            while not self._over.is_set() and (line := response.readline()):
                yield json.loads(line)

    def _take_list(self, what: str, items: list[dict[str, Any]]) -> None:
        if what == "nodes":
            self.ledger.nodes = set()
        else:
            for uid in self.ledger.pods.keys() - {item["metadata"]["uid"] for item in items}:
                self.ledger.remove(uid)
        for item in items:
            self._take(what, "ADDED", item)

    def _take(self, what: str, kind: str, obj: dict[str, Any]) -> None:
        name = obj["metadata"]["name"]
        if what == "nodes" and kind == "DELETED":
            self.ledger.nodes.discard(name)
        elif what == "nodes":
            self.ledger.nodes.add(name)
            self.ledger.capacity[name] = int(obj["status"]["allocatable"].get(GPU, 0))
        elif kind == "DELETED":
            self.ledger.remove(obj["metadata"]["uid"])
        else:
            pod = pod_from(obj)
            if pod.node:
                self.placed_at_s.setdefault(pod.name, time.monotonic())
            self.ledger.put(pod)
