"""Answers to Kueue's admission checks: seats for all pods of a workload, beside all that waits, and their price."""

import json
from dataclasses import replace
from typing import Any

import pytest

from cluster.actions import Start
from cluster.held_seats import in_force
from cluster.snapshot import HeldSeats, Snapshot
from cluster.workloads import GpuType
from controller.api import structs
from controller.deciders.decisions import Decisions
from controller.kube_world.cached_view import plain_once
from controller.loops.seat_checks import SEATS, SeatChecks, answers, pods_of, with_answered
from controller.snapshot.nodes import TypeIndex
from controller.snapshot.pods import PodRow
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import node, pod, world

GPU = "nvidia.com/gpu"
TYPES = TypeIndex((GpuType("A100", 80 * 2**30, 1.5),), (GPU,), {("product", "a100"): (0,)})
DECISIONS = Decisions(policy="bestfit")


def asked(
    name: str, count: int, gpus: int, labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, list[PodRow]]:
    """A workload of so many pods, with a flavor of these labels."""
    limits = {"resources": {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}}
    template = {"spec": {"containers": [{"name": "main", **limits}], **spec}}
    status = {"admission": {"podSetAssignments": [{"name": "main", "flavors": {GPU: "one"}}]}}
    flavors = {"one": {"nodeLabels": labels or {}}}
    sets = {"podSets": [{"name": "main", "count": count, "template": template}]}
    return {name: pods_of(name, sets, status, flavors, TYPES)}


def fleet(*pods: Any) -> Snapshot:
    nodes = [node("a", gpus=8, labels={"pool": "x"}), node("b", gpus=8)]
    return world(nodes, pods, prices={"A100": 1.5})


def test_a_workload_has_a_seat_where_all_its_pods_have() -> None:
    fits = answers(fleet(), asked("t/fits", 4, 4), DECISIONS)["t/fits"]
    assert (len(fits[1]), fits[0]) == (4, "16 devices on 2 nodes, $24.00 an hour")
    wide = answers(fleet(), asked("t/wide", 3, 8), DECISIONS)["t/wide"]
    assert not wide[1]
    assert wide[0].startswith("no seat: ")


def test_two_workloads_are_not_told_of_the_same_seat() -> None:
    found = answers(fleet(), asked("t/one", 2, 8) | asked("t/two", 1, 1), DECISIONS)

    assert [bool(each[1]) for each in found.values()] == [True, False]


def test_what_waits_already_comes_first() -> None:
    waits = [pod("t/waits", 8, priority=5)]

    assert not answers(fleet(*waits), asked("t/asks", 2, 8), DECISIONS)["t/asks"][1]


def test_the_flavor_says_which_nodes() -> None:
    found = answers(fleet(), asked("t/a", 1, 8, {"pool": "x"}) | asked("t/b", 1, 8, {"pool": "x"}), DECISIONS)

    assert [bool(each[1]) for each in found.values()] == [True, False]


def test_pods_with_another_gate_have_no_seat_yet() -> None:
    gated = asked("t/gated", 1, 1, schedulingGates=[{"name": "example.com/gate"}])

    assert answers(fleet(), gated, DECISIONS)["t/gated"][0] == (
        "no seat: its scheduling gate example.com/gate is another controller's to remove"
    )


def answered(now: Snapshot, name: str, count: int, gpus: int) -> HeldSeats:
    """What a workload's answer holds, whose pods a job of its name makes."""
    found = answers(now, asked(name, count, gpus), DECISIONS)[name]
    seats = tuple(replace(each, owner=f"Job/{name}") for each in found[1])
    return HeldSeats(f"Workload/{name}", now.at_s, now.at_s + 300, seats)


MADE = {
    f"t/job-{n}": structs.Pod(
        structs.PodMeta(f"job-{n}", "t", owner_references=(structs.OwnerReference("Job", "job", controller=True),)),
        structs.PodSpec(),
    )
    for n in range(2)
}


def starts(now: Snapshot) -> dict[str, str]:
    plan = pack(now, Packer(now, BestFit()))
    return {each.pod: each.node for each in plan.actions if isinstance(each, Start)}


def test_the_seats_of_an_answer_are_nobody_elses_until_its_pods_have_come() -> None:
    """A workload of twice eight devices, which are all that there are, is told of its seats; then a stranger comes."""
    held = answered(fleet(), "t/job", 2, 8)
    stranger, mine = pod("s/other", 8), [pod(f"t/job-{n}", 8) for n in range(2)]

    assert starts(with_answered(fleet(stranger), [held], MADE)) == {}
    assert starts(with_answered(fleet(stranger, mine[0]), [held], MADE)) == {}, "the second has not come"
    assert starts(with_answered(fleet(stranger, *mine), [held], MADE)).keys() == {"t/job-0", "t/job-1"}


def test_another_workload_is_not_told_of_a_seat_that_is_held() -> None:
    held = answered(fleet(), "t/job", 2, 8)
    now = with_answered(fleet(), [held], MADE)

    assert not answers(now, asked("t/late", 1, 1), DECISIONS)["t/late"][1]
    assert with_answered(now, [held], MADE) is now, "an answer that is held already is not held twice"


def test_the_seats_of_an_answer_are_free_again_after_their_deadline_and_once_a_pod_of_it_runs() -> None:
    held = answered(fleet(), "t/job", 2, 4)
    late = replace(fleet(pod("s/other", 8)), at_s=held.until_s)
    runs = fleet(pod("t/job-0", 4, on="a", devices=(0, 1, 2, 3), started_s=1), pod("s/other", 8))

    assert in_force([held], held.until_s - 1)
    assert starts(with_answered(late, [held], MADE)).keys() == {"s/other"}
    assert starts(with_answered(runs, [held], MADE)).keys() == {"s/other"}


@pytest.mark.parametrize(
    "text", ["no JSON", "{}", '{"holder":1}', '{"holder":"x","since_s":0,"until_s":9,"seats":[{}]}']
)
def test_an_answer_that_cannot_be_read_holds_nothing_and_stops_nobody(text: str) -> None:
    check = {"metadata": {"name": "seat"}, "spec": {"controllerName": "tonnage.dev/seat"}}
    said = {"name": "seat", "state": "Ready", "podSetUpdates": [{"annotations": {SEATS: text}}, {"annotations": None}]}
    workload = {"metadata": {"name": "job", "namespace": "t"}, "spec": {}, "status": {"admissionChecks": [said]}}
    loop = SeatChecks(DECISIONS)
    for cache, obj in zip(loop.caches, (workload, check), strict=False):
        cache.take_page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": [obj]}).encode(), 0.0, is_first=True)
    now = fleet()

    assert loop.add_to(now) is now


def test_the_status_of_a_workload_is_read_once_and_not_in_each_cycle() -> None:
    body = json.dumps({"admissionChecks": [{"name": "seat", "state": "Ready"}], "is": SEATS}).encode()

    assert plain_once(body) is plain_once(bytes(bytearray(body)))
