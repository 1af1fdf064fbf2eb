"""Compositions in memory: the operator's own processes, loop and writes, with the API server and the cluster in memory.

Everything of the operator runs but its HTTP connection, its ports and the loops beside the cycle; nodes, kubelets,
kube-scheduler and the owners of pods are here as far as they matter to placing.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from typing import Any

import structlog

from controller.brain.inline import InlineBrain, decisions_from, limits_from
from controller.cycle import Cycle
from controller.kube import connection, leader_election
from controller.kube_world import cached_view
from controller.loops.loop import CycleTrigger
from controller.metrics.registry import Meter
from controller.process import cluster as process_cluster, main
from controller.process.main import Heartbeat, Operator, run_loop
from controller.recording.bundle import settings_from
from controller.report.cycle_reporter import CycleReporter
from tests.chaos.compositions import LEADER, PRODUCTS, SECOND, Composition, Step
from tests.chaos.judge import Listed, Wanted, violations
from tests.chaos.memory_server import (
    BUDGETS,
    GANGS,
    LEASES,
    MARKS,
    NAMESPACES,
    NODES,
    PODS,
    QUOTAS,
    TEAMS,
    TYPES,
    Asked,
    MemoryConnection,
    MemoryServer,
    parsed,
)
from tests.chaos.virtual_time import Process, ProcessThread, Timeline, clocks_of
from tests.controlplane.auditor import GPU
from tests.controlplane.faults.witness import Ledger, pod_from

Object = dict[str, Any]
TENANT, OTHER, SECOND_TENANT = "tenant", "other", "second-tenant"
HELD_SEATS = "tonnage.dev/held-seats"
DEVICE_USD = 3.0
"""Price of a device an hour, of each type."""
SETTLES_WITHIN_S = 150.0
"""A bind whose answer was lost counts as done for 30 s, a standby takes over within 15, and a gang that is there in
part is stopped after 20 (`SETTINGS`)."""
UNSEEN_S = 12.0
"""How long the server is away where no operator sees that; a leader stops writing after 10 s without a renewal."""
QUIET_S = 8.0
"""Time without a write after which it is quiet: longer than from one cycle to the next (`resync_s`)."""
SETTINGS: Mapping[str, Any] = {
    "pools": [{"placer": mode, "selector": {"pool": mode}} for mode in ("bind", "gate")],
    "resync_s": 5.0,
    "gang_deadline_s": 20.0,
    "release_deadline_s": 10.0,
    "groups_of_others": False,
    "autoscaler": {"enabled": False},
    "record": {"enabled": False},
}


@dataclass(frozen=True)
class Verdict:
    """What came of a composition."""

    violations: tuple[str, ...]
    injected: Mapping[str, int]
    digest: str
    """Of every change of the store, with its instant: the same composition has the same."""
    virtual_s: float
    writes: int


class _Stop:
    """`Event` by which an operator's loop is told to end, which lets time pass."""

    def __init__(self, thread: ProcessThread) -> None:
        self.is_over, self._thread = False, thread

    def wait(self, for_s: float) -> bool:
        if for_s > 0 and not self.is_over:
            self._thread.sleep(for_s)
        return self.is_over


class _Trigger(CycleTrigger):
    """Trigger whose wait lets time pass."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(lambda: timeline.now_s)
        thread = timeline.running.thread
        assert thread is not None
        self._thread, self._is_waited_for = thread, False

    def changed(self) -> None:
        super().changed()
        if self._is_waited_for:
            self._is_waited_for = False
            self._thread.wake()

    def wait(self, most_s: float) -> None:
        if not self.is_set:
            self._is_waited_for = True
            self._thread.sleep(most_s)
            self._is_waited_for = False


class _Reporter(CycleReporter):
    """Reporter to whom a failed cycle is an error of the process; of the others' logs and metrics nothing is read."""

    process: Process

    def report_cycle(self, cycle: Cycle) -> None:
        return None

    def report_failed(self, error: Exception) -> None:
        self.process.errors.append(f"a cycle failed: {error!r}")


class _NoBackground:
    """Background work, which an operator without services has none of."""

    asked: tuple[str, ...] = ()

    def want(self, *, wanted: bool) -> None:
        return None

    def turn(self) -> None:
        return None


@cache
def _meter() -> Meter:
    return Meter()


@dataclass
class Actor:
    """One operator."""

    name: str
    process: Process
    failpoints: list[dict[str, Any]] = field(default_factory=list)
    stop: _Stop | None = None
    identity: str = ""


