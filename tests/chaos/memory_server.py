"""An API server in memory: versions, preconditions, watches, the fence, evictions, and what goes wrong with each.

It has what the operator uses, by Kubernetes' rules: 409 for a stale version, 410 for one that is gone, 504 for one
that is not there yet, a budget's 429, and a fence that follows the Lease by milliseconds. Quantities are whole numbers.
"""

import asyncio
import errno
import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from controller.kube import api_server, request
from tests.chaos.virtual_time import Process, Timeline

Object = dict[str, Any]
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
GANGS = "/apis/tonnage.dev/v1alpha1/gangs"
LEASES = "/apis/coordination.k8s.io/v1/leases"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
QUOTAS = "/api/v1/resourcequotas"
EVENTS = "/apis/events.k8s.io/v1/events"
TEAMS = "/apis/tonnage.dev/v1alpha1/teams"
NAMESPACES = "/api/v1/namespaces"
TYPES = "/apis/tonnage.dev/v1alpha1/gputypes"
EPOCH = "tonnage.dev/epoch"
MARKS = tuple(f"tonnage.dev/{name}" for name in ("node", "devices", "epoch", "placed-at", "held-seats"))
FENCE_LAG_S = 0.002
"""From a write of the Lease until the fence knows of it, as measured (controller/kube/sender.py)."""
TOO_NEW_S = 3.0
"""How long the API server waits for a version that it does not have."""
AWAY = api_server.no_connection("memory", ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
_encode = msgspec.json.encode
_decode = msgspec.json.decode


class RefusedError(Exception):
    """The server's answer to a request that it refuses."""

    def __init__(self, status: int, reason: str, words: str, retry_after_s: float | None = None) -> None:
        super().__init__(words)
        self.refusal = request.Refusal(status, reason, words, retry_after_s)


@dataclass
class Faults:
    """What goes wrong with requests; nothing by default."""

    refused_share: float = 0.0
    """Of all requests: answered 429, 500 or 409."""
    lost_share: float = 0.0
    """Of all writes: carried out, and then answered 500, or not at all."""
    delay_s: float = 0.0
    """Longest delay of a write on its way to the server."""
    fence_late_s: float = 0.0
    """By how much the fence follows the Lease late, as one of several API servers."""
    is_down: bool = False
    undeclared: str = ""
    """Field of statuses that the installed CRD lacks."""
    watches: Counter[str] = field(default_factory=Counter)
    """Of the next events of watches: how many are `doubled`, `swapped` or `lost`."""
    held_s: float = 0.0
    """By how much events are late."""


@dataclass
class Stored:
    obj: Object
    raw: bytes


@dataclass(eq=False)
class Watch:
    collection: str
    matches: Callable[[Object], bool]
    process: Process
    lines: deque[bytes | request.Refusal | None] = field(default_factory=deque)
    """None ends it without a word."""
    waiter: "asyncio.Future[None] | None" = None
    last_s: float = 0.0
    swapped: tuple[str, bytes] | None = None
    """Name of an object and its event, which the next event overtakes."""


def parsed(path: str) -> tuple[str, str, str, str]:
    """(collection, namespace, name, subresource) of a path."""
    parts = path.strip("/").split("/")
    cut = 2 if parts[0] == "api" else 3
    root, rest, namespace = "/" + "/".join(parts[:cut]), parts[cut:], ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name, sub = (*rest[1:3], "", "")[:2]
    return f"{root}/{rest[0]}", namespace, name, sub


def merged(before: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7396."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(before) if isinstance(before, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class MemoryServer:
    """The store, and what is done to it. `hears` is told of every change."""

    def __init__(self, timeline: Timeline, chance: Random, *, fenced: bool) -> None:
        self.timeline, self.chance, self.is_fenced = timeline, chance, fenced
        self.faults = Faults()
        self.version = 1
        self.stored: dict[str, dict[str, Stored]] = {}
        self.log: deque[tuple[int, str, Object | None, Object | None, bytes]] = deque()
        """(version, collection, before, after, as text) of every change."""
        self.oldest = 0
        """Newest version whose changes are no longer known."""
        self.watches: list[Watch] = []
        self.hears: list[Callable[[str, Object | None, Object | None], None]] = []
        self.delayed_s: Callable[[Asked], float] = lambda _: 0.0
        """By how much one write is late; besides `faults`."""
        self.evicts: Callable[[Object], None] = lambda _: None
        """Told of a pod before Tonnage stops it."""
        self.fence_epoch: int | None = None
        self._followed, self._restores = 0, 0
        self.counted: Counter[str] = Counter()
        """What was done to requests."""
        self.writes: list[tuple[float, str, str]] = []
        """(instant, method, path) of what operators changed, without Leases and Events."""
        self._uids = 0
        self._backups: list[tuple[float, int, dict[str, dict[str, Stored]]]] = []

    # The store.

    def get(self, collection: str, name: str) -> Object | None:
        found = self.stored.get(collection, {}).get(name)
        return found.obj if found else None

    def all(self, collection: str) -> list[Object]:
        return [each.obj for each in self.stored.get(collection, {}).values()]

    def put(self, collection: str, obj: Object) -> Object:
        meta = obj["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        kept = self.stored.setdefault(collection, {})
        before = kept.get(key)
        if not meta.get("uid"):
            self._uids += 1
            meta["uid"] = f"uid-{self._uids}"
            meta.setdefault("creationTimestamp", _rfc3339(self.timeline.now_s))
        self.version += 1
        is_new = before is None or before.obj.get("spec") != obj.get("spec")
        meta["generation"] = meta.get("generation", 0) + 1 if is_new else meta["generation"]
        meta["resourceVersion"] = str(self.version)
        kept[key] = Stored(obj, raw := _encode(obj))
        self._tell(collection, before.obj if before else None, obj, raw)
        if collection == LEASES:
            epoch = int(obj["spec"].get("leaseTransitions") or 0)
            lag_s = FENCE_LAG_S + self.faults.fence_late_s
            self.timeline.after(lag_s, self._follow, self._restores, self.version, epoch)
        return obj

    def _follow(self, restores: int, version: int, epoch: int) -> None:
        if restores == self._restores and version > self._followed:
            self.fence_epoch, self._followed = epoch, version

    def change(self, collection: str, name: str, patch: Object) -> Object | None:
        """A change by the cluster itself, without preconditions."""
        before = self.get(collection, name)
        return None if before is None else self.put(collection, merged(before, patch))

    def remove(self, collection: str, name: str) -> None:
        before = self.stored.get(collection, {}).pop(name, None)
        if before is not None:
            self.version += 1
            gone = merged(before.obj, {"metadata": {"resourceVersion": str(self.version)}})
            self._tell(collection, before.obj, None, _encode(gone))

    def _tell(self, collection: str, before: Object | None, after: Object | None, raw: bytes) -> None:
        self.log.append((self.version, collection, before, after, raw))
        for hears in self.hears:
            hears(collection, before, after)
        for watch in tuple(self.watches):
            if watch.collection == collection and (line := _line(watch.matches, before, after, raw)):
                name = (after or before or {})["metadata"]["name"]
                self._send_line(watch, name, line)

    # Time that goes back, and versions that are gone.

    def back_up(self) -> None:
        now = {collection: dict(kept) for collection, kept in self.stored.items()}
        self._backups.append((self.timeline.now_s, self.version, now))

    def restore(self, back_s: float) -> None:
        """The store goes back by so many seconds, or to its first backup."""
        wanted_s = self.timeline.now_s - back_s
        _, self.version, kept = max((b for b in self._backups if b[0] <= wanted_s), default=self._backups[0], key=_age)
        self.stored = {collection: dict(each) for collection, each in kept.items()}
        self._backups = [each for each in self._backups if each[1] <= self.version]
        self.log = deque(each for each in self.log if each[0] <= self.version)
        self.end_watches(None)
        self._restores, self._followed = self._restores + 1, self.version
        for lease in self.all(LEASES):
            self.fence_epoch = int(lease["spec"].get("leaseTransitions") or 0)

    def compact(self) -> None:
        """All versions but the newest are gone, and every watch ends with 410."""
        self.oldest = self.version
        self.log.clear()
        self.end_watches(request.Refusal(410, "Expired", "too old resource version"))

    def end_watches(self, refusal: request.Refusal | None) -> None:
        for watch in self.watches:
            self._push(watch, refusal, self.timeline.now_s)
        self.watches = []

    # Requests.

    def arrive(self, sender: "MemoryConnection", doing: "Asked", answer: "asyncio.Future[bytes]") -> None:
        """A request is sent; it is on its way from now on, whatever becomes of its sender."""
        late_s = self.delayed_s(doing) if doing.method != "GET" else 0.0
        self.timeline.after(self._way_s(doing) + late_s, self._serve, sender, doing, answer)

    def _way_s(self, doing: "Asked") -> float:
        way_s = self.chance.uniform(0.0005, 0.003)
        is_late = self.faults.delay_s and doing.method != "GET" and self.chance.random() < 0.5
        return way_s + (self.chance.uniform(0, self.faults.delay_s) if is_late and "/leases" not in doing.path else 0.0)

    def _serve(self, sender: "MemoryConnection", doing: "Asked", answer: "asyncio.Future[bytes]") -> None:
        result: bytes | request.Refusal
        if self.faults.is_down:
            result = AWAY
        elif self.chance.random() < self.faults.refused_share:
            status, reason = self.chance.choice(((429, "TooManyRequests"), (500, "InternalError"), (409, "Conflict")))
            self.counted[f"refused {status}"] += 1
            result = request.Refusal(status, reason, "injected", 1.0 if status == 429 else None)
        else:
            try:
                result = self.do(doing)
            except RefusedError as refused:
                result = refused.refusal
        if doing.method != "GET" and self.chance.random() < self.faults.lost_share:
            self.counted["answers lost"] += 1
            if self.chance.random() < 0.5:
                return sender.forgotten(answer)
            result = request.Refusal(500, "InternalError", "injected after the write")
        wait_s = TOO_NEW_S if isinstance(result, request.Refusal) and result.status == 504 else 0.0
        sender.answered(doing, answer, result, wait_s + self.chance.uniform(0.0005, 0.003))
        return None

    def do(self, doing: "Asked") -> bytes:
        """Carries out a request of Tonnage's account. Raises RefusedError."""
        collection, namespace, name, sub = parsed(doing.path)
        if doing.method == "GET":
            return self._read(collection, namespace, name, doing.query)
        body = _decode(_encode(doing.body))
        self._check_fence(collection, sub, doing.method, body)
        if collection not in (LEASES, EVENTS) and doing.query.get("dryRun") != "All":
            self.writes.append((self.timeline.now_s, doing.method, doing.path))
        key = f"{namespace}/{name}" if namespace else name
        if collection == PODS and sub == "binding":
            return self._bind(key, body)
        if collection == PODS and sub == "eviction":
            return self._evict(key, body, is_dry=doing.query.get("dryRun") == "All")
        if doing.method == "POST":
            return self._create(collection, namespace, body, is_dry=doing.query.get("dryRun") == "All")
        before = self.get(collection, key)
        if before is None:
            raise RefusedError(404, "NotFound", f"{collection} {key} not found")
        self._check_preconditions(before, body)
        if doing.method == "PUT":
            return _encode(self.put(collection, {**body, "metadata": {**before["metadata"], **body["metadata"]}}))
        if sub == "status":
            if (lacks := self.faults.undeclared) and lacks in body.get("status", {}):
                words = f"failed to create typed patch object: .status.{lacks}: field not declared in schema"
                raise RefusedError(500, "InternalError", words)
            return _encode(
                self.put(collection, {**before, "metadata": dict(before["metadata"]), "status": body["status"]})
            )
        body["metadata"] = {k: v for k, v in body.get("metadata", {}).items() if k not in ("uid", "resourceVersion")}
        return _encode(self.put(collection, merged({**before, "metadata": dict(before["metadata"])}, body)))

    def _read(self, collection: str, namespace: str, name: str, query: request.Query) -> bytes:
        if name:
            found = self.stored.get(collection, {}).get(f"{namespace}/{name}" if namespace else name)
            if found is None:
                raise RefusedError(404, "NotFound", f"{name} not found")
            return found.raw
        asked = query.get("resourceVersion", "0")
        if asked.isdecimal() and int(asked) > self.version:
            raise RefusedError(504, "Timeout", f"Too large resource version: {asked}, current: {self.version}")
        matches = matching(query)
        items = b",".join(each.raw for each in self.stored.get(collection, {}).values() if matches(each.obj))
        return b'{"metadata":{"resourceVersion":"%d"},"items":[%s]}' % (self.version, items)

    def _check_fence(self, collection: str, sub: str, method: str, body: Object) -> None:
        fenced = collection in (PODS, NODES, EVENTS) and sub != "status"
        if not self.is_fenced or not fenced or self.fence_epoch is None:
            return
        said = body.get("metadata", {}).get("annotations", {}).get(EPOCH, "missing")
        if said != str(self.fence_epoch):
            self.counted["stale writes refused"] += method != "POST" or sub != ""
            words = f"denied request: {EPOCH} is {said}, that of the Lease is {self.fence_epoch}"
            raise RefusedError(403, "Forbidden", words)

    def _check_preconditions(self, before: Object, body: Object) -> None:
        said, meta = body.get("metadata", {}), before["metadata"]
        for name in ("uid", "resourceVersion"):
            if said.get(name) and said[name] != meta[name]:
                raise RefusedError(409, "Conflict", f"{name} is {meta[name]}, not {said[name]}")

    def _bind(self, key: str, body: Object) -> bytes:
        pod = self.get(PODS, key)
        if pod is None:
            raise RefusedError(404, "NotFound", f"pods {key} not found")
        self._check_preconditions(pod, body)
        meta, spec = pod["metadata"], pod["spec"]
        if meta.get("deletionTimestamp") or spec.get("nodeName") or spec.get("schedulingGates"):
            raise RefusedError(409, "Conflict", f"pod {key} is being deleted, is assigned, or has gates")
        annotations = body["metadata"].get("annotations", {})
        patch = {"metadata": {"annotations": annotations}, "spec": {"nodeName": body["target"]["name"]}}
        self.put(PODS, merged(pod, patch))
        return b'{"kind":"Status","status":"Success"}'

    def _evict(self, key: str, body: Object, *, is_dry: bool) -> bytes:
        pod = self.get(PODS, key)
        if pod is None:
            raise RefusedError(404, "NotFound", f"pods {key} not found")
        uid = body.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            raise RefusedError(409, "Conflict", "the uid is another")
        if pod["status"].get("phase") == "Running" and self._is_kept(pod):
            raise RefusedError(
                429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
            )
        if not is_dry:
            self.evicts(pod)
            self.delete_pod(key)
        return b'{"kind":"Status","status":"Success"}'

    def _is_kept(self, pod: Object) -> bool:
        labels, namespace = pod["metadata"].get("labels", {}), pod["metadata"]["namespace"]
        budgets = (each for each in self.all(BUDGETS) if each["metadata"]["namespace"] == namespace)
        return any(each["spec"]["selector"]["matchLabels"].items() <= labels.items() for each in budgets)

    def delete_pod(self, key: str) -> None:
        """A pod that runs ends after a grace period; its kubelet says when. One without a node is gone at once."""
        pod = self.get(PODS, key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            self.change(PODS, key, {"metadata": {"deletionTimestamp": _rfc3339(self.timeline.now_s)}})
        else:
            self.remove(PODS, key)

    def _create(self, collection: str, namespace: str, body: Object, *, is_dry: bool) -> bytes:
        meta = body["metadata"]
        if "generateName" in meta:
            self._uids += 1
            meta["name"] = f"{meta['generateName']}{self._uids}"
        key = f"{namespace}/{meta['name']}" if namespace else meta["name"]
        if self.get(collection, key) is not None:
            raise RefusedError(409, "AlreadyExists", f"{key} already exists")
        # Events are told and not kept: nothing reads them here.
        return _encode(body if is_dry or collection == EVENTS else self.put(collection, body))

    # Watches.

    def watch(self, collection: str, query: request.Query, process: Process) -> Watch | request.Refusal:
        if self.faults.is_down:
            return AWAY
        since = int(query["resourceVersion"] or 0)
        if since > self.version:
            return request.Refusal(504, "Timeout", f"Too large resource version: {since}, current: {self.version}")
        if since < self.oldest:
            return request.Refusal(410, "Expired", f"too old resource version: {since} ({self.oldest})")
        watch = Watch(collection, matching(query), process)
        for version, where, before, after, raw in self.log:
            if version > since and where == collection and (line := _line(watch.matches, before, after, raw)):
                self._push(watch, line, self.timeline.now_s)
        self.watches.append(watch)
        return watch

    def bookmark(self) -> None:
        for watch in self.watches:
            line = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}' % self.version
            self._flush(watch)
            self._push(watch, line, self.timeline.now_s)

    def _send_line(self, watch: Watch, name: str, line: bytes) -> None:
        at_s = self.timeline.now_s + self.chance.uniform(0.0005, 0.004) + self.faults.held_s
        faults = self.faults.watches
        if watch.swapped is not None:
            (whose, first), watch.swapped = watch.swapped, None
            # Those of one object stay in order, by the API's own guarantee.
            for each in (first, line) if whose == name else (line, first):
                self._push(watch, each, at_s)
            return
        if faults["lost"] > 0:
            # The API server loses an event only with the watch: its cache starts anew, and the version is gone.
            faults["lost"] -= 1
            self.counted["events lost"] += 1
            self.watches.remove(watch)
            late_s = at_s + self.chance.uniform(0.0, 3.0)
            self._push(watch, request.Refusal(410, "Expired", "too old resource version"), late_s)
            return
        if faults["swapped"] > 0:
            faults["swapped"] -= 1
            self.counted["events swapped"] += 1
            watch.swapped = name, line
            self.timeline.after(0.5, self._flush, watch)
            return
        self._push(watch, line, at_s)
        if faults["doubled"] > 0:
            faults["doubled"] -= 1
            self.counted["events doubled"] += 1
            self._push(watch, line, at_s)

    def _flush(self, watch: Watch) -> None:
        if watch.swapped is not None:
            (_, line), watch.swapped = watch.swapped, None
            self._push(watch, line, self.timeline.now_s)

    def _push(self, watch: Watch, line: bytes | request.Refusal | None, at_s: float) -> None:
        watch.last_s = max(watch.last_s, at_s)  # in order
        self.timeline.at(watch.last_s, watch.process, _deliver, watch, line)


def _deliver(watch: Watch, line: bytes | request.Refusal | None) -> None:
    watch.lines.append(line)
    if watch.waiter is not None and not watch.waiter.done():
        watch.waiter.set_result(None)


def _line(matches: Callable[[Object], bool], before: Object | None, after: Object | None, raw: bytes) -> bytes:
    """Event of a change for a watch with a selector, as the API server makes it; empty where it has none."""
    was, is_now = before is not None and matches(before), after is not None and matches(after)
    if not was and not is_now:
        return b""
    kind = b"MODIFIED" if was and is_now else b"ADDED" if is_now else b"DELETED"
    return b'{"type":"%s","object":%s}' % (kind, raw)


_PHASE = re.compile(r"status\.phase(!?=)(\w+)")


def matching(query: request.Query) -> Callable[[Object], bool]:
    terms = _PHASE.findall(query.get("fieldSelector", ""))

    def matches(obj: Object) -> bool:
        phase = obj.get("status", {}).get("phase", "")
        return all((phase == value) == (sign == "=") for sign, value in terms)

    return matches


def _age(backup: tuple[float, int, object]) -> float:
    return backup[0]


def _rfc3339(now_s: float) -> str:
    from controller.api.notation import rfc3339
    from tests.chaos.virtual_time import EPOCH_S

    return rfc3339(EPOCH_S + now_s)


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: request.Query
    body: request.Body | None


class MemoryConnection(api_server.ApiServer):
    """One process's connection to a server in memory; see `connection.Connection`."""

    def __init__(self, server: MemoryServer, process: Process, failpoint: Callable[[Asked, str], bool]) -> None:
        """failpoint: called before and after each write; whether the process goes on."""
        super().__init__("memory", "default")
        self._server, self._process, self._failpoint = server, process, failpoint

    async def close(self) -> None:
        return None

    async def send(
        self, method: str, path: str, query: request.Query, body: Any, content_type: str, accept: str = request.JSON
    ) -> api_server.ApiResponse:
        answer: asyncio.Future[bytes] = self._process.loop.create_future()
        doing = Asked(method, path, dict(query), body)
        if method == "GET" or self._failpoint(doing, "before"):
            self._server.arrive(self, doing, answer)
        return api_server.ApiResponse(await answer, {})

    def answered(
        self, doing: Asked, answer: "asyncio.Future[bytes]", result: bytes | request.Refusal, after_s: float
    ) -> None:
        if doing.method == "GET" or self._failpoint(doing, "after"):
            timeline = self._server.timeline
            timeline.at(timeline.now_s + after_s, self._process, _resolve, answer, result)

    def forgotten(self, answer: "asyncio.Future[bytes]") -> None:
        """No answer comes, and the connection breaks."""
        timeline, lost = self._server.timeline, request.Refusal(0, "NoAnswer", "no answer: connection reset")
        timeline.at(timeline.now_s + 0.01, self._process, _resolve, answer, lost)

    async def watch(
        self, path: str, query: request.Query, *, idle_s: float, accept: str = request.JSON
    ) -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(0.002)
        watch = self._server.watch(path, query, self._process)
        if isinstance(watch, request.Refusal):
            await asyncio.sleep(TOO_NEW_S if watch.status == 504 else 0.002)
            raise request.KubeReadError(f"watching {path}", watch)
        try:
            while True:
                while watch.lines:
                    line = watch.lines.popleft()
                    if isinstance(line, request.Refusal):
                        raise request.KubeReadError(f"watching {path}", line)
                    if line is None:
                        return
                    yield line
                watch.waiter = self._process.loop.create_future()
                await watch.waiter
        finally:
            if watch in self._server.watches:
                self._server.watches.remove(watch)


def _resolve(answer: "asyncio.Future[bytes]", result: bytes | request.Refusal) -> None:
    if answer.done():
        return
    if isinstance(result, bytes):
        answer.set_result(result)
    else:
        answer.set_exception(api_server.RefusedError(result))
