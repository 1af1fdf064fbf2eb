"""Test bench for faults: a control plane, operators behind a proxy each, and a witness."""

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread
from types import MappingProxyType
from typing import Any

import yaml

from controller.api.kinds import OWN_KINDS
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings, Folder
from simulator.controlplane.server import ControlPlane, down, up
from tests.controlplane.faults.canaries import Canaries
from tests.controlplane.faults.proxy import Proxy, ProxyThread
from tests.controlplane.faults.witness import Pod, Witness
from tests.controlplane.faults.workload import POOLS, STRANGERS, Object, Wave, fleet, service, strangers
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import FENCE, ROOT, OperatorProcess, create_all, operator
from tests.controlplane.plain_api import MERGE_PATCH, Answer, PlainApi
from tests.rigs import chart
from tests.until import comes_true

SYSTEM = chart.NAMESPACE
CONVERGES_WITHIN_S = 150.0
"""A bind that was answered 500 may have happened, so it counts as done for 30 s; one that meets three such answers in a
row takes that three times."""


class NotConvergedError(Exception):
    """The cluster did not come to what was asked for; says what is missing."""


@dataclass
class Actor:
    """One operator and the proxy through which alone it reaches the server."""

    process: OperatorProcess
    line: ProxyThread

    @property
    def proxy(self) -> Proxy:
        return self.line.proxy

    @property
    def leads(self) -> bool:
        words = [each["event"] for each in list(self.process.lines) if "leadership " in str(each.get("event"))]
        told = [word for word in words if word in ("leadership taken", "leadership lost")]
        return bool(told) and told[-1] == "leadership taken" and self.process.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.process.send(number)

    def kill(self) -> None:
        """SIGKILL, and the connections are gone with it; what is on its way at the proxy goes on."""
        self.process.process.kill()
        self.process.process.wait()


@dataclass
class Stage:
    """One control plane for all scenarios."""

    plane: ControlPlane
    programs: Programs
    folder: Path
    witness: Witness
    admin: Kubectl
    token: str
    nodes: Sequence[Object]
    seed: int
    served: int = field(default=0)

    @contextmanager
    def actor(self, **settings: Any) -> Iterator[Actor]:
        """settings: of the operator, besides those of all scenarios."""
        self.served += 1
        folder = self.folder / f"operator-{self.served}"
        folder.mkdir()
        line = ProxyThread(Proxy(self.plane.kubeconfig, self.seed + self.served), self.token, folder)
        try:
            common = {"pools": POOLS, "fenced": True, "resync_s": 5.0, "preempt": False}
            with operator(line.kubeconfig, folder, **{**common, **settings}) as process:
                yield Actor(process, line)
        finally:
            line.close()

    def fence(self, *, stands: bool) -> None:
        verb = "apply" if stands else "delete"
        self.admin(verb, "-f", str(FENCE / "fence.yaml"))


@contextmanager
def stage(programs: Programs, folder: Path, nodes: int, seed: int) -> Iterator[Stage]:
    """A control plane with the fleet and the chart. Raises NoHelmError."""
    made = fleet(nodes)
    manifests = folder / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(made), encoding="utf-8")
    home = Folder(folder / "server")
    plane = up(home, ControlPlaneSettings(manifests=str(manifests)), programs)
    try:
        admin = Kubectl(programs["kubectl"], plane.kubeconfig)
        admin("create", "namespace", SYSTEM)
        # Its operators run as processes beside, with the account, the rights and the policies of the chart.
        chart.install(plane.kubeconfig, {"managedNamespaces": "all", "settings": {"pools": POOLS}})
        admin.within(SYSTEM)("delete", "deployment", "tonnage")
        for kind in OWN_KINDS:
            admin.wait("condition=Established", f"crd/{kind.definition}")
        admin("apply", "-f", str(ROOT / "examples" / "gpu-types.yaml"), "-f", str(ROOT / "examples" / "profiles.yaml"))
        important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "important"}}
        admin("apply", "-f", "-", stdin={**important, "value": 1000})
        admin("create", "namespace", STRANGERS)
        for each in strangers():
            admin.within(STRANGERS)("apply", "-f", "-", stdin=each)
        admin.within(STRANGERS)("rollout", "status", "deployment/plain", "--timeout=90s")
        admin.within(STRANGERS)("rollout", "status", "deployment/with-budget", "--timeout=90s")
        token = admin("create", "token", "tonnage", "-n", SYSTEM, "--duration=10h").strip()
        with Witness(plane.kubeconfig) as witness:
            yield Stage(plane, programs, folder, witness, admin, token, made, seed)
    finally:
        down(home, delete=True)