class Play:
    """A composition under way."""

    def __init__(self, composition: Composition) -> None:
        self.composition = composition
        self.timeline = Timeline()
        self.chance = Random(f"play {composition.seed}")  # noqa: S311
        self.server = MemoryServer(self.timeline, self.chance, fenced=composition.fenced)
        self.injected: Counter[str] = Counter()
        self.wanted: dict[str, Object] = {}
        self.least: dict[str, int] = {}
        self.gangs: dict[str, Object] = {}
        self.applied: list[tuple[str, Object]] = []
        """What people apply, by collection, and apply again where it is lost."""
        self.strangers: dict[str, str] = {}
        self.shares: dict[str, int] = {}
        """Devices that each team gets whenever it asks, by its namespace."""
        self.ledger = Ledger()
        self.actors: list[Actor] = []
        self._digest = hashlib.sha256()
        self._undo: dict[str, Callable[[], object]] = {}
        self._largest: dict[str, list[tuple[float, int]]] = {}
        self.sizes = {str(node["name"]): int(node["gpus"]) for node in composition.nodes}
        """Devices that each machine has now, which its kubelet reports and counts by, whatever the store says."""
        self._has_shrunk = False
        self.asleep_until_s = 0.0
        self._quiet_since_s = 0.0
        self.server.hears += [self._hear, self._live]
        self.server.delayed_s, self.server.evicts = self._overtaken_s, self._judge_eviction
        self._in_part_since_s: dict[str, float] = {}
        self._early: list[str] = []
        self._to_overtake: list[dict[str, Any]] = []
        known, _ = settings_from({**SETTINGS, "identity": "operator", "fenced": composition.fenced,
                                  "preempt": composition.preempts})  # fmt: skip
        self.settings = known

    # From the first instant to the judgement.

    def run(self) -> Verdict:
        with clocks_of(self.timeline), borders(self):
            try:
                return self._run()
            finally:
                for actor in self.actors:
                    actor.process.kill()

    def _run(self) -> Verdict:
        for number, product in enumerate(PRODUCTS):
            self.server.put(TYPES, gpu_type(("a100", "l4")[number], product))
        for node in self.composition.nodes:
            self.register(node)
        self.server.back_up()
        for _ in range(self.composition.operators):
            self.start()
        for step in self.composition.steps:
            self.timeline.at(float(step["at"]), self.timeline.world, self.do, step)
        self._every(1.0, self.server.back_up)
        self._every(50.0, self.server.bookmark)
        self.timeline.run_until(self.composition.ends_s)
        self.timeline.run_until(max(self.timeline.now_s, self.asleep_until_s))
        self.set_right()
        over_s = self.timeline.now_s + SETTLES_WITHIN_S
        found = ["nothing was judged"]
        while found and self.timeline.now_s < over_s and not self.ledger.double:
            # As soon as nothing was written for a while, it stays so: a cycle runs every few seconds.
            still_s = self.timeline.now_s - max(
                self._quiet_since_s, self.server.writes[-1][0] if self.server.writes else 0
            )
            self.timeline.run_until(self.timeline.now_s + max(1.0, QUIET_S - still_s))
            found = self._unquiet() or self.judged()
        errors = [f"{actor.name}: {error}" for actor in self.actors for error in actor.process.errors]
        counted = Counter({k: v for k, v in self.server.counted.items() if v})
        if self.ledger.double:
            found = []
        return Verdict(tuple(dict.fromkeys((*sorted(self.ledger.double), *self._early[:1], *errors, *found))),
                       dict(self.injected + counted), self._digest.hexdigest()[:16],
                       round(self.timeline.now_s, 1), len(self.server.writes))  # fmt: skip

    def _every(self, for_s: float, deed: Callable[[], None]) -> None:
        def go_on() -> None:
            deed()
            self.timeline.after(for_s, go_on)

        self.timeline.after(for_s, go_on)

    def judged(self) -> list[str]:
        server = self.server
        kinds = {"nodes": NODES, "pods": PODS, "gangs": GANGS}
        listed = Listed({name: server.all(collection) for name, collection in kinds.items()})
        shares = self.shares if self.composition.preempts else {}
        wanted = Wanted(self.wanted, self.least, self.strangers, TENANT, shares)
        found = violations(listed, wanted, may_fail=self._has_shrunk)
        if self.ends_pods():
            found.append("pods still end")
        return found

    def ends_pods(self) -> bool:
        return any(pod["metadata"].get("deletionTimestamp") for pod in self.server.all(PODS))

    def _unquiet(self) -> list[str]:
        since_s = self.timeline.now_s - QUIET_S
        later = [each for each in self.server.writes[-20:] if each[0] > since_s + 1e-6]
        return [f"not quiet: {method} {path} at {at_s:.1f} s" for at_s, method, path in later[-3:]]

    def set_right(self) -> None:
        for undo in list(self._undo.values()):
            undo()
        self._undo.clear()
        self._quiet_since_s = self.timeline.now_s
        faults = self.server.faults
        faults.refused_share = faults.lost_share = faults.delay_s = faults.held_s = faults.fence_late_s = 0.0
        faults.is_down, faults.undeclared = False, ""
        faults.watches.clear()
        self._to_overtake.clear()
        for pod in self.server.all(PODS):  # a store that went back has them again
            if pod["metadata"]["name"].startswith("flood-"):
                self.server.delete_pod(_key(pod))
        for actor in self.actors:
            actor.failpoints.clear()
            actor.process.thaw()
        if all(actor.process.is_dead for actor in self.actors):
            self.start()

    # Processes.

    def start(self) -> None:
        number = len(self.actors)
        actor = Actor(f"operator-{number}", Process(f"operator-{number}", self.timeline))
        self.actors.append(actor)
        ProcessThread(actor.process).start(partial(self._operate, actor))

    def _operate(self, actor: Actor) -> None:
        thread = actor.process.thread
        assert thread is not None
        actor.stop = _Stop(thread)
        stack, me = ExitStack(), _NoBackground()
        brain = InlineBrain(decisions_from(self.settings), clock=lambda: self.timeline.now_s)
        cluster = process_cluster.WatchedCluster(self.settings, process_cluster.PRODUCT, (), _meter(), stack)
        actor.identity = cluster.leadership.identity
        cluster.leadership.answers_at(actor.name)
        writer = process_cluster.ClusterWriter(self.settings, cluster, _meter(), stack)
        reporter = _Reporter(_meter(), structlog.get_logger("cycle"), lambda: self.timeline.now_s)
        reporter.process = actor.process
        beside: Any = me
        recorder: Any = _NoRecorder()
        operator = Operator(
            self.settings,
            cluster,
            writer,
            brain,
            limits_from(self.settings),
            beside,
            beside,
            (),
            reporter,
            recorder,
            Heartbeat(),
        )
        stop: Any = actor.stop
        run_loop(operator, stop)
        stack.close()
        self.timeline.after(0.0, actor.process.kill)

    def actor(self, step: Step) -> Actor | None:
        """The operator that a step means: of those that live, by its number, or the one that leads."""
        alive = [actor for actor in self.actors if not actor.process.is_dead]
        if step["who"] == LEADER:
            leads = {lease["spec"].get("holderIdentity") for lease in self.server.all(LEASES)}
            return next((actor for actor in alive if actor.identity in leads), None)
        return alive[step["who"] % len(alive)] if alive else None

    def failpoint(self, actor: Actor, asked: Asked, side: str) -> bool:
        if "/events" in asked.path or actor.process.is_dead:
            return True
        for each in tuple(actor.failpoints):
            if each["side"] == side and (asked.method != "GET" or not each["of"]) and each["of"] in asked.path:
                each["nth"] -= 1
            if each["nth"] <= 0:
                actor.failpoints.remove(each)
                self.injected[f"{each['deed']} {side} a write"] += 1
                self._strike_after(0.0, actor, each)
                return False
        return True

    def _overtaken_s(self, doing: Asked) -> float:
        """By how much a write is late: what it is about changes first, or its sender is gone, or both."""
        collection, namespace, name, sub = parsed(doing.path)
        if collection != PODS or sub not in ("", "binding"):
            return 0.0
        sender = next(actor for actor in self.actors if actor.process is self.timeline.running)
        for each in tuple(self._to_overtake):
            each["nth"] -= 1
            if each["nth"] <= 0:
                self._to_overtake.remove(each)
                # Without the fence a leader trusts that a write arrives before its Lease would have ended.
                by_s = each["by"] if self.composition.fenced else min(each["by"], 4.0)
                self.timeline.after(by_s / 10, self._overtake, each["how"], f"{namespace}/{name}")
                if each["then"]:
                    self._strike_after(0.0, sender, {"deed": each["then"], "for": 25.0})
                return float(by_s)
        return 0.0

    def _overtake(self, how: str, key: str) -> None:
        self.injected[f"write overtaken by {how}"] += 1
        if "crowd" in how:
            return self._crowd(key, stays="stays" in how)
        if how == "update" and (made := self.wanted.get(key)) and not made["gang"]:
            self.wanted[key] = {**made, "gpus": 3 - min(2, made["gpus"])}  # the owner's template is another now
        return self.server.delete_pod(key)

    def _crowd(self, key: str, *, stays: bool) -> None:
        """More important pods of somebody else ask for all the room that is left where this one may run."""
        pod = self.server.get(PODS, key)
        pool = pod["spec"]["nodeSelector"]["pool"] if pod else ""
        for node in self.server.all(NODES):
            name, labels = node["metadata"]["name"], node["metadata"]["labels"]
            free = int(node["status"]["allocatable"][GPU]) - sum(map(_gpus, self._on(name)))
            if labels["pool"] == pool and free > 0:
                made = pod_object({"name": f"crowd-{self.timeline.now_s:.6f}-{name}", "gpus": free, "mode": pool,
                                   "gang": "", "priority": 100})  # fmt: skip
                made["metadata"]["namespace"] = OTHER
                made["spec"]["nodeSelector"]["kubernetes.io/hostname"] = name
                self.server.put(PODS, made)
                if not stays:
                    self.undo_after({"for": 12.0}, partial(self.server.delete_pod, _key(made)))

    def _follow_gang(self, gang: str) -> None:
        """Since when a gang has fewer members than it needs, but some."""
        least = self.least.get(gang, 0)
        there = sum(pod["metadata"]["labels"].get("tonnage.dev/gang") == gang and bool(pod["spec"].get("nodeName"))
                    for pod in self.server.all(PODS) if pod["metadata"]["namespace"] == TENANT)  # fmt: skip
        if 0 < there < least:
            self._in_part_since_s.setdefault(gang, self.timeline.now_s)
        else:
            self._in_part_since_s.pop(gang, None)

    def _judge_eviction(self, pod: Object) -> None:
        """A gang that is there in part has its time to become whole, where nothing else is a reason to stop it."""
        self.injected["stopped by an operator"] += 1
        self.injected["stopped, of a team beyond its share"] += self._is_beyond(pod)
        gang = pod["metadata"].get("labels", {}).get("tonnage.dev/gang", "")
        spec = self.gangs.get(f"{TENANT}/{gang}", {}).get("spec", {})
        went_back = any(step["do"] == "rollback" for step in self.composition.steps)
        if spec.get("onMemberLoss") != "Refill" or self.composition.preempts or went_back:
            return
        if "nodeName" not in pod["spec"]:  # it was released and runs nowhere: it loses nothing
            return
        since_s = self._in_part_since_s.get(gang, self.timeline.now_s)
        if self.timeline.now_s - since_s < 0.75 * SETTINGS["gang_deadline_s"]:
            self._early.append(f"stopped early: {_key(pod)}, whose gang is there in part for "
                               f"{self.timeline.now_s - since_s:.1f} s")  # fmt: skip

    def _is_beyond(self, pod: Object) -> bool:
        space = pod["metadata"]["namespace"]
        own = (each for each in self.server.all(PODS) if each["metadata"]["namespace"] == space)
        return (
            space in self.shares and sum(_gpus(each) for each in own if "nodeName" in each["spec"]) > self.shares[space]
        )

    def _strike_after(self, for_s: float, actor: Actor, failpoint: Mapping[str, Any]) -> None:
        self.timeline.after(for_s, self._strike, actor, failpoint)

    def _strike(self, actor: Actor, failpoint: Mapping[str, Any]) -> None:
        if failpoint["deed"] == "kill":
            self._kill(actor)
        else:
            self._freeze(actor, failpoint["for"])

    def _kill(self, actor: Actor) -> None:
        if not actor.process.is_dead:
            actor.process.kill()
            self.timeline.after(self.chance.uniform(1.0, 4.0), self.start)

    def _freeze(self, actor: Actor, for_s: float) -> None:
        actor.process.freeze()
        self.timeline.after(for_s, self._thaw, actor)

    def _thaw(self, actor: Actor) -> None:
        if self.timeline.now_s >= self.asleep_until_s:
            actor.process.thaw()

    def put_to_sleep(self, for_s: float) -> None:
        """All operators stand still, whatever else would wake them."""
        self.asleep_until_s = max(self.asleep_until_s, self.timeline.now_s + for_s)
        for actor in self.actors:
            if not actor.process.is_dead:
                self._freeze(actor, self.asleep_until_s - self.timeline.now_s)

    # What the ledger and the cluster make of each change.

    def _hear(self, collection: str, before: Object | None, after: Object | None) -> None:
        obj = after or before or {}
        self._digest.update(
            f"{self.timeline.now_s:.6f} {collection} {obj['metadata']['name']} {after is None}".encode()
        )
        if collection == NODES:
            gpus = int(after["status"]["allocatable"].get(GPU, 0)) if after else 0
            kept = self._largest.setdefault(obj["metadata"]["name"], [])
            kept.append((self.timeline.now_s, gpus))
            # A pod may be bound by what its node had until lately.
            recent = [each for n, each in enumerate(kept) if n + 1 == len(kept) or kept[n + 1][0] > self._lately_s]
            self.ledger.capacity[obj["metadata"]["name"]] = max(each[1] for each in recent)
        elif collection == PODS:
            if gang := obj["metadata"].get("labels", {}).get("tonnage.dev/gang"):
                self._follow_gang(gang)
            if after is None:
                self.ledger.remove(obj["metadata"]["uid"])
                return
            self._count_decision(before, after)
            pod = pod_from(after)
            if pod.node and not (before or {}).get("spec", {}).get("nodeName"):
                self.ledger.put(pod)  # what it takes is judged when it is bound
                self._digest.update(f"{pod.node} {pod.devices}".encode())
            elif pod.uid in self.ledger.pods and (not pod.holds or not pod.node):
                self.ledger.remove(pod.uid)

    def _count_decision(self, before: Object | None, after: Object) -> None:
        """Decisions that hold seats: for what they were made."""
        was, text = (each["metadata"].get("annotations", {}).get(HELD_SEATS) for each in (before or after, after))
        if text and (before is None or was != text):
            moves = any(seat.get("is_moved") for seat in json.loads(text)["seats"])
            self.injected["decisions to move" if moves else "decisions to stop pods for a gang"] += 1

    @property
    def _lately_s(self) -> float:
        return self.timeline.now_s - 10.0

    def _live(self, collection: str, before: Object | None, after: Object | None) -> None:
        """Kubelets, kube-scheduler, garbage collection and the owners of pods."""
        after_s = self.timeline.after
        if collection == NODES and after is None:
            assert before is not None
            after_s(2.0, self._collect, before["metadata"]["name"])
        if collection != PODS:
            return
        if after is None:
            assert before is not None
            after_s(0.3, self._recreate, _key(before))
            return
        key, uid, spec = _key(after), after["metadata"]["uid"], after["spec"]
        was: Object = before or {"metadata": {}, "spec": {"schedulingGates": ["it was not there"]}}
        if after["metadata"].get("deletionTimestamp"):
            if not was["metadata"].get("deletionTimestamp"):
                after_s(self.chance.uniform(0.3, 2.0), self._end, key, uid)
        elif spec.get("nodeName"):
            if after["status"].get("phase") == "Pending" and not was["spec"].get("nodeName"):
                after_s(self.chance.uniform(0.2, 1.0), self._admit, key, uid)
        elif (
            not spec.get("schedulingGates")
            and spec["schedulerName"] != "tonnage"
            and was["spec"].get("schedulingGates")
        ):
            after_s(0.05, self._schedule, key, uid)
        if after["status"].get("phase") == "Failed":
            after_s(0.3, self._replace, key, uid)

    def _there(self, key: str, uid: str) -> Object | None:
        pod = self.server.get(PODS, key)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _end(self, key: str, uid: str) -> None:
        if (pod := self._there(key, uid)) and pod["metadata"].get("deletionTimestamp"):
            self.server.remove(PODS, key)

    def _admit(self, key: str, uid: str) -> None:
        pod = self._there(key, uid)
        node = self.server.get(NODES, pod["spec"].get("nodeName", "")) if pod else None
        if (
            pod is None
            or node is None
            or pod["status"]["phase"] != "Pending"
            or pod["metadata"].get("deletionTimestamp")
        ):
            return
        there = [each for each in self._on(pod["spec"]["nodeName"]) if each["status"]["phase"] == "Running"]
        name, asked = node["metadata"]["name"], sum(map(_gpus, (*there, pod)))
        if asked > self.sizes[name]:
            self.injected["pods turned away by a kubelet"] += 1
            if asked <= next(each["gpus"] for each in self.composition.nodes if each["name"] == name):
                self.strangers.pop(key, None)  # the whole machine has room: it came as devices were lost
            status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "insufficient devices"}
            self.server.change(PODS, key, {"status": status})
        else:
            self.server.change(PODS, key, {"status": {"phase": "Running"}})

    def _on(self, node: str) -> list[Object]:
        pods = self.server.all(PODS)
        return [
            p for p in pods if p["spec"].get("nodeName") == node and p["status"]["phase"] not in ("Succeeded", "Failed")
        ]

    def _schedule(self, key: str, uid: str) -> None:
        pod = self._there(key, uid)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution", {})  # fmt: skip
        pinned = {
            v
            for term in required.get("nodeSelectorTerms", ())
            for f in term.get("matchFields", ())
            for v in f["values"]
        }
        for node in sorted(self.server.all(NODES), key=lambda each: str(each["metadata"]["name"])):
            name, selector = node["metadata"]["name"], pod["spec"].get("nodeSelector", {})
            takes = not node.get("spec", {}).get("unschedulable") and not node.get("spec", {}).get("taints")
            has = int(node["status"]["allocatable"][GPU]) - sum(map(_gpus, self._on(name)))
            is_meant = name in pinned if pinned else selector.items() <= node["metadata"]["labels"].items()
            if takes and is_meant and selector.items() <= node["metadata"]["labels"].items() and has >= _gpus(pod):
                self.server.change(PODS, key, {"spec": {"nodeName": name}})
                return
        said = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0 nodes are available",
        }
        if pod["status"].get("conditions") != [said]:
            self.server.change(PODS, key, {"status": {"conditions": [said]}})
        self.timeline.after(1.0, self._schedule, key, uid)

    def register(self, node: Mapping[str, Any]) -> None:
        """What a kubelet does as it starts, or finds that it is no longer registered."""
        if self.server.get(NODES, node["name"]) is None:
            self.server.put(NODES, node_object({**node, "gpus": self.sizes[node["name"]]}))

    def report(self, node: str) -> None:
        """What a kubelet does every few seconds: its machine has so many devices."""
        self.server.change(NODES, node, {"status": {"allocatable": {GPU: str(self.sizes[node])}}})

    def resize(self, node: str, gpus: int) -> None:
        self.sizes[node] = gpus
        self.report(node)

    def _collect(self, node: str) -> None:
        if self.server.get(NODES, node) is None:
            for pod in self._on(node):
                self.strangers.pop(_key(pod), None)
                self.server.remove(PODS, _key(pod))

    def _replace(self, key: str, uid: str) -> None:
        if self._there(key, uid):
            self.server.remove(PODS, key)

    def _recreate(self, key: str) -> None:
        if key in self.wanted and self.server.get(PODS, key) is None:
            self.server.put(PODS, pod_object(self.wanted[key]))

    def _wake_all(self) -> None:
        """Controllers look at everything anew, as after a restart of the server."""
        for pod in self.server.all(PODS):
            key, uid = _key(pod), pod["metadata"]["uid"]
            if pod["metadata"].get("deletionTimestamp"):
                self.timeline.after(1.0, self._end, key, uid)
            self.timeline.after(0.5, self._admit, key, uid)
            if not pod["spec"].get("schedulingGates") and pod["spec"]["schedulerName"] != "tonnage":
                self.timeline.after(0.5, self._schedule, key, uid)
        there = {node["metadata"]["name"] for node in self.server.all(NODES)}
        for node in {pod["spec"].get("nodeName", "") for pod in self.server.all(PODS)} - there - {""}:
            self.timeline.after(2.0, self._collect, node)
        for key in self.wanted:
            self.timeline.after(0.5, self._recreate, key)

    # Steps.

    def apply(self, collection: str, obj: Object) -> None:
        self.applied.append((collection, obj))
        self.server.put(collection, {**obj, "metadata": dict(obj["metadata"])})

    def do(self, step: Step) -> None:
        deed = DEEDS[step["do"]]
        self.injected[step["do"]] += 1
        deed(self, step)

    def undo_after(self, step: Step, undo: Callable[[], object]) -> None:
        key = f"{id(step)} {len(self._undo)} {self.timeline.now_s}"

        def once() -> None:
            if self._undo.pop(key, None):
                undo()

        self._undo[key] = undo
        self.timeline.after(float(step["for"]), once)


