"""Compositions on a real control plane with real operators: several at once, each with a namespace and its own nodes.

They share the server and its two operators, so that what one does to those befalls all. Time is real and twice as fast
as in memory.
"""

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs, control_plane_programs, progress_on
from tests.chaos.compositions import LEADER, SECOND, Composition, Step, drawn, keep
from tests.chaos.judge import Listed, Wanted, violations
from tests.controlplane.auditor import GPU
from tests.controlplane.faults.stage import Actor, Stage, stage
from tests.controlplane.faults.workload import PLACEMENT_MODES
from tests.controlplane.keeper import keep as kept_by
from tests.controlplane.plain_api import MERGE_PATCH, PlainApi

Object = dict[str, Any]
TEAMS = "/apis/tonnage.dev/v1alpha1/teams"
DEVICE_USD = 3.0
"""Price of a device an hour, of each type."""
AT_ONCE = 40
"""Compositions that are under way together."""
PACE = 0.5
"""Real seconds for one of a composition."""
SETTLES_WITHIN_S = 240.0
"""The same as in memory, on a machine where other tests run."""
QUIET_S = 7.0
SETTINGS: Mapping[str, Any] = {"gang_deadline_s": 20.0, "release_deadline_s": 10.0, "preempt": True,
                               "groups_of_others": False, "autoscaler": {"enabled": False}}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    violations: tuple[str, ...]
    injected: Mapping[str, int]


class Operators:
    """Two operators, or one, that are killed and come again."""

    def __init__(self, there: Stage, stack: ExitStack, step: Path) -> None:
        self._there, self._stack, self.step = there, stack, step
        self.actors: list[Actor] = []
        self.starting: list[Thread] = []
        self.injected: Counter[str] = Counter()

    def start(self) -> None:
        made = self._there.actor(**SETTINGS, program="tests.controlplane.set_clock")
        self.actors.append(self._stack.enter_context(made))

    @property
    def alive(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.process.process.poll() is None]

    def of(self, step: Step) -> Actor | None:
        alive = self.alive
        if step["who"] == LEADER:
            return next((actor for actor in alive if actor.leads), None)
        return alive[int(step["who"]) % len(alive)] if alive else None

    def _try_to_start(self) -> None:
        with suppress(AssertionError):  # on a busy machine; `set_right` starts what is missing
            self.start()

    @property
    def may_end(self) -> bool:
        """Whether one may end now: with dozens of compositions at once, none would ever lead otherwise."""
        return len(self.alive) > 1 and not any(thread.is_alive() for thread in self.starting)

    def kill(self, actor: Actor) -> None:
        if not self.may_end:
            return
        self.injected["operators killed"] += 1
        actor.send(signal.SIGCONT)
        actor.process.process.kill()
        self._start_beside()

    def _start_beside(self) -> None:
        thread = Thread(target=self._try_to_start, daemon=True)
        self.starting.append(thread)
        thread.start()

    def stop(self, actor: Actor) -> None:
        if not self.may_end:
            return
        self.injected["operators ended"] += 1
        actor.process.process.terminate()
        self._start_beside()

    def set_right(self) -> None:
        self.step.write_text("0", encoding="ascii")
        for thread in self.starting:
            thread.join(120)
        self.starting.clear()
        for actor in self.alive:
            actor.send(signal.SIGCONT)
            faults = actor.proxy.faults
            faults.refused_share = faults.lost_share = faults.delay_s = 0.0
            faults.on_placing = lambda _: None
        for actor in self.actors:
            self.injected.update(actor.proxy.counted)
            actor.proxy.counted.clear()
        while len(self.alive) < 2:
            self.start()

    def wait_for_leader(self) -> None:
        from tests.until import comes_true

        comes_true(lambda: any(actor.leads for actor in self.alive), 60.0)


