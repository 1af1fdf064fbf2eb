"""The packing decider and what it keeps from plan to plan."""

from dataclasses import replace
from threading import Event

from cluster.snapshot import Snapshot
from controller.deciders.decisions import Decisions
from controller.deciders.memory import PlannerMemory, Task
from controller.deciders.packing import PRICES_LATE
from controller.deciders.pipeline import decide
from placement.budget import stopped
from placement.engine.policy import Adopt
from placement.policies.bid_price import BidPrice
from tests.builders.fleet import Pod, node, pod, world
from tests.builders.mix import profile, service

NODES = [node("a", gpus=8, gpu_type="A100"), node("b", gpus=8, gpu_type="L4")]


def planned(
    seen: Snapshot, memory: PlannerMemory, decisions: Decisions | None = None, deadline_s: float = 60.0
) -> list[str]:
    """Codes of what cut the plan short."""
    plan = decide(seen, decisions or Decisions(), deadline_s=deadline_s, clock=stopped, memory=memory)
    return [reason.code for reason in plan.cut_short]


def policy_of(memory: PlannerMemory) -> BidPrice:
    kept = memory.packing
    assert kept is not None
    policy = kept.packer.policy
    assert isinstance(policy, BidPrice)
    return policy


def runs(name: str, on: str) -> Pod:
    return pod(name, gpus=1, gpu_milli=1, cpu_milli=1, on=on, devices=(0,))


def test_pods_that_run_and_none_that_waits_make_no_prices() -> None:
    memory = PlannerMemory()
    pods = [runs(f"p{n}", "ab"[n % 2]) for n in range(1000)]

    for gone in range(3):
        planned(world(NODES, pods[gone:]), memory)

    assert policy_of(memory).book.shares.classes == ()


def test_prices_that_are_late_are_named_and_the_earlier_ones_used() -> None:
    memory, may_end = PlannerMemory(), Event()
    seen = world(NODES, [pod("w", gpus=1)])
    planned(seen, memory)
    book = policy_of(memory).book
    kept = memory.packing
    assert kept is not None

    def work() -> Adopt:
        may_end.wait(timeout=10)
        return lambda: None

    kept.worker.task = Task(work)
    codes = planned(seen, memory, deadline_s=0.0)
    may_end.set()

    assert PRICES_LATE.code in codes
    assert policy_of(memory).book is book


def test_instances_that_this_plan_adds_arrive_only_when_they_are_observed() -> None:
    profiles = (profile("A100", ((3.0, 2.0),)), profile("L4", ((0.9, 0.3),)))
    seen = replace(world(NODES, services=[service("ns/s", 3.0, ((0.4, 0.6),))]), profiles=profiles)
    memory, decisions = PlannerMemory(), Decisions(awaits_pods=True)

    for _ in range(3):
        planned(seen, memory, decisions)
    alone = policy_of(memory).mix.pods
    planned(world(NODES, [pod("s-real-name", gpus=1)]), memory, decisions)

    assert alone == 0
    assert policy_of(memory).mix.pods == 1
