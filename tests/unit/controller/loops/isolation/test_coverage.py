"""Which policy covers which pod, and what its node is ordered."""

from decimal import Decimal
from typing import Any

import pytest

from controller.api.sandbox_policy import PodSelector, SandboxClass, SandboxPolicySpec
from controller.api.structs import Container, PodMeta, PodSpec
from controller.loops.isolation.coverage import SandboxContainerStatus, SandboxPod, SandboxPodStatus, coverage_of

CLASSES = (SandboxClass(name="batch"), SandboxClass(name="interactive", priority=100, budget=Decimal(4 << 30)))


def spec(**told: Any) -> SandboxPolicySpec:
    return SandboxPolicySpec(**{"classes": CLASSES, **told})


def pod(name: str, *, uid: str = "u", phase: str = "Running", deleted: str | None = None, **labels: str) -> SandboxPod:
    return SandboxPod(
        PodMeta(name, "team-a", uid, deletion_timestamp=deleted, labels={"tonnage.dev/sandbox": "", **labels}),
        PodSpec(node_name="n1", containers=(Container("agent"), Container("sidecar"))),
        SandboxPodStatus(
            phase,
            container_statuses=(
                SandboxContainerStatus("sidecar", container_id="cri-o://s"),
                SandboxContainerStatus("agent", container_id="cri-o://a"),
            ),
        ),
    )


def covered(policies: dict[str, SandboxPolicySpec], *pods: SandboxPod) -> dict[str, str]:
    found = coverage_of(policies, {f"team-a/{each.metadata.name}": each for each in pods}).pods
    return {each.pod: each.policy for each in found.values()}


def test_a_policy_without_namespaces_and_labels_covers_every_pod_of_an_agent() -> None:
    assert covered({"p": spec()}, pod("x")) == {"team-a/x": "p"}


def test_namespaces_and_labels_narrow_it() -> None:
    here = PodSelector(matchLabels={"app": "coder"})

    assert covered({"p": spec(namespaces=("team-b",))}, pod("x")) == {}
    assert covered({"p": spec(selector=here)}, pod("x")) == {}
    assert covered({"p": spec(selector=here, namespaces=("team-a",))}, pod("x", app="coder")) == {"team-a/x": "p"}


def test_a_pod_of_two_policies_belongs_to_the_first_by_name() -> None:
    assert covered({"b": spec(), "a": spec()}, pod("x")) == {"team-a/x": "a"}


@pytest.mark.parametrize("gone", [pod("x", phase="Succeeded"), pod("x", deleted="2026-03-01T12:00:00Z")])
def test_pods_that_end_are_not_covered(gone: SandboxPod) -> None:
    assert covered({"p": spec()}, gone) == {}


def test_the_label_chooses_the_class_and_the_first_holds_for_the_rest() -> None:
    pods = (pod("x", uid="1", **{"tonnage.dev/sandbox": "interactive"}), pod("y", uid="2"))
    found = coverage_of({"p": spec()}, {p.metadata.name: p for p in pods})

    orders = found.orders()["n1"]
    assert (orders["1"].priority, orders["1"].budget_bytes) == (100, 4 << 30)
    assert (orders["2"].priority, orders["2"].budget_bytes) == (0, None)


@pytest.mark.parametrize(("container", "wanted"), [(None, "cri-o://a"), ("sidecar", "cri-o://s")])
def test_the_container_of_the_agent_is_the_first_or_the_one_named(container: str | None, wanted: str) -> None:
    orders = coverage_of({"p": spec(container=container)}, {"x": pod("x")}).orders()

    assert orders["n1"]["u"].container_id == wanted
    assert orders["n1"]["u"].tenant == "p/team-a"


def test_a_pod_whose_container_does_not_run_is_covered_and_not_ordered() -> None:
    found = coverage_of({"p": spec(container="absent")}, {"x": pod("x")})

    assert set(found.pods) == {"u"}
    assert found.orders() == {}