@dataclass
class Lane:
    """One composition under way."""

    composition: Composition
    api: PlainApi
    operators: Operators
    witness: Any
    wanted: dict[str, Object] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)
    undo: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    shares: dict[str, int] = field(default_factory=dict)
    has_shrunk: bool = False
    over: list[str] = field(default_factory=list)
    """Pods that their owner has deleted, or that finished: `namespace/name`."""

    @property
    def name(self) -> str:
        return f"c{self.composition.seed}"

    def node(self, name: str) -> str:
        return f"{self.name}-{name}"

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.name}/pods"

    def patch(self, path: str, body: Object) -> None:
        self.api.send("PATCH", path, body, content_type=MERGE_PATCH)

    @property
    def second(self) -> str:
        """Namespace of the second team."""
        return f"{self.name}-second"

    def space(self, step: Mapping[str, Any]) -> str:
        return self.second if step.get("team") == SECOND else self.name

    def key_of(self, name: str) -> str:
        return next((key for key in self.wanted if key.endswith(f"/{name}")), f"{self.name}/{name}")

    def begin(self) -> None:
        for space in (self.name, self.second):
            self.api.send("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        for node in self.composition.nodes:
            self.register(node)

    def register(self, node: Mapping[str, Any]) -> None:
        has = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: str(node["gpus"])}
        labels = {"nvidia.com/gpu.product": node["product"], "pool": node["pool"], "lane": self.name,
                  "kubernetes.io/hostname": self.node(node["name"])}  # fmt: skip
        self.api.send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node",
                      "metadata": {"name": self.node(node["name"]), "labels": labels},
                      "status": {"allocatable": has, "capacity": has}})  # fmt: skip

    def recreate(self) -> None:
        """What owners do: pods that are gone, or that a kubelet refused, come again."""
        there = {pod.name: pod for space in (self.name, self.second) for pod in self.witness.pods(space)}
        for key, pod in list(self.wanted.items()):
            seen = there.get(key)
            if seen is None:
                self.api.send("POST", self.path(key), pod)
            elif seen.phase == "Failed" or (seen.node and seen.node not in self.witness.ledger.nodes):
                self.remove(key)

    def remove(self, key: str, grace_s: int = 0) -> None:
        self.api.send("DELETE", f"{self.path(key)}/{key.rpartition('/')[2]}", {"gracePeriodSeconds": grace_s})

    @staticmethod
    def path(key: str) -> str:
        return f"/api/v1/namespaces/{key.partition('/')[0]}/pods"

    def judged(self) -> list[str]:
        self.recreate()
        listed = {
            "pods": [
                pod
                for space in (self.name, self.second)
                for pod in self.api.send("GET", self.path(f"{space}/")).body["items"]
            ],
            "gangs": self.api.send("GET", f"/apis/tonnage.dev/v1alpha1/namespaces/{self.name}/gangs").body["items"],
            "nodes": self.api.send("GET", "/api/v1/nodes", query={"labelSelector": f"lane={self.name}"}).body["items"],
        }
        self.seen = {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in listed["pods"]}
        found = violations(Listed(listed), Wanted(self.wanted, self.least, {}, self.name, self.shares),
                           may_fail=self.has_shrunk)  # fmt: skip
        double = [each for each in self.witness.ledger.double if f"{self.name}-" in each]
        if not self.has_shrunk:  # a pod may be bound by what its node had until lately
            found += [f"double: {each}" for each in double]
        ends = [pod["metadata"]["name"] for pod in listed["pods"] if pod["metadata"].get("deletionTimestamp")]
        return [*found, f"pods still end: {ends}"] if ends else found

    def do(self, step: Step) -> None:
        deed = DEEDS.get(step["do"])
        if deed is not None:
            self.injected[step["do"]] += 1
            with suppress(AssertionError):
                deed(self, step)

    def undo_after(self, step: Step, deed: Callable[[], object]) -> None:
        self.undo.append((time.monotonic() + PACE * float(step["for"]), deed))

    def undo_due(self, *, all_of_it: bool = False) -> None:
        now_s = time.monotonic()
        due = [each for each in self.undo if all_of_it or each[0] <= now_s]
        self.undo = [each for each in self.undo if each not in due]
        for _, deed in due:
            deed()


def _team(lane: Lane, step: Step) -> None:
    space = lane.space({"team": step["name"]})
    lane.shares[space] = step["share"]
    spec = {"namespaces": {"kubernetes.io/metadata.name": space}, "minRun": f"{step['least']}s",
            "share": {"dollarsPerHour": DEVICE_USD * step["share"]}}  # fmt: skip
    lane.api.send("POST", TEAMS, {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Team", "metadata": {"name": space},
                                  "spec": spec})  # fmt: skip


