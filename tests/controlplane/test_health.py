"""Health on a real API server: recorded jobs, agents' connections, incidents, taints, whole gangs, and the way back."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import yaml

from cluster.changes import PROBATION_TAINT, UNHEALTHY_TAINT
from controller.api.labels import RELEASED_ANNOTATION
from controller.api.notation import rfc3339
from health.records.frames import REPORT_KIND, Evidence, HealthReport, Source, packed
from nodeagent.health.host_evidence import KernelLog
from power.leases.messages import Inventory, Lease, Refusal, Report, decoded, encoded, encoded_text, framed, read_frame
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane
from tests.agents.credentials import credentials
from tests.controlplane.agent_tokens import agent_token
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU, pod, pod_spec
from tests.controlplane.operators import OperatorProcess, operator, until
from tests.controlplane.plain_api import PlainApi
from tests.controlplane.servers import StartServer
from tests.controlplane.training import Training
from tests.controlplane.training_rank import SAVE_EVERY, gradient, restored
from tests.until import comes_true
from tonnage import records
from tonnage.preflight import Accused, report
from tonnage.recorder import Recorder
from tonnage.records import AccusedPart, Kind, Op, Role

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).parents[2]
NODES = tuple(f"n{n}" for n in range(12))
SWITCH = {name: f"leaf-{int(name[1:]) // 4}" for name in NODES}
"""Four nodes under each switch."""
RANKS = 4


def fleet_manifest() -> list[dict[str, Any]]:
    has = {"cpu": "96", "memory": "1Ti", "pods": "100", GPU: "8"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"switch": SWITCH[name]}},
            "status": {"allocatable": has, "capacity": has},
        }
        for name in NODES
    ]


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    manifests = tmp_path_factory.mktemp("fleet") / "nodes.yaml"
    manifests.write_text(yaml.safe_dump_all(fleet_manifest()), encoding="utf-8")
    return start_server(ControlPlaneSettings(manifests=str(manifests)))


def administrator(server: ControlPlane, programs: Programs) -> Kubectl:
    """kubectl on a server with the kinds that are needed here."""
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gangs", "healthpolicies", "faultincidents"):
        kubectl.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    kubectl("create", "namespace", "tonnage-system")
    return kubectl


@pytest.fixture(scope="module")
def admin(server: ControlPlane, programs: Programs) -> Kubectl:
    return administrator(server, programs)


class Agent:
    """The controller's view of a node's agent: leases are answered, health is reported as the test says."""

    def __init__(self, node: str, token: str, port: int) -> None:
        self._node, self._token, self._port = node, token, port
        self._sequence = 0
        self._writer: asyncio.StreamWriter | None = None
        self.is_heard = False

    async def run(self) -> None:
        """Connects until the operator leads, and listens."""
        while True:
            with suppress(OSError):
                await self._listen()
            await asyncio.sleep(0.2)

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=credentials().trusts())
        writer.write(framed(self._token.encode()))
        writer.write(framed(encoded(Inventory(self._node, "life", {}))))
        self._writer = writer
        beating = asyncio.create_task(self._beat(writer))
        try:
            while True:
                lease = decoded(Lease, await read_frame(reader), self._node)
                self.is_heard = not isinstance(lease, Refusal) and REPORT_KIND in lease.hears
        except EOFError:
            return
        finally:
            self.is_heard = False
            beating.cancel()
            writer.close()

    async def _beat(self, writer: asyncio.StreamWriter) -> None:
        while True:
            report = Report(self._node, "life", time.monotonic(), -1, -1, {})
            writer.write(framed(encoded(report)))
            await asyncio.sleep(0.3)

    def hang_up(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    def report(self, frames: Mapping[str, bytes] | None = None, evidence: tuple[Evidence, ...] | None = None) -> None:
        self._sequence += 1
        report = HealthReport(self._node, "life", self._sequence, frames or {}, evidence)
        if self._writer is not None:
            self._writer.write(framed(encoded_text(REPORT_KIND, packed(report))))


class Agents:
    """Agents of all nodes, in an event loop of their own; each reports at least every two seconds."""

    def __init__(self, admin: Kubectl, port: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.agents = {name: Agent(name, agent_token(admin, name), port) for name in NODES}
        self.evidence: dict[str, tuple[Evidence, ...]] = {}
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks = [asyncio.run_coroutine_threadsafe(each.run(), self.loop) for each in self.agents.values()]
        until(lambda: all(each.is_heard for each in self.agents.values()), "all agents are heard")
        self._tasks.append(asyncio.run_coroutine_threadsafe(self._refresh(), self.loop))

    async def _refresh(self) -> None:
        while True:
            for name, agent in self.agents.items():
                agent.report(evidence=self.evidence.get(name, ()))
            await asyncio.sleep(2.0)

    def report(self, node: str, frames: Mapping[str, bytes]) -> None:
        self.loop.call_soon_threadsafe(lambda: self.agents[node].report(frames))

    def find(self, node: str, *evidence: Evidence) -> None:
        self.evidence[node] = evidence
        self.loop.call_soon_threadsafe(lambda: self.agents[node].report(evidence=evidence))

    def forward(self, found: HealthReport) -> None:
        """Sends what a node's health feed has to say."""
        if found.evidence is not None:
            self.evidence[found.node] = found.evidence
        self.loop.call_soon_threadsafe(lambda: self.agents[found.node].report(found.frames, found.evidence))

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()

    async def _end(self) -> None:
        """Ends every task, and every connection whether or not the operator reads what waits for it."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for agent in self.agents.values():
            agent.hang_up()
        await asyncio.sleep(0)


@dataclass
class Job:
    """Ranks that reduce together in steps, as their recorders tell it, on pods of one gang."""

    pods: Sequence[str]
    """UID of each rank's pod."""
    nodes: Sequence[str]
    agents: Agents
    hangs: int = -1
    """Rank that does not enter the next operation; -1: none."""
    forges: Callable[[int, bytes], bytes] = lambda _, frame: frame
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._frames: list[list[bytes]] = [[] for _ in self.pods]
        self._recorders = [Recorder(frames.append, rank=rank) for rank, frames in enumerate(self._frames)]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        everyone = range(len(self.pods))
        groups = []
        for rank, recorder in enumerate(self._recorders):
            recorder.place(stage=0, replica=rank, ranks=len(self.pods))
            groups.append(recorder.join("dp", list(everyone), Role.DATA))
        random, step, beaten_s = np.random.default_rng(0), 0, 0.0
        hung = False
        while not self._stop.wait(0.02):
            if not hung:
                step += 1
                entering = [rank for rank in everyone if rank != self.hangs]
                tokens = []
                for rank in entering:
                    self._recorders[rank].step(step)
                    tokens.append(self._recorders[rank].enter(groups[rank], Op.ALL_REDUCE, 1 << 20))
                time.sleep(float(random.uniform(0.001, 0.003)))
                hung = len(entering) < len(self.pods)
                if not hung:
                    for recorder, token in zip(self._recorders, tokens, strict=True):
                        recorder.exit(token)
            if time.monotonic() - beaten_s >= 0.25:
                beaten_s = time.monotonic()
                self._send()

    def _send(self) -> None:
        for rank, (recorder, frames) in enumerate(zip(self._recorders, self._frames, strict=True)):
            recorder.beat()
            sent = b"".join(self.forges(rank, frame) for frame in frames)
            frames.clear()
            self.agents.report(self.nodes[rank], {self.pods[rank]: sent})

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)


