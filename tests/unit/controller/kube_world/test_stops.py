"""Stops of pods: whose they are, what is asked before the first, and what is remembered of refusals."""

from dataclasses import replace

from cluster.actions import Bind, Evict, Release
from cluster.errors import ActionError
from cluster.plans import Phase, Plan, Reason, Step
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import Gang
from controller.cycle import carry_out
from controller.kube.request import KubeWriteError, Refusal, RefusalCause
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.stops import FIRST_PAUSE_S, HOUR_S, StopMemory
from controller.placers import NodePool
from tests.builders.fleet import Pod, node, pod, world
from tests.clock import HandClock
from tests.unit.controller.kube.fake_cluster_view import FakeClusterView, fake_view, kubernetes
from tests.unit.controller.kube.fake_writer import FakeWriter

WHY = Reason("Preempted", "makes room")
NO_BUDGET = KubeWriteError(
    "POST",
    Refusal(
        429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", None,
        (RefusalCause("DisruptionBudget", "The disruption budget web needs 1 healthy pods and has 1 currently"),),
    ),
)  # fmt: skip


def others(name: str, on: str) -> Pod:
    return pod(f"ns/{name}", 1, on=on, devices=(0,), strangers=True)


def test_pods_of_another_scheduler_are_strangers_but_on_nodes_that_tonnage_owns() -> None:
    nodes = [node(name, gpus=1, labels={"pool": name}) for name in ("gate", "owned", "bind", "dra")]
    seen = fake_view(world(nodes, [others(name, name) for name in ("gate", "owned", "bind", "dra")]))
    pools = [
        NodePool("bind", {"pool": "bind"}), NodePool("gate", {"pool": "owned"}, is_owned=True),
        NodePool("dra", {"pool": "dra"}), NodePool("gate", {}),
    ]  # fmt: skip

    planned = PlanningView(seen, pools, clock=HandClock()).snapshot().pods

    assert planned.strangers is not None
    assert planned.strangers.tolist() == [True, False, False, True]
    # Where Tonnage allocates the devices, kube-scheduler cannot tell whose stop would free them.
    assert planned.settled is not None
    assert planned.settled.tolist() == [False, False, False, True]


def test_a_released_pod_for_which_kube_scheduler_stops_others_is_not_late() -> None:
    seen = fake_view(world([node("a", gpus=1)], [pod("ns/p", gpus=1)], at_s=5.0))
    view = PlanningView(seen, [NodePool("gate", {})], clock=HandClock())
    released = replace(seen.pods["ns/p"], scheduler_name="default-scheduler", chosen_node="a", devices=(0,))

    seen.pods["ns/p"] = replace(released, nominated_node="a")
    nominated = view.snapshot()
    seen.pods["ns/p"] = released

    assert nominated.pods.node.tolist() == [0]
    assert nominated.released_at_s == {}
    assert view.snapshot().released_at_s == {"ns/p": 5.0}


def full() -> FakeClusterView:
    """Two pods of one device each, one on each node, and one that wants both devices of a node."""
    low = [pod(f"ns/low-{n}", 1, on="a", devices=(n,)) for n in range(2)]
    return fake_view(world([node("a", gpus=2)], [*low, pod("ns/urgent", 2, priority=9)]))


def swap() -> Plan:
    stops = tuple(Step(Evict(f"ns/low-{n}", "a", "Pod/ns/urgent"), WHY) for n in range(2))
    start = Step(Bind("ns/urgent", "a", (0, 1)), WHY)
    return Plan(phases=(Phase("make room for Pod/ns/urgent", (*stops, start), whole=True),))


def test_where_one_victim_may_not_be_evicted_none_is_and_the_reason_names_the_budget() -> None:
    writer = FakeWriter(lambda write: NO_BUDGET if "low-1/eviction" in write.path else b"{}")
    view = full()

    outcome = carry_out(kubernetes(view, writer), swap())

    assert outcome.done == ()
    assert [write.query.get("dryRun") for write in writer.sent] == ["All", "All"], "nothing else was sent"
    assert all("disruption budget web" in each.reason.words for each in outcome.undone)


def test_where_all_may_be_evicted_each_is_asked_once_and_then_evicted() -> None:
    writer = FakeWriter()

    outcome = carry_out(kubernetes(full(), writer), swap())

    assert [each.action for each in outcome.done][:2] == [Evict("ns/low-0", "a"), Evict("ns/low-1", "a")]
    assert [write.query.get("dryRun") for write in writer.sent][:4] == ["All", "All", None, None]


