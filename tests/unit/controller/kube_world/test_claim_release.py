"""Claims that hold devices for nothing are seen, and released by exactly the writes that were checked."""

from dataclasses import replace

import pytest

from cluster.actions import ReleaseClaim
from cluster.errors import ActionError
from cluster.workloads import IdleClaim
from controller.kube.cluster_view import SeenClaim
from controller.kube_world.planning_view import PlanningView
from controller.placers import DEFAULT_POOLS
from tests.builders import dra
from tests.builders.fleet import node, pod, world
from tests.clock import HandClock
from tests.unit.controller.kube.fake_cluster_view import FakeClusterView, fake_view, kubernetes
from tests.unit.controller.kube.fake_writer import FakeWriter

HALF = SeenClaim("ns/c", "u1", ("ns/p",), "ns/claim:c", placed_at_s=450.0)


def seen_with(claim: SeenClaim = HALF, **of_pod: object) -> FakeClusterView:
    seen = fake_view(world([node("a", gpus=1)], [pod("ns/p", gpus=1)], at_s=500.0))
    seen.half_made = (claim,)
    seen.pods["ns/p"] = replace(seen.pods["ns/p"], **of_pod)  # type: ignore[arg-type]
    return seen


def view_of(seen: FakeClusterView) -> PlanningView:
    return PlanningView(seen, DEFAULT_POOLS, clock=HandClock())


def test_a_claim_is_idle_since_it_was_given_its_devices_whoever_leads() -> None:
    assert view_of(seen_with()).snapshot().idle_claims == (IdleClaim("ns/c", ("ns/p",), 450.0, "ns/claim:c"),)


@pytest.mark.parametrize("of_pod", [{"node": "a"}, {"chosen_node": "a"}])
def test_a_claim_is_not_idle_when_its_pod_has_a_node_or_is_on_its_way(of_pod: dict[str, str]) -> None:
    assert view_of(seen_with(**of_pod)).snapshot().idle_claims == ()


def test_another_claim_of_the_same_name_has_the_whole_time() -> None:
    seen = seen_with(replace(HALF, placed_at_s=None))
    view = view_of(seen)
    view.snapshot()
    seen.now = replace(seen.now, at_s=600.0)
    seen.half_made = (replace(HALF, uid="u2", placed_at_s=None),)

    (idle,) = view.snapshot().idle_claims

    assert idle.allocated_at_s == 600.0


def test_a_release_is_written_under_preconditions() -> None:
    known = dra.book(dra.claim("c", on=("a", ("gpu-0",)), reserved_for=["p"], epoch="4"), dra.pod("p", "c"))

    mark, status = known.deallocate("ns/c", 5)

    assert mark.body == {
        "metadata": {"uid": "uid-c", "resourceVersion": "7", "annotations": {"tonnage.dev/epoch": "5"}}
    }
    assert status.path.endswith("/namespaces/ns/resourceclaims/c/status")
    assert status.body == {"metadata": {"uid": "uid-c"}, "status": {"allocation": None, "reservedFor": None}}
    assert status.on_version_of_answer, "what the claim became by the first write, and nothing later"


def test_a_claim_that_is_not_half_made_any_more_is_not_released() -> None:
    with pytest.raises(ActionError, match="it is gone"):
        dra.book().deallocate("ns/c", 5)


def test_the_world_refuses_a_release_whose_claim_is_not_idle() -> None:
    writer = FakeWriter()
    (answer,) = kubernetes(seen_with(node="a"), writer).apply([ReleaseClaim("ns/c")])

    assert isinstance(answer, ActionError)
