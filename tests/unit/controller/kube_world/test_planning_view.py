"""Snapshot for planning: pods in transit, gangs partly started since when, and pods that are left out."""

from dataclasses import replace

from cluster.actions import Bind
from cluster.nodes import HeldBack
from cluster.plans import Reason
from cluster.quotas import NamespaceQuota
from cluster.workloads import Gang, LeftOut
from controller.kube.cluster_view import SeenPod
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.reservations import Reservations
from controller.placers import DEFAULT_POOLS
from controller.snapshot.namespace_bounds import EXCEEDED, MOST_SHAPES
from tests.builders.fleet import node, pod, world
from tests.clock import HandClock
from tests.unit.controller.kube.fake_cluster_view import FakeClusterView, fake_view


def view_of(sightings: FakeClusterView) -> PlanningView:
    return PlanningView(sightings, DEFAULT_POOLS, clock=HandClock())


def test_a_released_pod_runs_where_it_goes_and_is_on_its_way_until_it_is_bound() -> None:
    seen = fake_view(world([node("a", gpus=1)], [pod("ns/p", gpus=1)], at_s=5.0))
    waits = seen.pods["ns/p"]
    seen.pods["ns/p"] = replace(waits, chosen_node="a", devices=(0,))
    view = view_of(seen)

    first = view.snapshot()
    seen.now = replace(seen.now, at_s=9.0)
    second = view.snapshot()
    seen.now = world([node("a", gpus=1)], [pod("ns/p", gpus=1, on="a", devices=(0,))], at_s=12.0)
    seen.pods["ns/p"] = replace(waits, node="a", devices=(0,))

    assert first.pods.node.tolist() == [0]
    assert (first.released_at_s, second.released_at_s) == ({"ns/p": 5.0}, {"ns/p": 5.0})
    assert view.snapshot().released_at_s == {}


def test_where_anybody_may_write_annotations_a_leader_believes_what_it_promised_itself() -> None:
    """A thousand pods that say that they hold a device each would otherwise take the fleet, until they are deleted."""
    seen = fake_view(world([node("a", gpus=4)], [pod("ns/own", gpus=1), pod("ns/forged", gpus=1)]))
    for name in ("ns/own", "ns/forged"):
        seen.pods[name] = replace(seen.pods[name], scheduler_name="nobody", chosen_node="a", devices=(3,))
    clock = HandClock()
    reservations = Reservations(clock, inherited_for_s=60.0)
    view = PlanningView(seen, DEFAULT_POOLS, clock=clock, reservations=reservations)

    def held() -> dict[str, int]:
        pods = view.snapshot().pods
        return dict(zip(pods.names, pods.devices.tolist(), strict=True))

    reservations.lead(is_guarded=False)
    inherited = held()
    reservations.add("uid-ns/own", Bind("ns/own", "a", (0,)))
    clock.now_s += 60.0

    assert inherited == {"ns/forged": 0b1000, "ns/own": 0b1000}, "what an earlier leader released is bound in a moment"
    assert held() == {"ns/own": 0b0001}, "its device is the one promised, whatever the pod says now"
    assert [reservations.is_placed_here(f"uid-ns/{name}") for name in ("own", "forged")] == [True, False]
    reservations.lead(is_guarded=True)
    clock.now_s += 60.0
    assert held() == inherited
    assert reservations.is_placed_here("uid-ns/forged")


def test_pods_past_the_quota_of_their_namespace_are_not_planned_and_say_why() -> None:
    """What is on its way counts like what runs: a share of a device, too, of which Kubernetes counts nothing."""
    pods = [
        pod("ns/released", gpus=1, gpu_milli=600),
        pod("ns/small", gpus=1, gpu_milli=300),
        pod("ns/urgent", gpus=1, gpu_milli=400, priority=9),
        pod("other/p", gpus=1),
    ]
    seen = fake_view(world([node("a", gpus=4)], pods))
    seen.pods["ns/released"] = replace(seen.pods["ns/released"], chosen_node="a", devices=(0,))
    seen.bounds = (NamespaceQuota("ns", "share", {"tonnage.dev/gpu-milli": 1000}),)

    snapshot = view_of(seen).snapshot()

    assert list(snapshot.pods.names) == ["ns/released", "ns/urgent", "other/p"]
    ((left,),) = (snapshot.left_out,)
    assert (left.pod, left.code) == ("ns/small", "QuotaExceeded")
    assert "300 thousandths" in left.words
    assert "is 1000 and 1000 are held" in left.words