class _NoRecorder:
    def put(self, _: object) -> None:
        return None


def _key(obj: Object) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def _gpus(pod: Object) -> int:
    return sum(int(each.get("resources", {}).get("limits", {}).get(GPU, 0)) for each in pod["spec"]["containers"])


def gpu_type(name: str, product: str) -> Object:
    spec = {"nodeLabel": {"key": "nvidia.com/gpu.product", "values": [product]}, "resourceName": GPU, "memory": "80Gi",
            "pricePerHour": {"onDemand": DEVICE_USD}}  # fmt: skip
    return {"apiVersion": "tonnage.dev/v1alpha1", "kind": "GPUType", "metadata": {"name": name}, "spec": spec}


def node_object(node: Mapping[str, Any]) -> Object:
    has = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: str(node["gpus"])}
    labels = {"nvidia.com/gpu.product": node["product"], "pool": node["pool"], "kubernetes.io/hostname": node["name"]}
    ready = [{"type": "Ready", "status": "True"}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node["name"], "labels": labels}, "spec": {},
            "status": {"allocatable": has, "capacity": has, "conditions": ready}}  # fmt: skip


def pod_object(step: Mapping[str, Any]) -> Object:
    """A pod of a StatefulSet that waits for Tonnage."""
    amounts = {GPU: str(step["gpus"])}
    container = {"name": "main", "image": "example.com/none", "resources": {"limits": amounts, "requests": amounts}}
    waits = {"schedulerName": "tonnage"} if step["mode"] == "bind" else {
        "schedulerName": "default-scheduler", "schedulingGates": [{"name": "tonnage.dev/placement"}]}  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "owner", "uid": "owner", "controller": True}
    labels = {"tonnage.dev/gang": step["gang"]} if step["gang"] else {"app": "single"}
    notes = {"tonnage.dev/movable": "true"} if step.get("movable") else {}
    meta = {"name": step["name"], "namespace": _space(step), "labels": labels, "annotations": notes,
            "ownerReferences": [owner]}  # fmt: skip
    spec = {"containers": [container], "nodeSelector": {"pool": step["mode"]}, "priority": step["priority"], **waits}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def _space(step: Mapping[str, Any]) -> str:
    return SECOND_TENANT if step.get("team") == SECOND else TENANT