@dataclass
class Stage:
    """An operator, the agents of all nodes, and what the API server shows."""

    admin: Kubectl
    agents: Agents
    operator: OperatorProcess

    def policy(self, **spec: Any) -> None:
        whole = {
            "mode": "Act",
            "failureDomains": ["switch"],
            "budget": {"perJob": 100, "recentShare": 1.0, "totalShare": 1.0, "domainShare": 1.0},
            "probation": {"test": "1s", "lasts": "2s"},
            **spec,
        }
        manifest = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "all"}}
        self.admin("apply", "-f", "-", stdin={**manifest, "spec": whole})

    def taints(self) -> dict[str, str]:
        """Our taint on each node that has one."""
        found = {}
        for node in self.admin.get("nodes")["items"]:
            for taint in node["spec"].get("taints", []):
                if taint["key"].startswith("tonnage.dev/"):
                    found[node["metadata"]["name"]] = taint["key"]
        return found

    def incidents(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.admin.get("faultincidents")["items"]
        return found

    def open_incidents(self) -> list[dict[str, Any]]:
        return [each for each in self.incidents() if each.get("status", {}).get("phase", "Closed") != "Closed"]

    def gang(self, name: str, nodes: Sequence[str]) -> list[str]:
        """A running gang of one pod on each of these nodes; the pods' UIDs."""
        manifest = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": {"name": name}}
        self.admin("apply", "-f", "-", stdin={**manifest, "spec": {"minMembers": len(nodes)}})
        pods = []
        for number, node in enumerate(nodes):
            made = pod(f"{name}-{number}", gpus=8, nodeName=node, terminationGracePeriodSeconds=0)
            made["metadata"]["labels"] = {"tonnage.dev/gang": name}
            pods.append(made)
        self.admin("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": pods})
        found = {each["metadata"]["name"]: each for each in self.pods(name)}
        return [found[f"{name}-{number}"]["metadata"]["uid"] for number in range(len(nodes))]

    def pods(self, gang: str) -> list[dict[str, Any]]:
        found = self.admin.get("pods", "-l", f"tonnage.dev/gang={gang}")["items"]
        return [each for each in found if not each["metadata"].get("deletionTimestamp")]

    @contextmanager
    def job(self, name: str, nodes: Sequence[str], **kind: Any) -> Iterator[Job]:
        running = Job(self.gang(name, nodes), nodes, self.agents, **kind)
        try:
            yield running
        finally:
            running.close()
            self.admin("delete", "pods", "-l", f"tonnage.dev/gang={name}", "--force", "--grace-period=0")
            self.admin("delete", f"gang/{name}")

    @contextmanager
    def owned(self, name: str, ranks: int, **pods: Any) -> Iterator[None]:
        """A gang of one pod per node, whose pods Tonnage places and a StatefulSet makes anew. pods: their spec."""
        gang = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Gang", "metadata": {"name": name}}
        self.admin("apply", "-f", "-", stdin={**gang, "spec": {"minMembers": ranks}})
        labels = {"tonnage.dev/gang": name}
        template = pod_spec(gpus=8, schedulerName="tonnage", terminationGracePeriodSeconds=0, **pods)
        spec = {
            "serviceName": name,
            "replicas": ranks,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template},
        }
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}
        self.admin("apply", "-f", "-", stdin=owner)
        try:
            yield
        finally:
            self.admin("delete", f"statefulset/{name}", f"gang/{name}")
            self.admin("delete", "pods", "-l", f"tonnage.dev/gang={name}", "--force", "--grace-period=0")

    @contextmanager
    def training(self, name: str, ranks: int, backend: str) -> Iterator[Training]:
        """A gang with one rank in each of its pods."""
        with self.owned(name, ranks), ExitStack() as stack:
            api = PlainApi(self.admin.kubeconfig)
            stack.callback(api.close)
            # Short, as the paths of sockets must be.
            folder = stack.enter_context(TemporaryDirectory(prefix="t", dir="/tmp"))
            job = Training(api, name, ranks, Path(folder), self.agents.forward, backend)
            stack.callback(job.close)
            yield job

    def clean(self) -> None:
        """No policy, no incident, no taint, no evidence.

        A person releases what is suspected: the operator remembers incidents whose objects are deleted, and an open one
        of a switch would take the next test's hang for one more sign of it.
        """
        for node in NODES:
            self.agents.find(node)
        released = f"{RELEASED_ANNOTATION}={rfc3339(time.time() + 1)}"
        for node in {node for each in self.open_incidents() for node in each["spec"].get("nodes", [])}:
            self.admin("annotate", "--overwrite", f"node/{node}", released)
        until(lambda: not self.open_incidents(), "incidents are closed", within_s=60)
        self.admin("delete", "healthpolicies", "--all")
        self.admin("delete", "faultincidents", "--all")
        for key in (UNHEALTHY_TAINT, PROBATION_TAINT):
            with suppress(Exception):
                self.admin("taint", "nodes", "--all", f"{key}-")