def test_released_pods_that_their_owner_creates_anew_are_known() -> None:
    seen = fake_view(world([node("a", gpus=2)], [pod("ns/owned", gpus=1), pod("ns/bare", gpus=1)]))
    for name, is_recreated in (("ns/owned", True), ("ns/bare", False)):
        seen.pods[name] = replace(seen.pods[name], chosen_node="a", is_recreated=is_recreated)

    assert view_of(seen).snapshot().recreated == ("ns/owned",)


def test_a_node_that_refused_pods_takes_no_new_ones_for_a_while() -> None:
    seen = fake_view(world([node("a", gpus=2), node("b", gpus=2)], [pod("ns/p", gpus=1)], at_s=100.0))
    seen.held = (HeldBack("a", 160.0, 1, "UnexpectedAdmissionError"), HeldBack("gone", 160.0, 1, "OutOfcpu"))
    view = view_of(seen)

    first = view.snapshot()
    seen.now = replace(seen.now, at_s=160.0)

    assert first.nodes.schedulable.tolist() == [False, True]
    assert [each.node for each in first.held_back] == ["a"]
    assert view.snapshot().nodes.schedulable.tolist() == [True, True]


def test_a_gang_is_half_started_since_it_was_first_seen_so() -> None:
    members = [pod("ns/0", gpus=1, on="a", devices=(0,), gang="ns/g"), pod("ns/1", gpus=1, gang="ns/g")]
    seen = fake_view(world([node("a", gpus=1)], members, gangs=[Gang("ns/g", 2)], at_s=5.0))
    view = view_of(seen)
    view.snapshot()
    seen.now = replace(seen.now, at_s=9.0)

    assert view.snapshot().half_started_since_s == {"ns/g": 5.0}


def test_a_new_leader_knows_since_when_from_what_stands_on_the_objects() -> None:
    members = [pod("ns/0", gpus=1, on="a", devices=(0,), gang="ns/g"), pod("ns/1", gpus=1, gang="ns/g")]
    seen = fake_view(world([node("a", gpus=2)], [*members, pod("ns/p", gpus=1)], gangs=[Gang("ns/g", 2)], at_s=500.0))
    seen.half_started["ns/g"] = 100.0
    seen.pods["ns/p"] = replace(seen.pods["ns/p"], chosen_node="a", devices=(1,), placed_at_s=450.0)

    snapshot = view_of(seen).snapshot()

    assert snapshot.half_started_since_s == {"ns/g": 100.0}
    assert snapshot.released_at_s == {"ns/p": 450.0}


def test_why_a_pod_waits_for_its_claims_is_said_of_pods_of_tonnage_alone() -> None:
    why = Reason("AwaitsClaim", "it is not there yet")
    seen = fake_view(world([node("a", gpus=1)], [pod("ns/p"), pod("ns/foreign")]))
    seen.pods["ns/foreign"] = replace(seen.pods["ns/foreign"], scheduler_name="another")
    seen.waiting_for_claims = {"ns/p": why, "ns/foreign": why, "ns/gone": why}

    assert view_of(seen).snapshot().left_out == (LeftOut("ns/p", why.code, why.words),)


class CountingView(FakeClusterView):
    """Counts how often it is asked for a pod."""

    asked = 0

    def pod(self, name: str) -> SeenPod | None:
        self.asked += 1
        return super().pod(name)


def test_a_pod_that_waits_is_looked_at_once_in_each_snapshot() -> None:
    """A tenant decides how many wait, and a cycle makes several snapshots."""
    waits = [pod(f"ns/p{n}", gpus=1) for n in range(10)]
    seen = fake_view(world([node("a", gpus=1)], [*waits, pod("ns/runs", gpus=1, on="a", devices=(0,))]))
    counting = CountingView(seen.now, seen.pods)

    view_of(counting).snapshot()

    assert counting.asked == 10


def test_a_flood_of_shapes_of_one_namespace_is_not_planned_past_its_bound() -> None:
    flood = [pod(f"flood/p{n:04d}", cpu_milli=n) for n in range(MOST_SHAPES + 1)]
    view = view_of(fake_view(world([node("a", gpus=1)], [*flood, pod("ns/p", gpus=1)])))

    snapshot = view.snapshot()

    assert [(each.pod, each.code) for each in snapshot.left_out] == [(f"flood/p{MOST_SHAPES}", EXCEEDED)]
    assert "ns/p" in snapshot.pods.names