# Deeds, by the word of a step.


def _named(play: Play, name: str) -> str:
    """Key of a pod: no two have the same name."""
    return next((key for key in play.wanted if key.endswith(f"/{name}")), f"{TENANT}/{name}")


def _team(play: Play, step: Step) -> None:
    space = _space({"team": step["name"]})
    play.shares[space] = step["share"]
    spec = {"namespaces": {"kubernetes.io/metadata.name": space}, "minRun": f"{step['least']}s",
            "share": {"dollarsPerHour": DEVICE_USD * step["share"]}}  # fmt: skip
    made = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Team", "metadata": {"name": step["name"]}, "spec": spec}
    play.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    play.apply(TEAMS, made)


def _pod(play: Play, step: Step) -> None:
    key = f"{_space(step)}/{step['name']}"
    limits = [int(each["spec"]["hard"][f"requests.{GPU}"]) for each in play.server.all(QUOTAS)]
    used = sum(_gpus(pod) for pod in play.server.all(PODS) if pod["metadata"]["namespace"] == TENANT)
    if any(used + step["gpus"] > limit for limit in limits):
        play.injected["pods refused by a quota"] += 1
        play.timeline.after(1.0, _pod, play, step)  # their owner tries again
        return
    play.wanted[key] = dict(step)
    play._recreate(key)