@contextmanager
def staged(admin: Kubectl, folder: Path) -> Iterator[Stage]:
    """An operator and agents of all nodes."""
    with ExitStack() as stack:
        process = stack.enter_context(
            operator(
                admin.kubeconfig,
                folder,
                power={"enabled": True, "port": 0, "tls": credentials().power},
                health={"enabled": True},
                limits={"max_nodes_out_share": 1.0},
                pools=[{"placer": "bind"}],
            )
        )
        started = process.said("started")
        assert started is not None
        agents = Agents(admin, int(started["power_port"]))
        stack.callback(agents.close)
        yield Stage(admin, agents, process)


@pytest.fixture(scope="module")
def stage(admin: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(admin, tmp_path_factory.mktemp("operator")) as made:
        yield made


def xid(number: int = 79) -> Evidence:
    return Evidence(Source.KERNEL, f"Xid{number}", "0000:3b:00", 0.0, "GPU has fallen off the bus")


def test_a_faulty_node_is_tainted_within_a_second_and_comes_back_over_probation(stage: Stage) -> None:
    stage.policy()
    until(lambda: stage.admin.get("healthpolicy/all").get("status", {}).get("nodes") == len(NODES), "it governs all")
    took_s = []
    for node in NODES[::4]:
        began_s = time.monotonic()
        stage.agents.find(node, xid())
        until(lambda n=node: stage.taints().get(n) == UNHEALTHY_TAINT, "the node is tainted", within_s=30)  # type: ignore[misc]
        took_s.append(time.monotonic() - began_s)
    assert sorted(took_s)[-1] < 10, took_s
    assert {each["status"]["phase"] for each in stage.open_incidents()} <= {"Acting", "Quarantined"}
    condition = {c["type"]: c for c in stage.admin.get("node/n0")["status"]["conditions"]}
    assert condition["CollectiveHealthy"]["status"] == "False"

    for node in NODES[::4]:
        stage.agents.find(node)  # repaired: the kernel's log is new
    until(lambda: PROBATION_TAINT in stage.taints().values(), "a node is on probation", within_s=60)
    until(lambda: not stage.taints(), "all nodes are back", within_s=60)
    until(lambda: not stage.open_incidents(), "the incidents are closed", within_s=30)
    stage.clean()


def corpus(*asks: str) -> list[str]:
    """Every eighth line of the unit tests' corpus that asks for this."""
    lines = Path("tests/unit/nodeagent/health/kernel_lines.txt").read_text(encoding="utf-8").splitlines()
    return [each.split(" | ", 2)[2] for each in lines if each.split(" | ")[0] in asks][::8]


def told_by_kernel(lines: Iterable[str]) -> list[Evidence]:
    records = iter([*(f"4,{number},5000000,-;{line}".encode() for number, line in enumerate(lines)), None])
    return list(KernelLog(lambda: next(records)).read(5.0))


def test_lines_of_the_kernel_take_out_no_healthy_node_and_leave_no_fatal_one(stage: Stage) -> None:
    healthy, fatal = corpus("none", "watch"), corpus("after-job", "now")
    assert len(healthy) + len(fatal) >= 20
    stage.policy()
    until(lambda: stage.admin.get("healthpolicy/all").get("status", {}).get("nodes") == len(NODES), "it governs all")
    first, *others = NODES[::4]
    stage.agents.find(first, *told_by_kernel(healthy))
    while fatal:
        hurt, fatal = fatal[: len(others)], fatal[len(others) :]
        for node, line in zip(others, hurt, strict=False):
            stage.agents.find(node, *told_by_kernel([line]))
        out = set(others[: len(hurt)])
        until(lambda wanted=out: set(stage.taints()) == wanted, "fatal ones take theirs out", within_s=30)  # type: ignore[misc]
        for node in others:
            stage.agents.find(node)  # repaired
        until(lambda: not stage.taints() and not stage.open_incidents(), "they are back", within_s=60)
    stage.clean()


def test_two_faults_under_one_switch_make_one_incident_and_take_out_no_node(stage: Stage) -> None:
    stage.policy()
    for node in ("n0", "n1"):
        stage.agents.find(node, xid())

    def is_one() -> bool:
        found = stage.open_incidents()
        return len(found) == 1 and found[0]["spec"].get("domain") == "switch=leaf-0"

    until(is_one, "the switch is the one suspect", within_s=60)
    until(lambda: not stage.taints(), "no node is out for it", within_s=60)
    stage.clean()


@pytest.mark.parametrize("backend", ["sockets", "gloo"])
def test_a_hung_job_goes_on_elsewhere_from_its_last_complete_checkpoint(stage: Stage, backend: str) -> None:
    """Eight processes reduce together; one stops while the others have saved their part of the next checkpoint."""
    if backend == "gloo" and find_spec("torch") is None:
        pytest.skip("torch is not installed: `pip install torch` has this job reduce through gloo as well")
    stage.policy()
    with stage.training("trains", 8, backend) as job:
        # Eight processes import torch, which takes a busy machine minutes.
        assert comes_true(lambda: job.saved >= 5 * SAVE_EVERY, within_s=400), job.complaints()
        node = job.runs[0][5].node
        job.hang_on(node)
        until(lambda: stage.taints().get(node) == UNHEALTHY_TAINT, "its node is tainted", within_s=60)
        saved = job.saved
        evicted = {rank.uid for rank in job.runs[0].values()}
        until(lambda: not evicted <= {each["metadata"]["uid"] for each in stage.pods("trains")}, "it is evicted")
        # Not awaited: what was decided is on record before the first member is evicted.
        (status,) = [each["status"] for each in stage.open_incidents() if each["spec"].get("nodes") == [node]]
        assert status["remedy"] == "quarantine"
        assert (status["syndrome"], status["jobs"]) == ("non-communication-hang", ["default/trains"])
        assert {each["do"] for each in status["alternatives"]} >= {"evict now", "restart in place"}
        assert any(line.startswith("stack: rank 5 in controlplane/training_rank.py:") for line in status["evidence"]), (
            status
        )
        assert delay_s(stage.operator, node) < 10.0

        until(lambda: len(job.runs) == 2 and job.restored_from(1) >= 0, "it runs again", within_s=400)
        assert set(stage.taints()) <= {node}
        assert node not in {rank.node for rank in job.runs[1].values()}
        assert (job.saves / f"{saved + SAVE_EVERY}.0").exists()  # begun, and never complete
        assert job.restored_from(1) == saved

        until(lambda: stage.taints().get(node) in (PROBATION_TAINT, None), "its node is on probation", within_s=60)
        until(lambda: not stage.taints(), "its node is back", within_s=60)
        until(lambda: job.saved >= saved + SAVE_EVERY, "it makes progress")
        assert len(job.runs) == 2
        step, weights = restored(job.saves, job.ranks)
        assert weights == uninterrupted(step, job.ranks)
    stage.clean()


def uninterrupted(steps: int, ranks: int) -> list[float]:
    """Parameters after so many steps of a job that never stopped."""
    parts = [gradient(step, rank) for step in range(1, steps + 1) for rank in range(ranks)]
    return [sum(each) for each in zip(*parts, strict=True)]


def delay_s(process: OperatorProcess, node: str) -> float:
    """Seconds from the first verdict on the job to the taint that followed, by the operator's own log."""
    lines = iter(list(process.lines))
    verdict = next(
        line for line in lines if line.get("event") == "verdict on a job" and line["job"] == "default/trains"
    )
    taint = next(line for line in lines if line.get("event") == "action done" and line.get("node") == node)
    at_s = [datetime.fromisoformat(line["timestamp"]).timestamp() for line in (verdict, taint)]
    return at_s[1] - at_s[0]


def test_a_gang_whose_preflight_accuses_a_node_begins_without_it(stage: Stage) -> None:
    stage.policy()
    with stage.owned("tried", RANKS):

        def seats() -> dict[str, tuple[str, str]]:
            """UID and node of each pod that has one."""
            found = [(each["metadata"], each["spec"].get("nodeName")) for each in stage.pods("tried")]
            return {meta["name"]: (meta["uid"], node) for meta, node in found if node}

        until(lambda: len(seats()) == RANKS, "all are placed", within_s=60)
        before = [seats()[f"tried-{rank}"] for rank in range(RANKS)]
        culprit = before[2][1]

        def is_out() -> bool:
            """Said again and again, as by pods whose init containers are restarted."""
            for rank, (uid, node) in enumerate(before):
                frames: list[bytes] = []
                report(frames.append, rank, RANKS, [Accused(AccusedPart.DEVICE, 2, share=0.4)] if rank == 0 else ())
                stage.agents.report(node, {uid: b"".join(frames)})
            return stage.taints().get(culprit) == UNHEALTHY_TAINT

        until(is_out, "the node is out", within_s=30)
        gone = {uid for uid, _ in before}
        until(
            lambda: len(seats()) == RANKS and not gone & {uid for uid, _ in seats().values()},
            "it begins anew",
            within_s=60,
        )
        assert culprit not in {node for _, node in seats().values()}
        (incident,) = stage.open_incidents()
        assert incident["status"]["evidence"][0] == "preflight: its matrix products reach 40 % of what is usual"
    stage.clean()


def test_a_gang_waits_for_the_preflight_that_a_policy_asks_for_and_begins_with_it(stage: Stage) -> None:
    stage.policy(preflight="45s")

    def said() -> set[str]:
        events = stage.admin.get("events.events.k8s.io")["items"]
        return {each["note"] for each in events if "PreflightMissing" in each.get("note", "")}

    with stage.owned("untried", RANKS):
        until(said, "it is told what to add", within_s=60)
        assert not any(each["spec"].get("nodeName") for each in stage.pods("untried"))
        (note,) = said()
        shown = yaml.safe_load("{" + note.partition("{")[2].rpartition("}")[0] + "}")
    assert shown["command"] == ["python", "-m", "tonnage.preflight", f"--ranks={RANKS}", "--within=45"]
    added = {"name": shown["name"], "command": shown["command"], "image": "train", "resources": {"limits": {GPU: "8"}}}
    with stage.owned("shown", RANKS, initContainers=[added]):
        until(lambda: all(each["spec"].get("nodeName") for each in stage.pods("shown")), "it is placed", within_s=60)
    stage.policy(preflight="45s", mode="Observe")
    with stage.owned("free", RANKS):
        until(lambda: all(each["spec"].get("nodeName") for each in stage.pods("free")), "nothing is asked", within_s=60)
    stage.clean()


def test_a_budget_that_never_allows_a_disruption_is_named_and_kept(stage: Stage) -> None:
    stage.policy()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "never"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"tonnage.dev/gang": "kept"}}},
    }
    stage.admin("apply", "-f", "-", stdin=budget)
    with stage.job("kept", ("n4", "n5", "n6", "n7")) as job:
        time.sleep(6)  # until its budget is read
        job.hangs = 1

        def waits() -> set[str]:
            conditions = [c for each in stage.open_incidents() for c in each["status"]["conditions"]]
            return {c["reason"] for c in conditions if c["type"] == "Waiting" and c["status"] == "True"}

        until(lambda: "DrainBlocked" in waits(), "the budget is named", within_s=60)
        assert len(stage.pods("kept")) == RANKS
    stage.admin("delete", "pdb/never")
    stage.clean()