def _pod(lane: Lane, step: Step) -> None:
    amounts = {GPU: str(step["gpus"])}
    container = {"name": "main", "image": "example.com/none", "resources": {"limits": amounts}}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "owner", "uid": "0" * 36, "controller": True}
    labels = {"tonnage.dev/gang": step["gang"]} if step["gang"] else {"app": "single"}
    notes = {"tonnage.dev/movable": "true"} if step.get("movable") else {}
    meta = {"name": step["name"], "namespace": lane.space(step), "labels": labels, "annotations": notes,
            "ownerReferences": [owner]}  # fmt: skip
    spec = {"containers": [container], "nodeSelector": {"pool": step["mode"], "lane": lane.name},
            "terminationGracePeriodSeconds": 0, **PLACEMENT_MODES[step["mode"]],
            **({"priorityClassName": "important"} if step["priority"] else {})}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    key = f"{lane.space(step)}/{step['name']}"
    if key not in lane.over:
        lane.wanted[key] = pod
        lane.api.send("POST", lane.path(key), pod)


def _gang(lane: Lane, step: Step) -> None:
    if step["loss"] != "Continue":
        lane.least[step["name"]] = step["min"]
    spec = {"minMembers": step["min"], "onMemberLoss": step["loss"]}
    lane.api.send("POST", f"/apis/tonnage.dev/v1alpha1/namespaces/{lane.name}/gangs", {
        "apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": {"name": step["name"]},
        "spec": spec})  # fmt: skip


def _delete(lane: Lane, step: Step) -> None:
    lane.remove(lane.key_of(step["name"]))


def _owner_deletes(lane: Lane, step: Step) -> None:
    key = lane.key_of(step["name"])
    lane.over.append(key)
    lane.wanted.pop(key, None)
    lane.remove(key)


def _kill(lane: Lane, step: Step) -> None:
    if actor := lane.operators.of(step):
        lane.operators.kill(actor)


def _stop(lane: Lane, step: Step) -> None:
    if actor := lane.operators.of(step):
        lane.operators.stop(actor)


def _freeze(lane: Lane, step: Step) -> None:
    if actor := lane.operators.of(step):
        actor.send(signal.SIGSTOP)
        lane.undo_after(step, partial(actor.send, signal.SIGCONT))


def _failpoint(lane: Lane, step: Step) -> None:
    """Before a placing write is passed on; of one after it, while it is on its way."""
    if not (actor := lane.operators.of(step)):
        return
    at = actor.proxy.placing + int(step["nth"])
    if step["side"] == "after":
        actor.proxy.faults.delay_s = 0.05

    def look(count: int) -> None:
        if count == at:
            if step["deed"] == "kill":
                lane.operators.kill(actor)
            else:
                actor.send(signal.SIGSTOP)
                lane.undo.append((time.monotonic() + PACE * step["for"], partial(actor.send, signal.SIGCONT)))

    actor.proxy.faults.on_placing = look


def _requests(lane: Lane, step: Step) -> None:
    def set_all(refuse: float, lose: float, delay_s: float) -> None:
        for actor in lane.operators.alive:
            faults = actor.proxy.faults
            faults.refused_share, faults.lost_share, faults.delay_s = refuse, lose, delay_s

    set_all(step["refuse"], step["lose"], min(1.0, step["delay"]))
    lane.undo_after(step, partial(set_all, 0.0, 0.0, 0.0))


def _watches(lane: Lane, step: Step) -> None:
    for actor in lane.operators.alive:
        actor.line.call(actor.proxy.cut if step["do"] == "watches cut" else actor.proxy.expire)


def _clock(lane: Lane, step: Step) -> None:
    new = lane.operators.step.with_suffix(".new")
    new.write_text(str(step["step"]), encoding="ascii")
    new.rename(lane.operators.step)


def _node_gone(lane: Lane, step: Step) -> None:
    node = next(each for each in lane.composition.nodes if each["name"] == step["node"])
    lane.api.send("DELETE", f"/api/v1/nodes/{lane.node(step['node'])}")
    lane.undo_after(step, partial(lane.register, node))


def _on_node(lane: Lane, step: Step, change: Object, back: Object, sub: str = "") -> None:
    path = f"/api/v1/nodes/{lane.node(step['node'])}{sub}"
    lane.patch(path, change)
    lane.undo_after(step, partial(lane.patch, path, back))


def _cordon(lane: Lane, step: Step) -> None:
    _on_node(lane, step, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}})


def _taint(lane: Lane, step: Step) -> None:
    _on_node(lane, step, {"spec": {"taints": [{"key": "example.com/away", "effect": step["effect"]}]}},
             {"spec": {"taints": None}})  # fmt: skip