def _gang(play: Play, step: Step) -> None:
    if step["loss"] != "Continue":  # that one runs on, with however few
        play.least[step["name"]] = step["min"]
    spec = {"minMembers": step["min"], "onMemberLoss": step["loss"]}
    meta = {"name": step["name"], "namespace": TENANT}
    gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": meta, "spec": spec}
    play.gangs[f"{TENANT}/{step['name']}"] = gang
    play.apply(GANGS, gang)


def _delete(play: Play, step: Step) -> None:
    play.server.delete_pod(_named(play, step["name"]))


def _owner_deletes(play: Play, step: Step) -> None:
    key = _named(play, step["name"])
    play.wanted.pop(key, None)
    play.server.delete_pod(key)


def _finish(play: Play, step: Step) -> None:
    pod = play.server.get(PODS, _named(play, step["name"]))
    if pod is not None and pod["status"]["phase"] == "Running" and "gang" not in step:
        label = pod["metadata"]["labels"].get("tonnage.dev/gang")
        if label:  # a member that ends leaves its gang smaller, and what that means is its owner's affair
            return
        play.server.change(PODS, _key(pod), {"status": {"phase": "Succeeded"}})


def _kill(play: Play, step: Step) -> None:
    if actor := play.actor(step):
        play._kill(actor)


