"""Reasons of what waits: true, and explained once for all that ask for the same."""

import time

from cluster.plans import Plan, Reason
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from placement.budget import Budget
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Node, node, pod, world


def planned(seen: Snapshot, work: float = float("inf")) -> Plan:
    return pack(seen, Packer(seen, BestFit()), Budget(work))


def reason_of(plan: Plan, workload: str) -> Reason:
    (why,) = (each.reason for each in plan.unplaced if each.workload == workload)
    return why


def racks(**gpus: int) -> list[Node]:
    """A node for each letter, named by rack and number: `a1` is in rack a."""
    return [node(name, count, labels={"rack": name[0]}) for name, count in gpus.items()]


def test_a_gang_within_a_label_is_told_what_is_short_where_most_members_fit() -> None:
    members = [pod(f"m{n}", 4, gang="g") for n in range(3)]
    seen = world(racks(a1=4, b1=4, b2=4, b3=2, c1=4), members, [Gang("g", 3, within="rack")])

    why = reason_of(planned(seen), "Gang/g")

    # Rack b has room for two of the three; its third node has two GPUs of four.
    assert why.figures == {"need": 3, "room": 2, "nodes": 5, "with_room": 2, "within": 2, "gpus": 1}
    assert why.words == (
        "3 members must start together within one rack and do not all fit, so none was started; at most 2 of them fit "
        "in rack=b; of 5 nodes: 2 with room, 2 outside rack=b, 1 with fewer free GPUs than requested"
    )


def test_a_gang_whose_label_no_node_has_is_told_so() -> None:
    seen = world([node("a", 8)], [pod(f"m{n}", 1, gang="g") for n in range(2)], [Gang("g", 2, within="rack")])

    why = reason_of(planned(seen), "Gang/g")

    assert why.figures == {"need": 2, "room": 0, "nodes": 1, "within": 1}
    assert why.words.endswith("of 1 nodes: 1 without the label rack")


def test_the_rest_of_a_running_gang_is_kept_out_of_other_domains() -> None:
    members = [pod("m0", 4, gang="g", on="a1", devices=(0, 1, 2, 3)), pod("m1", 4, gang="g")]
    seen = world(racks(a1=4, b1=4, b2=4), members, [Gang("g", 1, within="rack")])

    why = reason_of(planned(seen), "Gang/g")

    assert why.figures == {"nodes": 3, "within": 2, "gpus": 1}
    assert "2 outside rack=a" in why.words


def test_members_that_fit_each_but_not_together_are_told_so() -> None:
    members = [pod("big", 3, gang="g"), pod("small", 2, gang="g")]
    seen = world([node("a", 4)], members, [Gang("g", 2)])

    assert "they do not fit together; of 1 nodes: 1 with room" in reason_of(planned(seen), "Gang/g").words


def test_what_had_its_turn_is_not_told_that_the_work_ended_before_it() -> None:
    """The wide pod is served first; afterwards a preemption frees more than it must, so all are tried again."""
    running = pod("victim", 8, on="a", devices=tuple(range(8)))
    seen = world([node("a", 8)], [running, pod("wide", 9, priority=10), pod("urgent", 1, priority=5)])

    codes = {reason_of(planned(seen, work), "Pod/wide").code for work in range(1, 90_000, 500)}

    assert codes == {"NoNodeFits"}


def test_alike_pods_are_explained_once() -> None:
    nodes = [node(f"n{n:04}", 4, labels={"zone": str(n % 3)}) for n in range(4_000)]
    seen = world(nodes, [pod(f"p{n:04}", 8, selector={"zone": "1"}) for n in range(2_000)])
    packer = Packer(seen, BestFit())

    began_s = time.process_time()
    plan = pack(seen, packer)
    took_s = time.process_time() - began_s

    assert len(plan.unplaced) == 2_000
    assert took_s < 1.0  # 0.15 on an idle core; node by node for each pod it was 6 s