@dataclass
class Play:
    """One scenario under way: what it wants, what it did, and what came of it."""

    stage: Stage
    name: str
    chance: Random
    pods: int
    """Of a wave."""
    injected: Counter[str] = field(default_factory=Counter)
    waited_s: list[float] = field(default_factory=list)
    """Until all of a wave ran, counted from when its last pod was made."""
    notes: list[str] = field(default_factory=list)
    wanted: dict[str, Object] = field(default_factory=dict)
    """Pods that must run in the end, by `namespace/name`."""
    least: dict[str, int] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """Gangs that ran with too few members once all had settled."""
    deleted: set[str] = field(default_factory=set)
    """Uids of pods that the scenario deleted itself, or whose node it took away."""
    actors: list[Actor] = field(default_factory=list)
    has_canaries: bool = True
    """Whether scenarios of tenants have their canaries."""
    canaries: Canaries | None = None
    """Pods of another namespace, where a scenario has some."""
    untrue: list[str] = field(default_factory=list)
    """Statements of statuses that are not so."""
    namespaces: list[str] = field(default_factory=list)
    """Further namespaces of the scenario."""
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def namespace(self) -> str:
        return self.name

    def add_namespace(self, name: str) -> None:
        self.stage.admin("create", "namespace", name)
        self.namespaces.append(name)

    def api(self) -> PlainApi:
        """A line of its own for each caller, for they are not shared between threads; closed with the play."""
        line = PlainApi(self.stage.plane.kubeconfig)
        self.stack.callback(line.close)
        return line

    def leader(self, within_s: float = 60.0) -> Actor:
        found = comes_true(lambda: any(actor.leads for actor in self.actors), within_s)
        if not found:
            raise NotConvergedError("no operator leads")
        return next(actor for actor in self.actors if actor.leads)

    def create(self, wave: Wave) -> None:
        kubeconfig = self.stage.plane.kubeconfig
        create_all(kubeconfig, f"/apis/tonnage.dev/v1alpha1/namespaces/{self.namespace}/gangs", wave.gangs)
        for name, each in zip(wave.names, wave.pods, strict=True):
            self.wanted[name] = each
        self.least |= wave.least
        create_all(kubeconfig, f"/api/v1/namespaces/{self.namespace}/pods", wave.pods)

    def create_service(self) -> None:
        self.stage.admin.within(self.namespace)("apply", "-f", "-", stdin=service(self.namespace))

    def settle(self, within_s: float = CONVERGES_WITHIN_S, *, has_service: bool = False) -> float:
        """Wait until every wanted pod runs; seconds that this took. Pods on deleted nodes are recreated."""
        began_s, api = time.monotonic(), self.api()

        def settled() -> bool:
            self.replace_lost(api)
            return not self.missing() and (not has_service or self.service_runs(api))

        if not comes_true(settled, within_s):
            missing = self.missing()
            words = f"{len(missing)} of {len(self.wanted)} pods do not run: {self._why_not(api, sorted(missing)[:4])}"
            raise NotConvergedError(words if missing else f"the service is not Ready: {self.service_says()}")
        took_s = time.monotonic() - began_s
        self.waited_s.append(took_s)
        members = Counter(pod.gang for pod in self.stage.witness.pods(self.namespace) if pod.holds)
        self.broken |= {gang for gang, least in self.least.items() if 0 < members[gang] < least}
        return took_s

    def _why_not(self, api: PlainApi, names: Sequence[str]) -> str:
        """What the API server shows of these pods: gates, node selector, node, conditions."""
        said = []
        for name in names:
            pod = api.send("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name.rpartition('/')[2]}").body
            spec, status = pod.get("spec", {}), pod.get("status", {})
            kept = {key: spec.get(key) for key in ("schedulingGates", "nodeSelector", "nodeName") if spec.get(key)}
            conditions = [each.get("message", each["type"]) for each in status.get("conditions", ())]
            said.append(f"{name} {json.dumps({**kept, 'phase': status.get('phase'), 'conditions': conditions})}")
        return ", ".join(said)

    def missing(self) -> set[str]:
        running = {pod.name for pod in self.stage.witness.pods(self.namespace) if pod.phase == "Running" and pod.node}
        return self.wanted.keys() - running

    def service_runs(self, api: PlainApi) -> bool:
        path = f"/apis/tonnage.dev/v1alpha1/namespaces/{self.namespace}/modelservices/chat"
        answer = api.send("GET", path)
        if not answer.is_ok:
            return False
        status, meta = answer.body.get("status", {}), answer.body["metadata"]
        ready = [each for each in status.get("conditions", ()) if each["type"] == "Ready"]
        is_ready = bool(ready) and ready[0]["status"] == "True"
        mine = [pod for pod in self.stage.witness.pods(self.namespace) if pod.is_owned and pod.phase == "Running"]
        asked = sum(status.get("replicas", {}).values())
        return is_ready and status.get("observedGeneration") == meta["generation"] and len(mine) == asked > 0

    def service_says(self) -> str:
        found = self.stage.admin.within(self.namespace).get("modelservice", "chat").get("status", {})
        return json.dumps(found)[:500]

    def replace_lost(self, api: PlainApi) -> None:
        """What a cluster does for pods on a node that is gone, and an owner for pods that were deleted."""
        there = {pod.name: pod for pod in self.stage.witness.pods(self.namespace)}
        for pod in there.values():
            if pod.node and pod.node not in self.stage.witness.ledger.nodes:
                self.delete(pod, api)
                self.injected["pods lost with their node"] += 1
        gone_by_us = {pod.name for pod in self.stage.witness.gone(self.namespace) if pod.uid in self.deleted}
        for name in self.wanted.keys() & gone_by_us - there.keys():
            api.send("POST", f"/api/v1/namespaces/{self.namespace}/pods", self.wanted[name])

    def delete(self, pod: Pod, api: PlainApi) -> Answer:
        self.deleted.add(pod.uid)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        return api.send("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{pod.name.partition('/')[2]}", body)

    def clear(self) -> None:
        """All waves go, so that the next one has room."""
        api = self.api()
        self.wanted.clear()
        self.least.clear()
        for pod in self.stage.witness.pods(self.namespace):
            if not pod.is_owned:
                self.delete(pod, api)
        left = lambda: [pod for pod in self.stage.witness.pods(self.namespace) if not pod.is_owned]  # noqa: E731
        if not comes_true(lambda: not left(), 60.0):
            raise NotConvergedError(f"{len(left())} pods do not go")

    def patch(self, api: PlainApi, path: str, body: Object) -> Answer:
        return api.send("PATCH", path, body, content_type=MERGE_PATCH)

    def start(self, count: int = 1, settings: Mapping[str, Any] = MappingProxyType({}), **faults: Any) -> None:
        """Start more operators, until the end of the play.

        settings: of each operator. faults: fields of `Faults`, set in each one's proxy once it is up.
        """
        for _ in range(count):
            actor = self.stack.enter_context(self.stage.actor(**settings))
            self.actors.append(actor)
            for name, value in faults.items():
                setattr(actor.proxy.faults, name, value)

    def disturbed(self) -> set[str]:
        """Pods of strangers on which an operator did, or tried, anything at all, by its own log."""
        lines = (line for actor in self.actors for line in actor.process.lines if "action" in line)
        words = (str(line.get("subject", line.get("pod", ""))) for line in lines)
        return {each for each in words if f"{STRANGERS}/" in each}

    def last_words(self, lines: int = 30) -> str:
        """Last log lines of the operators, to find the cause of a failure."""
        parts = [json.dumps(line) for actor in self.actors for line in actor.process.lines[-lines:]]
        return "\n".join(parts)

    def end(self) -> None:
        """Every operator ends, and what the proxies did is counted."""
        for actor in self.actors:
            self.injected.update(actor.proxy.counted)
        self.stack.close()

    @contextmanager
    def meanwhile(self, deed: Any, every_s: float) -> Iterator[None]:
        """Do it again and again in the background."""
        over, failed = Event(), []

        def go_on() -> None:
            while not over.wait(every_s):
                try:
                    deed()
                except Exception as error:  # noqa: BLE001 - told by the scenario when it ends
                    failed.append(repr(error))

        thread = Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30)
            self.notes += failed[:3]