def test_a_plan_without_victims_asks_for_nothing() -> None:
    writer = FakeWriter()
    free = fake_view(world([node("a", gpus=2)], [pod("ns/p", 1)]))
    start = Phase("start ns/p", (Step(Bind("ns/p", "a", (0,)), WHY),), whole=True)

    carry_out(kubernetes(free, writer), Plan(phases=(start,)))

    assert [write for write in writer.sent if write.query.get("dryRun")] == []


def test_no_member_of_a_gang_is_bound_while_a_victim_holds_the_seat_of_another() -> None:
    writer = FakeWriter()
    left = [pod("ns/low-1", 1, on="a", devices=(1,))]  # low-0 is gone already
    members = [pod(f"ns/member-{n}", 1, priority=9) for n in range(2)]
    seen = fake_view(world([node("a", gpus=2)], [*left, *members]))
    stop = Step(Evict("ns/low-1", "a", "Gang/ns/g"), WHY)
    starts = tuple(Step(Bind(f"ns/member-{n}", "a", (n,)), WHY) for n in range(2))

    outcome = carry_out(kubernetes(seen, writer), Plan(phases=(Phase("start ns/g", (stop, *starts), whole=True),)))

    assert [each.action for each in outcome.done] == [stop.action]
    assert [each.reason.code for each in outcome.undone] == ["NotWhole", "ActionFailed"]
    assert [write for write in writer.sent if "binding" in write.path] == []


def test_a_release_leaves_the_pods_in_its_way_to_kube_scheduler() -> None:
    writer = FakeWriter()
    seen = fake_view(world([node("a", gpus=1, labels={"kubernetes.io/hostname": "a"})],
                           [others("theirs", "a"), pod("ns/urgent", 1, priority=9)]))  # fmt: skip
    waits = seen.pods["ns/urgent"]
    seen.pods["ns/urgent"] = replace(waits, scheduler_name="default-scheduler", gates=("tonnage.dev/placement",))
    operator = kubernetes(seen, writer, placer="gate")

    errors = operator.apply([Release("ns/urgent", "a", (0,))])

    assert errors == [None]
    assert [write for write in writer.sent if "eviction" in write.path] == []
    assert operator.observe().pods.node.tolist() == [0, 0], "its place is taken from now on"


def remembered(most_per_seat: int = 2) -> tuple[StopMemory, HandClock]:
    clock = HandClock()
    return StopMemory(clock, most_per_seat), clock


def stays(seen: Snapshot) -> list[bool]:
    return [] if seen.pods.settled is None else seen.pods.settled.tolist()


def test_a_refused_victim_is_not_chosen_again_for_a_pause_that_doubles() -> None:
    memory, clock = remembered()
    seen = world([node("a", gpus=1)], [pod("ns/low", 1, on="a", devices=(0,))])

    memory.note_refused("ns/low", "uid", NO_BUDGET)
    first = memory.applied(seen)
    clock.now_s += FIRST_PAUSE_S
    again = memory.applied(seen)
    memory.note_refused("ns/low", "uid", NO_BUDGET)
    clock.now_s += FIRST_PAUSE_S
    second = memory.applied(seen)

    assert stays(first) == [True]
    assert "budget web" in first.refused_stops["ns/low"]
    assert again is seen
    assert stays(second) == [True]


def test_what_was_not_answered_is_no_refusal() -> None:
    memory, _ = remembered()
    seen = world([node("a", gpus=1)], [pod("ns/low", 1, on="a", devices=(0,))])

    memory.note_refused("ns/low", "uid", KubeWriteError("POST", Refusal(0, "NoAnswer", "no answer")))
    memory.note_refused("ns/low", "uid", ActionError("it was replaced"))

    assert memory.applied(seen) is seen


def test_a_unit_for_which_many_pods_were_stopped_stops_no_more_until_an_hour_has_passed() -> None:
    memory, clock = remembered(most_per_seat=2)
    seen = world([node("a", gpus=1)], [pod("ns/urgent", 1), pod("ns/m", 1, gang="ns/g")], [Gang("ns/g", min_members=3)])

    for _ in range(2):
        memory.note_stopped("Pod/ns/urgent")
        memory.note_stopped("Gang/ns/g")
    exhausted = memory.applied(seen).out_of_stops
    clock.now_s += HOUR_S

    assert exhausted == ("Pod/ns/urgent",), "a gang has as many for each of its members"
    assert memory.applied(seen).out_of_stops == ()
    assert seen.pods.node.tolist() == [PENDING, PENDING]
