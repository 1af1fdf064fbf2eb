"""Power on a real API server: PowerDomains, an operator process, and real agent processes with fake devices."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml

from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from simulator.controlplane.server import ControlPlane
from tests.agents import agent_process
from tests.agents.agent_process import limits_w, settings_file
from tests.agents.credentials import credentials
from tests.controlplane.agent_tokens import agent_token
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import GPU
from tests.controlplane.operators import OperatorProcess, operator, until
from tests.controlplane.servers import StartServer

pytestmark = pytest.mark.controlplane

ROOT = Path(__file__).parents[2]
NODES = {"n1": "a", "n2": "b"}
"""Node → its rack. Two fake H100s each: 200 to 700 W, floor 350 W, and their work would draw 600 W."""
WORST = 1.05
"""A limiter passes its limit by 5 % at worst (controller/loops/power/power_table.py)."""
AMPLE_W, TIGHT_W, MIDDLE_W = 3200.0, 1900.0, 2400.0
"""4 × 700 × 1.05 = 2940 W fit the first; 4 × 350 × 1.05 = 1470 W of floors fit all."""


@pytest.fixture(scope="module")
def server(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    manifests = tmp_path_factory.mktemp("fleet") / "nodes.yaml"
    has = {"cpu": "96", "memory": "1Ti", GPU: "2"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"rack": rack, "tonnage.dev/power-class": "high" if rack == "a" else "low"},
            },
            "status": {"allocatable": has},
        }
        for name, rack in NODES.items()
    ]
    manifests.write_text(yaml.safe_dump_all(nodes), encoding="utf-8")
    return start_server(ControlPlaneSettings(manifests=str(manifests)))


@pytest.fixture(scope="module")
def admin(server: ControlPlane, programs: Programs) -> Kubectl:
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for crd in ("gputypes", "modelprofiles", "modelservices", "gangs", "powerdomains"):
        kubectl.wait("condition=Established", f"crd/{crd}.tonnage.dev")
    kubectl("create", "namespace", "tonnage-system")
    return kubectl


def domain(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "tonnage.dev/v1alpha1", "kind": "PowerDomain", "metadata": {"name": name}, "spec": spec}


def row(budget_w: float) -> list[dict[str, Any]]:
    classes = [{"name": "high", "rank": 0}, {"name": "low", "rank": 1}]
    racks = [
        domain(
            f"rack-{rack}", type="rack", feeds=[{"name": "row"}], budgetWatts=1600.0,
            nodes={"key": "rack", "values": [rack]},
        )
        for rack in NODES.values()
    ]  # fmt: skip
    return [domain("row", type="row", budgetWatts=budget_w, classes=classes), *racks]


class Stage:
    """Agents of all nodes around one port, and the operators that serve it one after the other."""

    def __init__(self, admin: Kubectl, folder: Path) -> None:
        self.admin, self.folder = admin, folder
        self.port = 0
        self.operators = 0

    @contextmanager
    def operator(self) -> Iterator[OperatorProcess]:
        folder = self.folder / f"operator-{self.operators}"
        self.operators += 1
        folder.mkdir()
        power = {"enabled": True, "port": self.port, "tls": credentials().power}
        with operator(self.admin.kubeconfig, folder, power=power) as process:
            started = process.said("started")
            assert started is not None
            self.port = int(started["power_port"])
            yield process

    @contextmanager
    def agent(self, node: str) -> Iterator[Any]:
        folder = self.folder / node
        settings = settings_file(
            folder,
            node=node,
            port=self.port,
            token=agent_token(self.admin, node),
            backend="pretend",
            pretend={"devices": 2},
            period=0.5,
        )
        with agent_process.running(settings) as process:
            yield process

    def script(self, node: str, manners: Mapping[str, Any]) -> None:
        (self.folder / node).mkdir(exist_ok=True)
        (self.folder / node / "script.json").write_text(json.dumps(manners), encoding="utf-8")

    def limits_w(self, node: str) -> list[float]:
        return sorted(limits_w(self.folder / node).values())

    def all_limits_w(self) -> list[float]:
        return [limit for node in NODES for limit in self.limits_w(node)]

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(f"powerdomain/{name}").get("status", {})
        return found

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        conditions = self.status(name).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def set_budget(self, budget_w: float) -> None:
        patch = json.dumps({"spec": {"budgetWatts": budget_w}})
        self.admin("patch", "powerdomain/row", "--type=merge", "-p", patch)


@pytest.fixture
def stage(admin: Kubectl, tmp_path: Path) -> Iterator[Stage]:
    admin("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": row(AMPLE_W)})
    yield Stage(admin, tmp_path)
    admin("delete", "powerdomains", "--all", "--wait=true")


@contextmanager
def ready(stage: Stage, *nodes: str) -> Iterator[tuple[OperatorProcess, dict[str, Any]]]:
    """The operator, and the agents by their nodes, once every domain is Ready."""
    with ExitStack() as stack:
        process = stack.enter_context(stage.operator())
        agents = {node: stack.enter_context(stage.agent(node)) for node in nodes or NODES}
        for name in ("row", "rack-a", "rack-b"):
            stage.admin.wait("condition=Ready", f"powerdomain/{name}")
        yield process, agents


def test_a_status_tells_draw_headroom_and_conditions_of_its_generation(stage: Stage) -> None:
    with ready(stage) as (process, _):
        # Four devices draw 600 W each and nothing is in the way, once they have risen from their floors.
        full_w = pytest.approx(2400, abs=50)
        until(lambda: stage.status("row").get("drawWatts", 0) == full_w, "all four devices draw what they want")
        stage.admin.wait("condition=Degraded=False", "powerdomain/row")
        found = stage.admin.get("powerdomain/row")

        status = found["status"]
        assert (status["devices"], status["staleDevices"], status["budgetWatts"]) == (4, 0, AMPLE_W)
        assert status["cappedShare"] == 0
        assert status["worstWatts"] <= AMPLE_W
        assert {e["type"]: (e["status"], e["observedGeneration"]) for e in status["conditions"]} == {
            "Accepted": ("True", found["metadata"]["generation"]),
            "Ready": ("True", found["metadata"]["generation"]),
            "Degraded": ("False", found["metadata"]["generation"]),
        }
        settled = written_statuses(process)
        version = stage.admin.get("powerdomain/row")["metadata"]["resourceVersion"]
        turned = process.counted("tonnage_power_leases_total")
        pause(8)
        assert written_statuses(process) == settled, "an idle row writes nothing"
        assert stage.admin.get("powerdomain/row")["metadata"]["resourceVersion"] == version
        assert process.counted("tonnage_power_devices") != {}
        assert turned is not None


def test_a_lowered_budget_takes_watts_from_the_low_class_first_and_says_so(stage: Stage) -> None:
    with ready(stage):
        until(lambda: sum(stage.all_limits_w()) > 4 * 580, "everyone has what it needs")
        stage.set_budget(TIGHT_W)
        # Seconds, not minutes: the period of an agent, a look, a turn. 20 s are for a busy machine.
        until(lambda: WORST * sum(stage.all_limits_w()) <= TIGHT_W + 1, "the budget is kept", within_s=20)
        until(lambda: stage.status("row").get("heldBackDevices", 0) > 0, "who is held back is told")
        stage.admin.wait("condition=Ready", "powerdomain/row")

        assert min(stage.limits_w("n1")) >= max(stage.limits_w("n2"))
        assert (
            stage.condition("row", "Ready")["observedGeneration"]
            == stage.admin.get("powerdomain/row")["metadata"]["generation"]
        )

        def held() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = stage.status("rack-b").get("heldBack", [])
            return found

        # At the start, when nobody has confirmed anything yet, the rack is as full as the row, and may be named first.
        until(
            lambda: {(e["node"], e["serviceClass"], e["limitedBy"]) for e in held()} == {("n2", "low", "row")},
            "the rack tells which of its devices are held back, and by what",
        )
        words = tonnage(stage, "power", "explain", device := held()[0]["device"])
        assert f"{device} on n2 (rack-b, class low) may draw" in words
        assert "row cannot carry the other" in words
        shown = tonnage(stage, "get", "powerdomains").splitlines()
        assert {line.split()[0] for line in shown} == {"NAME", "row", "rack-a", "rack-b"}


def test_a_device_that_lies_is_named(stage: Stage) -> None:
    stage.script("n2", {"pretend-n2-0": {"lies": True}})
    with ready(stage):
        stage.set_budget(TIGHT_W)
        until(lambda: stage.status("rack-b").get("culprits"), "somebody is named")

        named = {(each["device"], each["node"]) for each in stage.status("rack-b")["culprits"]}
        assert named == {("pretend-n2-0", "n2")}
        assert stage.condition("row", "Degraded")["reason"] == "DevicesDisobey"
        assert stage.condition("rack-a", "Degraded")["status"] == "False"
        until(lambda: "Watching" in actions(stage.admin, "rack-b"), "an Event names it")


def test_a_silent_agent_makes_its_domain_unready_and_counts_at_its_worst(stage: Stage) -> None:
    with ready(stage) as (_, agents):
        until(lambda: stage.status("rack-b").get("drawWatts", 0) > 1000, "its devices are read")
        cap_w = sum(stage.limits_w("n2"))
        agents["n2"].send_signal(signal.SIGKILL)
        stage.admin.wait("condition=Ready=false", "powerdomain/rack-b")

        status = stage.status("rack-b")
        assert status["staleDevices"] == 2
        # Not what it drew last, 1200 W, but what its last caps allow.
        assert status["drawWatts"] == pytest.approx(WORST * cap_w, rel=0.15)
        assert status["worstWatts"] >= status["drawWatts"] - 2
        assert stage.condition("rack-a", "Ready")["status"] == "True"
        with stage.agent("n2"):
            stage.admin.wait("condition=Ready", "powerdomain/rack-b")


def test_without_an_operator_agents_fall_to_their_floor_and_another_takes_over(stage: Stage) -> None:
    with ready(stage) as (first, _):
        until(lambda: min(stage.all_limits_w()) > 400, "everyone has what it needs")
        before = term(first)
        first.send(signal.SIGKILL)
        first.process.wait()
        until(lambda: stage.all_limits_w() == [350.0] * 4, "leases have ended", within_s=30)
        with stage.operator() as second:
            until(lambda: min(stage.all_limits_w()) > 400, "the next one leases anew")

            assert term(second) > before
            stage.admin.wait("condition=Ready", "powerdomain/row")


def test_domains_that_cannot_be_are_told_and_those_before_stay(stage: Stage) -> None:
    with ready(stage):
        stage.admin("apply", "-f", "-", stdin=domain("rack-c", type="rack", feeds=[{"name": "rwo"}]))
        stage.admin.wait("condition=Accepted=false", "powerdomain/rack-c")
        assert "rwo" in stage.condition("rack-c", "Accepted")["message"]
        until(lambda: stage.condition("row", "Ready").get("reason") == "NotUsed", "the others say so")
        assert stage.status("row")["devices"] == 4

        stage.admin("delete", "powerdomain/rack-c")
        stage.admin.wait("condition=Ready", "powerdomain/row")


def tonnage(stage: Stage, *arguments: str) -> str:
    """What the command prints; it must succeed."""
    command = [sys.executable, "-m", "cli.main", *arguments, "--kubeconfig", str(stage.admin.kubeconfig)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def term(process: OperatorProcess) -> int:
    until(lambda: process.said("power loop begins a term"), "it leads")
    said = process.said("power loop begins a term")
    assert said is not None
    return int(said["epoch"])


def written_statuses(process: OperatorProcess) -> float:
    """Patches that were answered so far: nothing else is patched here but statuses and counted Events."""
    return process.counted("tonnage_api_requests_total").get('tonnage_api_requests_total{code="200",verb="patch"}', 0.0)


def actions(kubectl: Kubectl, name: str) -> set[str]:
    events = kubectl.within("default").get("events.events.k8s.io")["items"]
    return {each["action"] for each in events if each["regarding"].get("name") == name}


def pause(for_s: float) -> None:
    """Time in which nothing should happen."""
    Event().wait(for_s)
