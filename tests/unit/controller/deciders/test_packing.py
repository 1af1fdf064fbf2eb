"""The packing decider and what it keeps from plan to plan."""

from dataclasses import replace
from threading import Event

from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions
from controller.deciders.memory import Warmth
from controller.deciders.packing import PRICES_LATE
from controller.deciders.pipeline import decide
from placement.budget import stopped
from placement.engine.policy import Adopt
from placement.policies.bid_price import BidPrice
from tests.builders.fleet import Pod, node, pod, world
from tests.builders.mix import profile, service

NODES = [node("a", gpus=8, gpu_type="A100"), node("b", gpus=8, gpu_type="L4")]


def planned(seen: Snapshot, warmth: Warmth, decisions: Decisions | None = None, deadline_s: float = 60.0) -> list[str]:
    """Codes of what cut the plan short."""
    plan = decide(seen, decisions or Decisions(), deadline_s=deadline_s, clock=stopped, warmth=warmth)
    return [reason.code for reason in plan.cut_short]


def policy_of(warmth: Warmth, share: int = 0) -> BidPrice:
    kept = warmth.memory(share).packing
    assert kept is not None
    policy = kept.packer.policy
    assert isinstance(policy, BidPrice)
    return policy


def runs(name: str, on: str) -> Pod:
    return pod(name, gpus=1, gpu_milli=1, cpu_milli=1, on=on, devices=(0,))


def test_pods_that_run_and_none_that_waits_make_no_prices() -> None:
    warmth = Warmth()
    pods = [runs(f"p{n}", "ab"[n % 2]) for n in range(1000)]

    for gone in range(3):
        planned(world(NODES, pods[gone:]), warmth)

    assert policy_of(warmth).book.shares.classes == ()


def test_prices_that_are_late_are_named_and_the_earlier_ones_used() -> None:
    warmth, may_end = Warmth(), Event()
    seen = world(NODES, [pod("w", gpus=1)])
    planned(seen, warmth)
    book = policy_of(warmth).book
    kept = warmth.memory(0).packing
    assert kept is not None

    def work() -> Adopt:
        may_end.wait(timeout=10)
        return lambda: None

    kept.worker.begin(work)
    codes = planned(seen, warmth, deadline_s=0.0)
    may_end.set()

    assert PRICES_LATE.code in codes
    assert policy_of(warmth).book is book


def test_instances_that_this_plan_adds_arrive_only_when_they_are_observed() -> None:
    profiles = (profile("A100", ((3.0, 2.0),)), profile("L4", ((0.9, 0.3),)))
    seen = replace(world(NODES, services=[service("ns/s", 3.0, ((0.4, 0.6),))]), profiles=profiles)
    warmth, decisions = Warmth(), Decisions(awaits_pods=True)

    for _ in range(3):
        planned(seen, warmth, decisions)
    alone = policy_of(warmth).mix.pods
    planned(world(NODES, [pod("s-real-name", gpus=1)]), warmth, decisions)

    assert alone == 0
    assert policy_of(warmth).mix.pods == 1


def test_each_share_of_the_cluster_learns_of_its_own_pods() -> None:
    decisions = Decisions(shares=2)
    warmth = Warmth()
    fixed = [pod("to-a", gpus=1, gpu_types=("A100",)), pod("to-b", gpus=1, gpu_types=("L4",))]
    planned(world(NODES, fixed), warmth, decisions)

    later = [*fixed, *(pod(f"more-{n}", gpus=1, gpu_types=("L4",)) for n in range(5))]
    planned(world(NODES, later), warmth, decisions)

    assert sorted(policy_of(warmth, share).mix.pods for share in range(2)) == [0, 5]