def test_a_pod_that_forges_records_gets_no_node_quarantined_outside_its_own_job(stage: Stage) -> None:
    """Its job of one rank on n8 tells of hangs of ranks and pods of others; it may have its own node alone."""
    stage.policy()
    with ExitStack() as stack:
        honest = stack.enter_context(stage.job("honest", ("n4", "n5", "n6", "n7")))
        (liar,) = stage.gang("liar", ["n8"])
        time.sleep(4)
        stop = time.monotonic() + 12
        while time.monotonic() < stop:
            for rank in range(4):
                waiting = records.packed(Kind.IN_FLIGHT, op=Op.ALL_REDUCE, seq=10**6, for_ns=10**12, peer=rank)
                beat = records.packed(Kind.BEAT, group=1, seq=1, at_ns=time.monotonic_ns(), for_ns=10**12)
                lie = records.frame(
                    [beat, waiting], rank=rank, at_ns=time.monotonic_ns(), wall_minus_ns=0, incarnation=9, dropped=0
                )
                # Under its own name, under another's on its own node's connection, and with nonsense.
                for pod_uid in (liar, honest.pods[rank], "no-pod"):
                    stage.agents.report("n8", {pod_uid: lie})
            time.sleep(0.25)
        assert set(stage.taints()) <= {"n8"}
        accused = {node for each in stage.open_incidents() for node in each["spec"].get("nodes", [])}
        assert not accused & {"n4", "n5", "n6", "n7"}
        refused = stage.operator.counted("tonnage_health_refused")
        assert refused['tonnage_health_refused{cause="not a member here"}'] > 0
        assert len(stage.pods("honest")) == RANKS
    stage.admin("delete", "pods", "-l", "tonnage.dev/gang=liar", "--force", "--grace-period=0")
    stage.clean()