def _stop(play: Play, step: Step) -> None:
    if (actor := play.actor(step)) and actor.stop is not None:
        actor.stop.is_over = True
        play.timeline.after(play.chance.uniform(1.0, 4.0), play.start)


def _freeze(play: Play, step: Step) -> None:
    if actor := play.actor(step):
        play._freeze(actor, step["for"])


def _failpoint(play: Play, step: Step) -> None:
    if actor := play.actor(step):
        actor.failpoints.append(
            {"of": step.get("of", ""), **{key: step[key] for key in ("nth", "side", "deed", "for")}}
        )


def _overtaken(play: Play, step: Step) -> None:
    play._to_overtake.append({key: step[key] for key in ("nth", "by", "how", "then")})


def _fence_late(play: Play, step: Step) -> None:
    play.server.faults.fence_late_s = step["by"]
    play.undo_after(step, partial(setattr, play.server.faults, "fence_late_s", 0.0))


def _requests(play: Play, step: Step) -> None:
    faults = play.server.faults
    faults.refused_share, faults.lost_share, faults.delay_s = step["refuse"], step["lose"], step["delay"]

    def undo() -> None:
        faults.refused_share = faults.lost_share = faults.delay_s = 0.0

    play.undo_after(step, undo)


def _watches_cut(play: Play, step: Step) -> None:
    play.server.end_watches(None)