def _relabel(lane: Lane, step: Step) -> None:
    node = next(each for each in lane.composition.nodes if each["name"] == step["node"])
    _on_node(
        lane, step, {"metadata": {"labels": {"pool": step["pool"]}}}, {"metadata": {"labels": {"pool": node["pool"]}}}
    )


def _shrink(lane: Lane, step: Step) -> None:
    node = next(each for each in lane.composition.nodes if each["name"] == step["node"])
    lane.has_shrunk = True
    small, whole = ({"status": {"allocatable": {GPU: str(n)}, "capacity": {GPU: str(n)}}}
                    for n in (min(step["gpus"], node["gpus"]), node["gpus"]))  # fmt: skip
    _on_node(lane, step, small, whole, "/status")


def _for_a_while(lane: Lane, step: Step, path: str, obj: Object) -> None:
    lane.api.send("POST", path, obj)
    lane.undo_after(step, partial(lane.api.send, "DELETE", f"{path}/{obj['metadata']['name']}"))


def _budget(lane: Lane, step: Step) -> None:
    _for_a_while(lane, step, f"/apis/policy/v1/namespaces/{lane.name}/poddisruptionbudgets", {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": f"b{int(step['at'] * 100)}"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "single"}}}})  # fmt: skip


def _quota(lane: Lane, step: Step) -> None:
    _for_a_while(lane, step, f"/api/v1/namespaces/{lane.name}/resourcequotas", {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": f"q{int(step['at'] * 100)}"},
        "spec": {"hard": {f"requests.{GPU}": str(step["gpus"])}}})  # fmt: skip


def _flood(lane: Lane, step: Step) -> None:
    for n in range(step["pods"]):
        spec = {"containers": [{"name": "main", "image": "example.com/none", "resources": {"limits": {GPU: "64"}}}],
                "nodeSelector": {"lane": lane.name}, **PLACEMENT_MODES[("bind", "gate")[n % 2]]}  # fmt: skip
        meta = {"name": f"flood-{int(step['at'] * 100)}-{n}"}
        _for_a_while(lane, step, lane.pods, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def _tamper(lane: Lane, step: Step) -> None:
    """As an ordinary user of the namespace; what the policies refuse stays as it is."""
    forged = {"forge devices": {"tonnage.dev/devices": "0,1"}, "forge node": {"tonnage.dev/node": lane.node("n0")}}
    said = forged.get(step["how"], {"example.com/x": str(step["at"])})
    answer = lane.api.send("PATCH", f"{lane.pods}/{step['pod']}", {"metadata": {"annotations": said}},
                           content_type=MERGE_PATCH)  # fmt: skip
    if step["how"] in forged:
        assert answer.status in (403, 404, 422), f"a forged mark was answered {answer.status}"
        lane.injected["forged marks refused"] += answer.status != 404


def _evict(lane: Lane, step: Step) -> None:
    lane.api.send("POST", f"{lane.pods}/{step['pod']}/eviction", {
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": step["pod"], "namespace": lane.name}})  # fmt: skip


DEEDS: Mapping[str, Callable[[Lane, Step], None]] = {
    "team": _team, "pod": _pod, "gang": _gang, "delete": _delete, "owner deletes": _owner_deletes, "kill": _kill,
    "stop": _stop, "freeze": _freeze, "failpoint": _failpoint, "requests": _requests, "watches cut": _watches,
    "watches expire": _watches, "clock": _clock, "node gone": _node_gone, "cordon": _cordon, "taint": _taint,
    "relabel": _relabel, "shrink": _shrink, "budget": _budget, "quota": _quota, "flood": _flood, "tamper": _tamper,
    "evict": _evict,
}  # fmt: skip
"""Of the others, in memory alone: a pod that finishes, strangers."""


def play(there: Stage, operators: Operators, compositions: Sequence[Composition]) -> list[Verdict]:
    """Plays these at once and judges each."""
    api = PlainApi(there.plane.kubeconfig)
    lanes = [Lane(each, api, operators, there.witness) for each in compositions]
    try:
        for lane in lanes:
            lane.begin()
        _take_steps(lanes)
        for lane in lanes:
            lane.undo_due(all_of_it=True)
        operators.set_right()
        found = _settled(lanes)
        return [Verdict(tuple(wrong), lane.injected) for lane, wrong in zip(lanes, found, strict=True)]
    finally:
        for lane in lanes:
            lane.wanted.clear()
            for space in (lane.name, lane.second):
                api.send("DELETE", f"/api/v1/namespaces/{space}")
                api.send("DELETE", lane.path(f"{space}/"), {"gracePeriodSeconds": 0})
                api.send("DELETE", f"{TEAMS}/{space}")
            for node in lane.composition.nodes:
                api.send("DELETE", f"/api/v1/nodes/{lane.node(node['name'])}")
        with there.witness.lock:
            there.witness.ledger.double.clear()
        api.close()


def _take_steps(lanes: Sequence[Lane]) -> None:
    began_s = time.monotonic()
    steps = sorted(((step["at"] * PACE, n, step) for n, lane in enumerate(lanes) for step in lane.composition.steps),
                   key=lambda each: each[:2])  # fmt: skip
    ends_s = max(lane.composition.ends_s for lane in lanes) * PACE
    while time.monotonic() - began_s < ends_s or steps:
        while steps and steps[0][0] <= time.monotonic() - began_s:
            _, number, step = steps.pop(0)
            lanes[number].do(step)
        for lane in lanes:
            lane.undo_due()
            lane.recreate()
        time.sleep(0.1)


def _settled(lanes: Sequence[Lane]) -> list[list[str]]:
    """What is wrong in each lane, once nothing changes any more, or in the end."""
    before: dict[str, str] = {}
    over_s, still_since_s = time.monotonic() + SETTLES_WITHIN_S, time.monotonic()
    while True:
        found = [lane.judged() for lane in lanes]
        now: dict[str, str] = {}
        for lane in lanes:
            now.update(lane.seen)
        if now != before:
            before, still_since_s = now, time.monotonic()
        is_quiet = time.monotonic() - still_since_s >= QUIET_S
        if (is_quiet and not any(found)) or time.monotonic() > over_s:
            return found if is_quiet else [[*each, "not quiet: pods change"] for each in found]
        time.sleep(1.0)


@contextmanager
def theatre(programs: Programs, folder: Path) -> Iterator[tuple[Stage, Operators]]:
    """A control plane with two operators."""
    step = folder / "clock"
    step.write_text("0", encoding="ascii")
    os.environ["CLOCK_STEP"] = str(step)
    with stage(programs, folder, 2, 1) as there, ExitStack() as stack:
        api = PlainApi(there.plane.kubeconfig)
        types = "/apis/tonnage.dev/v1alpha1/gputypes"
        for each in api.send("GET", types).body["items"]:
            price = {"spec": {"pricePerHour": {"onDemand": DEVICE_USD}}}
            path = f"{types}/{each['metadata']['name']}"
            assert api.send("PATCH", path, price, content_type=MERGE_PATCH).status == 200
        api.close()
        operators = Operators(there, stack, step)
        for _ in range(2):
            operators.start()
        operators.wait_for_leader()
        yield there, operators


@contextmanager
def own_theatre() -> Iterator[tuple[Stage, Operators]]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves no server behind
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as name:
        kept_by(Path(name), processes.process_with("faults", os.getpid()))
        with theatre(control_plane_programs(progress_on(sys.stderr)), Path(name)) as made:
            yield made


def played_on_server(composition: Composition) -> Verdict:
    with own_theatre() as (there, operators):
        return play(there, operators, [composition])[0]


def on_server(first: int, count: int, seconds: float, folder: Path, say: Callable[[str], None]) -> int:
    """Plays the compositions of these seeds; how many failed."""
    began_s, played, failed = time.monotonic(), 0, 0
    done: Counter[str] = Counter()
    with own_theatre() as (there, operators):
        while (not count or played < count) and (not seconds or time.monotonic() - began_s < seconds):
            some = range(first + played, first + played + (min(AT_ONCE, count - played) if count else AT_ONCE))
            compositions = [drawn(seed, on_server=True) for seed in some]
            for each, verdict in zip(compositions, play(there, operators, compositions), strict=True):
                done.update(verdict.injected)
                if verdict.violations:
                    failed += 1
                    file = keep(f"server-{each.seed}", each, verdict.violations, folder)
                    say(f"seed {each.seed} FAILED: {'; '.join(verdict.violations[:3])}; kept as {file}")
            played += len(compositions)
            say(f"{played} compositions, {failed} failed, {time.monotonic() - began_s:.0f} s")
        done.update(operators.injected)
    took_s = time.monotonic() - began_s
    say(f"on the server: {played} compositions from seed {first}, {failed} failed, {took_s:.0f} s")
    say(f"  {', '.join(f'{n} {what}' for what, n in done.most_common())}")
    return failed
