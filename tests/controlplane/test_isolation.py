"""Isolation on a real API server: SandboxPolicies, pods of agents, orders to a node, and what is reported of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api.kinds import OWN_KINDS
from power.leases.messages import Keys
from simulator.controlplane.binaries.programs import Programs
from simulator.controlplane.commands import Settings
from tests.agents.agent_process import KEY, write_keys
from tests.controlplane.isolation import FakeIsolation, agent_pod, isolating_agent, policy
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import OperatorProcess, operator, until
from tests.controlplane.servers import StartServer

pytestmark = pytest.mark.controlplane
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def admin(start_server: StartServer, programs: Programs) -> Kubectl:
    server = start_server(Settings(nodes=1))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for kind in OWN_KINDS:
        kubectl.wait("condition=Established", f"crd/{kind.definition}")
    kubectl("create", "namespace", "tonnage-system")
    until(lambda: bool(kubectl.get("nodes")["items"]), "the simulated node is there")
    return kubectl


@pytest.fixture(scope="module")
def story(admin: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kubectl, FakeIsolation]]:
    """A policy, a pod that it covers, an operator and the node's agent."""
    folder = tmp_path_factory.mktemp("isolation")
    node = str(admin.get("nodes")["items"][0]["metadata"]["name"])
    default = admin.within("default")
    default("apply", "-f", "-", stdin=policy("coders"))
    default("apply", "-f", "-", stdin=agent_pod("coder", node))
    default("wait", "--for=condition=Ready", "pod/coder", "--timeout=60s")
    power = {"enabled": True, "port": 0, "keys": str(write_keys(folder / "keys"))}
    with (
        operator(admin.kubeconfig, folder, power=power, isolation={"enabled": True}) as process,
        isolating_agent(node, port_of(process), Keys("k", {"k": KEY})) as agent,
    ):
        yield default, agent


def port_of(process: OperatorProcess) -> int:
    until(lambda: process.said("started") is not None, "it started")
    started = process.said("started")
    assert started is not None
    return int(started["power_port"])


def ready(kubectl: Kubectl) -> dict[str, Any]:
    status = kubectl.get("sandboxpolicy/coders").get("status", {})
    return next((each for each in status.get("conditions", []) if each["type"] == "Ready"), {})


def test_a_covered_pod_is_ordered_and_its_state_reaches_the_policy(story: tuple[Kubectl, FakeIsolation]) -> None:
    kubectl, agent = story
    pod = kubectl.get("pod/coder")

    until(lambda: ready(kubectl).get("status") == "True", "the policy is ready")

    assert agent.orders is not None
    order = agent.orders.sandboxes[pod["metadata"]["uid"]]
    assert order.container_id == pod["status"]["containerStatuses"][0]["containerID"]
    assert (order.priority, order.budget_bytes, order.tenant) == (100, 4 << 30, "coders/default")
    status = kubectl.get("sandboxpolicy/coders")["status"]
    figures = {name: status[name] for name in ("selected", "controlled", "running", "queued", "frozen")}
    assert figures == {"selected": 1, "controlled": 1, "running": 2, "queued": 1, "frozen": 1}


@pytest.mark.parametrize("what", ["ToolCallKilled", "Frozen", "Throttled"])
def test_what_happens_to_tool_calls_is_an_event_of_the_pod(story: tuple[Kubectl, FakeIsolation], what: str) -> None:
    kubectl, agent = story
    until(lambda: ready(kubectl).get("status") == "True", "the policy is ready")

    agent.happened = {**agent.happened, f"{what}/HIGHER_PRIORITY_NEEDS_MEMORY": 3}

    def events() -> list[dict[str, Any]]:
        chosen = f"regarding.name=coder,reason={what}"
        return list(kubectl.get("events.events.k8s.io", "--field-selector", chosen)["items"])

    until(lambda: bool(events()), "the Event is there")
    (event,) = events()
    assert event["note"].startswith("HIGHER_PRIORITY_NEEDS_MEMORY: 3 times: a tool call ")
    assert event["type"] == ("Warning" if what == "ToolCallKilled" else "Normal")


def test_a_node_that_cannot_isolate_is_named_with_the_reason(story: tuple[Kubectl, FakeIsolation]) -> None:
    kubectl, agent = story
    agent.level, agent.why = "none", "cgroup v1: isolation needs cgroup v2"

    until(lambda: ready(kubectl).get("status") == "False", "the policy is not ready")

    assert "cgroup v1" in ready(kubectl)["message"]
    (trouble,) = kubectl.get("sandboxpolicy/coders")["status"]["troubles"]
    assert trouble["pod"] == "default/coder"