def _watches_expire(play: Play, step: Step) -> None:
    play.server.compact()


def _events(play: Play, step: Step) -> None:
    play.server.faults.watches[step["how"]] += step["count"]


def _events_late(play: Play, step: Step) -> None:
    play.server.faults.held_s = step["by"]
    play.undo_after(step, partial(setattr, play.server.faults, "held_s", 0.0))


def _outage(play: Play, step: Step) -> None:
    play.server.faults.is_down = True
    play.server.end_watches(None)
    play.undo_after(step, partial(_up_again, play))


def _up_again(play: Play) -> None:
    play.server.faults.is_down = False


def _rollback(play: Play, step: Step) -> None:
    """As where somebody restores a backup of etcd: the server is away meanwhile, which no operator sees that sleeps.

    Such a sleep outlasts what a leader may write for: no server is restored faster.
    """
    play.server.restore(step["back"])
    play.server.faults.is_down = True
    play.timeline.after(away_s := step["for"] or UNSEEN_S, _up_again, play)
    if not step["for"]:
        play.put_to_sleep(away_s + 0.5)
    play.ledger.pods.clear()
    play.ledger._held.clear()
    play.ledger._taken.clear()
    for pod in play.server.all(PODS):
        play.ledger.put(pod_from(pod))
    there = {_key(pod): pod["metadata"]["uid"] for pod in play.server.all(PODS)}
    play.strangers = {key: there[key] for key in play.strangers if key in there}
    for collection, obj in play.applied:  # people apply again what was lost
        if play.server.get(collection, _key(obj)) is None:
            play.timeline.after(away_s + 1.0, _apply_again, play, collection, obj)
    for node in play.composition.nodes:
        play.register(node)
        play.timeline.after(away_s + play.chance.uniform(0.1, 3.0), play.report, node["name"])
    play._wake_all()


def _apply_again(play: Play, collection: str, obj: Object) -> None:
    if play.server.get(collection, _key(obj)) is None:
        play.server.put(collection, {**obj, "metadata": dict(obj["metadata"])})


def _clock(play: Play, step: Step) -> None:
    if actor := play.actor(step):
        actor.process.clock_step_s += step["step"]


def _node_gone(play: Play, step: Step) -> None:
    node = next(each for each in play.composition.nodes if each["name"] == step["node"])
    play.server.remove(NODES, step["node"])

    play.undo_after(step, partial(play.register, node))


def _change_node(play: Play, step: Step, patch: Object, undo: Object) -> None:
    play.server.change(NODES, step["node"], patch)
    play.undo_after(step, partial(play.server.change, NODES, step["node"], undo))


def _cordon(play: Play, step: Step) -> None:
    _change_node(play, step, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}})


def _taint(play: Play, step: Step) -> None:
    _change_node(play, step, {"spec": {"taints": [{"key": "example.com/away", "effect": step["effect"]}]}},
                 {"spec": {"taints": None}})  # fmt: skip
    if step["effect"] == "NoExecute":
        for pod in play._on(step["node"]):
            play.strangers.pop(_key(pod), None)
            play.server.delete_pod(_key(pod))


def _relabel(play: Play, step: Step) -> None:
    node = next(each for each in play.composition.nodes if each["name"] == step["node"])
    _change_node(play, step, {"metadata": {"labels": {"pool": step["pool"]}}},
                 {"metadata": {"labels": {"pool": node["pool"]}}})  # fmt: skip


def _shrink(play: Play, step: Step) -> None:
    """A node loses devices: pods that have them run on, and its kubelet turns others away."""
    node = next(each for each in play.composition.nodes if each["name"] == step["node"])
    play._has_shrunk = True
    play.resize(step["node"], min(step["gpus"], node["gpus"]))
    play.undo_after(step, partial(play.resize, step["node"], node["gpus"]))


def _put_for(play: Play, step: Step, collection: str, obj: Object) -> None:
    play.server.put(collection, obj)
    key = _key(obj)
    play.undo_after(step, lambda: play.server.remove(collection, key))


def _budget(play: Play, step: Step) -> None:
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "single"}}}
    meta = {"name": f"budget-{step['at']}", "namespace": TENANT}
    status = {"disruptionsAllowed": 0, "observedGeneration": 1}
    _put_for(play, step, BUDGETS, {"metadata": meta, "spec": spec, "status": status})


def _quota(play: Play, step: Step) -> None:
    hard = {f"requests.{GPU}": str(step["gpus"])}
    meta = {"name": f"quota-{step['at']}", "namespace": TENANT}
    _put_for(play, step, QUOTAS, {"metadata": meta, "spec": {"hard": hard}, "status": {"hard": hard, "used": {}}})


def _flood(play: Play, step: Step) -> None:
    """Another tenant's pods, which fit nowhere."""
    for n in range(step["pods"]):
        pod = pod_object({"name": f"flood-{step['at']}-{n}", "gpus": 64, "mode": ("bind", "gate")[n % 2], "gang": "",
                          "priority": 0})  # fmt: skip
        pod["metadata"]["namespace"] = OTHER
        _put_for(play, step, PODS, pod)


