"""Devices of a claim whose pods get no node are taken back after a while."""

from dataclasses import replace

from cluster.actions import Bind, ReleaseClaim
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import IdleClaim
from controller.deciders import closing
from controller.deciders.decisions import Decisions
from controller.guard import Limits, guard
from tests.builders.fleet import node, pod, world
from tests.builders.turns import asked

DECISIONS = Decisions(release_deadline_s=30.0)


def idle(allocated_at_s: float) -> Snapshot:
    """At 100 s: a claim holds the only GPU of `a`, and its pod waits."""
    seen = world(
        [node("a", gpus=1), node("b", gpus=1)],
        [pod("ns/claim:c", gpus=1, on="a", devices=(0,)), pod("ns/p", gpus=1)],
        at_s=100.0,
    )
    return replace(seen, idle_claims=(IdleClaim("ns/c", ("ns/p",), allocated_at_s, "ns/claim:c"),))


def test_it_is_released_after_its_deadline_and_its_devices_are_free() -> None:
    late = asked(closing.release_claims, idle(70.0), DECISIONS)

    assert asked(closing.release_claims, idle(70.1), DECISIONS).actions == ()
    assert late.actions == (ReleaseClaim("ns/c"),)
    after = idle(70.0).after(late.actions)
    assert after.idle_claims == ()
    assert list(after.pods.names) == ["ns/p"]
    assert after.free().gpu_milli[0, 0] == 1000


def test_it_is_left_while_its_pod_is_being_placed() -> None:
    start = Plan((Phase("start", (Step(Bind("ns/p", "b", (0,)), Reason("Test", "")),)),))

    assert asked(closing.release_claims, idle(0.0), DECISIONS, start).actions == ()


def test_the_guard_strikes_a_release_out_whose_claim_is_in_use_or_not_idle() -> None:
    both = (Bind("ns/p", "b", (0,)), ReleaseClaim("ns/c"), ReleaseClaim("ns/other"))
    plan = Plan((Phase("do", tuple(Step(action, Reason("Test", "")) for action in both)),))

    guarded = guard(idle(0.0), plan, Limits())

    assert [each.reason.code for each in guarded.refused] == ["ClaimInUse", "NotFound"]
