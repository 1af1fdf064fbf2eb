"""Claims beyond placing: pods that wait are told why, and allocations that came to nothing are taken back."""

from dataclasses import replace

from cluster.actions import Bind
from cluster.plans import Phase, Plan, Reason, Step
from controller.dra.objects import ResourceClaim
from controller.kube.cluster_view import SeenPod
from controller.kube_world.claim_cleanup import TakesAllocationsBack
from tests.builders.dra import claim
from tests.unit.controller.kube.fake_cluster_view import Clock

HALF = claim("c", on=("a", ("gpu-0",)), reserved_for=["p"], epoch="4")
WAITS = SeenPod("ns/p", "uid-p", "1", scheduler_name="tonnage", has_claims=True)


def keeper(clock: Clock, user: SeenPod = WAITS, half: ResourceClaim = HALF) -> TakesAllocationsBack:
    return TakesAllocationsBack(lambda: {"ns/c": half}, lambda _: (user,), 30.0, clock, lambda: 5)


def test_an_allocation_whose_pod_gets_no_node_is_taken_back_after_its_deadline() -> None:
    clock = Clock()
    back = keeper(clock)

    assert list(back.jobs(Plan())) == []
    clock.now_s = 29.9
    assert list(back.jobs(Plan())) == []
    clock.now_s = 30.0
    mark, status = back.jobs(Plan())

    assert mark.about == status.about
    assert mark.write.path.endswith("/namespaces/ns/resourceclaims/c")
    assert mark.write.body == {
        "metadata": {"uid": "uid-c", "resourceVersion": "7", "annotations": {"tonnage.dev/epoch": "5"}}
    }
    assert status.write.path.endswith("/namespaces/ns/resourceclaims/c/status")
    assert status.write.body == {
        "metadata": {"uid": "uid-c"},
        "status": {"allocation": None, "reservedFor": None},
    }
    assert status.write.on_version_of_answer, "what the claim became by the first write, and nothing later"


def test_an_allocation_is_left_while_its_pod_is_being_placed() -> None:
    placing = Plan((Phase("start pods", (Step(Bind("ns/p", "a"), Reason("Test", "")),)),))
    for user, plan in (
        (WAITS, placing),
        (replace(WAITS, node="a"), Plan()),
        (replace(WAITS, chosen_node="a"), Plan()),  # kube-scheduler may bind it at any moment
    ):
        clock = Clock()
        back = keeper(clock, user)
        assert list(back.jobs(plan)) == []
        clock.now_s = 1000.0
        assert list(back.jobs(plan)) == []


def test_another_claim_of_the_same_name_has_the_whole_time() -> None:
    clock, standing = Clock(), {"ns/c": HALF}
    back = TakesAllocationsBack(lambda: standing, lambda _: (WAITS,), 30.0, clock, lambda: 5)
    list(back.jobs(Plan()))
    clock.now_s = 29.0
    again = claim("c", on=("a", ("gpu-0",)), epoch="4")
    standing["ns/c"] = ResourceClaim(type(HALF.metadata)("c", "ns", "another"), again.spec, again.status)
    list(back.jobs(Plan()))
    clock.now_s = 31.0

    assert list(back.jobs(Plan())) == []