def _stranger(play: Play, step: Step) -> None:
    """A pod of somebody else's, which kube-scheduler has bound where it fits."""
    node = play.server.get(NODES, step["node"])
    label = node["metadata"]["labels"]["pool"] if node else ""
    if node is None or label != "gate":  # a node of mode bind is Tonnage's own
        return
    unbound = (pod for pod in play.server.all(PODS) if not pod["spec"].get("nodeName"))
    waits = [
        pod
        for pod in unbound
        if not pod["spec"].get("schedulingGates")
        and pod["metadata"].get("annotations", {}).get("tonnage.dev/node") == step["node"]
    ]
    taken = sum(map(_gpus, (*play._on(step["node"]), *waits)))
    if taken + step["gpus"] > int(node["status"]["allocatable"][GPU]):
        return
    pod = pod_object(
        {"name": f"stranger-{step['at']}", "gpus": step["gpus"], "mode": "gate", "gang": "", "priority": 0}
    )
    pod["metadata"]["namespace"] = OTHER
    del pod["spec"]["schedulingGates"]
    pod["spec"]["nodeName"] = step["node"]
    made = play.server.put(PODS, pod)
    play.strangers[_key(made)] = made["metadata"]["uid"]


def _tamper(play: Play, step: Step) -> None:
    """What a tenant may do to its own objects, and what the policies refuse it."""
    key, how = _named(play, step["pod"]), step["how"]
    marks = {"forge devices": {"tonnage.dev/devices": "0,1,2,3"}, "forge node": {"tonnage.dev/node": "n0"}}.get(how, {})
    if marks and play.composition.fenced:
        assert marks.keys() <= set(MARKS)
        play.injected["forged marks refused"] += 1  # helm/tonnage/files/fence/marks.yaml
        return
    pod = play.server.get(PODS, key)
    if how == "annotate gang":
        for gang in play.server.all(GANGS):
            play.server.change(GANGS, _key(gang), {"metadata": {"annotations": {"example.com/x": str(step["at"])}}})
    elif pod is not None and how == "annotate":
        play.server.change(PODS, key, {"metadata": {"annotations": {"example.com/x": str(step["at"])}}})
    elif how == "unknown type":
        made = pod_object(
            {"name": f"odd-{step['at']}", "gpus": 1, "mode": "bind", "gang": "none-of-these", "priority": 0}
        )
        made["metadata"]["annotations"] = {"tonnage.dev/gpu-types": "no-such-type"}
        made["metadata"]["namespace"] = OTHER
        play.server.put(PODS, made)


def _evict(play: Play, step: Step) -> None:
    """Somebody drains."""
    pod = play.server.get(PODS, _named(play, step["pod"]))
    if pod is not None and not play.server._is_kept(pod):
        play.server.delete_pod(_key(pod))


def _old_crd(play: Play, step: Step) -> None:
    play.server.faults.undeclared = step["field"]
    play.undo_after(step, partial(setattr, play.server.faults, "undeclared", ""))


DEEDS: Mapping[str, Callable[[Play, Step], None]] = {
    "team": _team, "pod": _pod, "gang": _gang, "delete": _delete, "finish": _finish, "owner deletes": _owner_deletes,
    "kill": _kill, "stop": _stop, "freeze": _freeze, "failpoint": _failpoint, "overtaken": _overtaken,
    "fence late": _fence_late,
    "requests": _requests, "watches cut": _watches_cut, "watches expire": _watches_expire, "events": _events,
    "events late": _events_late, "outage": _outage, "rollback": _rollback, "clock": _clock, "node gone": _node_gone,
    "cordon": _cordon, "taint": _taint, "relabel": _relabel, "shrink": _shrink, "budget": _budget, "quota": _quota,
    "flood": _flood, "stranger": _stranger, "tamper": _tamper, "evict": _evict, "old crd": _old_crd,
}  # fmt: skip


@contextmanager
def borders(play: Play) -> Iterator[None]:
    """The operator's borders to the machine, in memory: its event loop's thread, connection, chance and logs."""
    timeline = play.timeline

    def thread(_: str) -> ProcessThread:
        assert timeline.running.thread is not None
        return timeline.running.thread

    async def connect(*_: object) -> MemoryConnection:
        actor = next(each for each in play.actors if each.process is timeline.running)
        return MemoryConnection(play.server, actor.process, partial(play.failpoint, actor))

    async def identity_at(address: str) -> str | None:
        actor = next(each for each in play.actors if each.name == address)
        return "" if actor.process.is_dead else None if actor.process.is_frozen else actor.identity

    observer_from = cached_view.observer_from
    replaced: list[tuple[Any, str, Any]] = [
        (connection, "LoopThread", thread),
        (connection, "connect", connect),
        # Fewer looks at the Lease, and what changes within half a second is one cycle: it takes half as long.
        (main, "IDLE_POLL_S", 1.0),
        (main, "LEAST_APART_S", 0.5),
        (leader_election, "identity_at", identity_at),
        (process_cluster, "CycleTrigger", lambda: _Trigger(timeline)),
        (process_cluster, "Random", lambda: Random(f"watches {play.composition.seed}")),  # noqa: S311
        (cached_view, "observer_from", partial(observer_from, freezes_heap=False)),
    ]
    before = [(where, name, getattr(where, name)) for where, name, _ in replaced]
    logs = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(play_log_level))
    for where, name, value in replaced:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)
        structlog.configure(**logs)


play_log_level = logging.CRITICAL


def played(composition: Composition) -> Verdict:
    return Play(composition).run()
