"""Isolation on a real API server: SandboxPolicies, pods of agents, orders to a node, and what is reported of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.api.kinds import OWN_KINDS
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import ControlPlaneSettings
from tests.agents.credentials import credentials
from tests.controlplane.agent_tokens import agent_token
from tests.controlplane.isolation import FakeIsolation, GuestIsolation, agent_pod, isolating_agent, linked, policy
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.operators import OperatorProcess, operator, until
from tests.controlplane.servers import StartServer
from tests.rigs.kernel.guest import Guest

pytestmark = pytest.mark.controlplane
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def admin(start_server: StartServer, programs: Programs) -> Kubectl:
    server = start_server(ControlPlaneSettings(nodes=2))
    kubectl = Kubectl(programs["kubectl"], server.kubeconfig)
    kubectl("apply", "-f", str(ROOT / "deploy" / "crds"))
    for kind in OWN_KINDS:
        kubectl.wait("condition=Established", f"crd/{kind.definition}")
    kubectl("create", "namespace", "tonnage-system")
    until(lambda: len(kubectl.get("nodes")["items"]) == 2, "the simulated nodes are there")
    return kubectl


@pytest.fixture(scope="module")
def nodes(admin: Kubectl) -> list[str]:
    return sorted(str(each["metadata"]["name"]) for each in admin.get("nodes")["items"])


@pytest.fixture(scope="module")
def port(admin: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An operator that isolates; its port for the nodes' agents."""
    folder = tmp_path_factory.mktemp("isolation")
    power = {"enabled": True, "port": 0, "tls": credentials().power}
    with operator(admin.kubeconfig, folder, power=power, isolation={"enabled": True}) as process:
        yield port_of(process)


@pytest.fixture(scope="module")
def story(admin: Kubectl, nodes: list[str], port: int) -> Iterator[tuple[Kubectl, FakeIsolation]]:
    """A policy, a pod that it covers, and the node's agent."""
    default = admin.within("default")
    default("apply", "-f", "-", stdin=policy("coders"))
    default("apply", "-f", "-", stdin=agent_pod("coder", nodes[0]))
    default("wait", "--for=condition=Ready", "pod/coder", "--timeout=60s")
    with isolating_agent(nodes[0], port, agent_token(admin, nodes[0])) as agent:
        yield default, agent


def port_of(process: OperatorProcess) -> int:
    until(lambda: process.said("started") is not None, "it started")
    started = process.said("started")
    assert started is not None
    return int(started["power_port"])


def ready(kubectl: Kubectl, name: str = "coders") -> dict[str, Any]:
    status = kubectl.get(f"sandboxpolicy/{name}").get("status", {})
    return next((each for each in status.get("conditions", []) if each["type"] == "Ready"), {})


def is_controlled(kubectl: Kubectl, name: str = "coders") -> bool:
    """True once the policy's pods are under control; a policy whose pods are not seen yet is ready, too (`NoPods`)."""
    return bool(ready(kubectl, name).get("reason") == "Controlled")


def events(kubectl: Kubectl, pod: str, reason: str) -> list[dict[str, Any]]:
    chosen = f"regarding.name={pod},reason={reason}"
    return list(kubectl.get("events.events.k8s.io", "--field-selector", chosen)["items"])


def test_a_covered_pod_is_ordered_and_its_state_reaches_the_policy(story: tuple[Kubectl, FakeIsolation]) -> None:
    kubectl, agent = story
    pod = kubectl.get("pod/coder")

    until(lambda: is_controlled(kubectl), "the policy's pods are under control")

    assert agent.orders is not None
    order = agent.orders.sandboxes[pod["metadata"]["uid"]]
    assert order.container_id == pod["status"]["containerStatuses"][0]["containerID"]
    assert (order.priority, order.budget_bytes, order.tenant) == (100, 4 << 30, "coders/default")
    status = kubectl.get("sandboxpolicy/coders")["status"]
    figures = {name: status[name] for name in ("selected", "controlled", "running", "queued", "frozen")}
    assert figures == {"selected": 1, "controlled": 1, "running": 2, "queued": 1, "frozen": 1}


@pytest.mark.parametrize("what", ["ToolCallKilled", "Frozen"])
def test_what_happens_to_tool_calls_is_an_event_of_the_pod(story: tuple[Kubectl, FakeIsolation], what: str) -> None:
    kubectl, agent = story
    until(lambda: is_controlled(kubectl), "the policy's pods are under control")

    agent.happened = {**agent.happened, f"{what}/HIGHER_PRIORITY_NEEDS_MEMORY": 3}

    until(lambda: bool(events(kubectl, "coder", what)), "the Event is there")
    (event,) = events(kubectl, "coder", what)
    assert event["note"].startswith("HIGHER_PRIORITY_NEEDS_MEMORY: 3 times: a tool call ")
    assert event["type"] == ("Warning" if what == "ToolCallKilled" else "Normal")


def test_a_node_that_cannot_isolate_is_named_with_the_reason(story: tuple[Kubectl, FakeIsolation]) -> None:
    kubectl, agent = story
    agent.level, agent.why = "none", "cgroup v1: isolation needs cgroup v2"

    until(lambda: ready(kubectl).get("status") == "False", "the policy is not ready")

    assert "cgroup v1" in ready(kubectl)["message"]
    (trouble,) = kubectl.get("sandboxpolicy/coders")["status"]["troubles"]
    assert trouble["pod"] == "default/coder"


def test_a_tool_call_that_is_killed_on_a_real_kernel_is_an_event_of_its_pod(
    admin: Kubectl, nodes: list[str], port: int, guest: Guest
) -> None:
    """The isolation process itself: policy, order, cgroups, a call that outgrows its claim, report, Event, status."""
    kubectl = admin.within("default")
    kubectl("apply", "-f", "-", stdin=policy("bursts", selector={"matchLabels": {"app": "burst"}}))
    kubectl("apply", "-f", "-", stdin=agent_pod("burst", nodes[1], app="burst"))
    kubectl("wait", "--for=condition=Ready", "pod/burst", "--timeout=60s")
    pod = kubectl.get("pod/burst")
    container = pod["status"]["containerStatuses"][0]["containerID"]
    isolation = GuestIsolation(guest, nodes[1], pod["metadata"]["uid"], container)

    with linked(nodes[1], port, isolation, agent_token(admin, nodes[1])):
        until(lambda: is_controlled(kubectl, "bursts"), "the policy's pods are under control")
        found = isolation.outgrow()
        until(lambda: bool(events(kubectl, "burst", "ToolCallKilled")), "the Event is there")

    assert (found["outcome"], found["reason"]) == ("killed", "OUTGREW_CLAIM")
    (event,) = events(kubectl, "burst", "ToolCallKilled")
    assert event["note"].startswith("OUTGREW_CLAIM")
    assert kubectl.get("sandboxpolicy/bursts")["status"]["controlled"] == 1
