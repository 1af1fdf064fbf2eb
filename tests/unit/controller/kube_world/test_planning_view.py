"""Snapshot for planning: pods in transit, gangs partly started since when, and pods that are left out."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.actions import Bind
from cluster.plans import Reason
from cluster.quotas import NamespaceQuota, QuotaAsk
from cluster.snapshot import Snapshot
from cluster.teams import Team
from cluster.workloads import Gang, LeftOut, PodShape
from controller.kube.cluster_view import SeenPod, SeenRefusal
from controller.kube_world.planning_view import PlanningView
from controller.kube_world.reservations import Reservations
from controller.placers import DEFAULT_POOLS
from controller.snapshot.namespace_bounds import EXCEEDED, MOST_SHAPES, NOT_MANAGED
from tests.builders.fleet import node, pod, world
from tests.builders.mix import service
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


def refusal(node: str, **changes: Any) -> SeenRefusal:
    return replace(SeenRefusal(f"u-{node}", "ns", PodShape(), node, "its kubelet says: no", 100.0), **changes)


def test_a_node_whose_devices_fail_takes_no_new_pods_for_a_while() -> None:
    seen = fake_view(world([node("a", gpus=2), node("b", gpus=2)], [pod("ns/p", gpus=1)], at_s=100.0))
    seen.refused = (refusal("a", is_of_node=True), refusal("gone", is_of_node=True))
    view = view_of(seen)

    first = view.snapshot()
    seen.now = replace(seen.now, at_s=160.0)

    assert first.nodes.schedulable.tolist() == [False, True]
    assert [each.node for each in first.held_back] == ["a"]
    assert view.snapshot().nodes.schedulable.tolist() == [True, True]


SAYS = "0/2 nodes are available: 1 Insufficient example.com/nic, 1 node(s) didn't match Pod's node affinity."
NO_CLAIM = '0/2 nodes are available: persistentvolumeclaim "none" not found.'


def on_its_way(*, at_s: float = 100.0, **of_pod: Any) -> tuple[FakeClusterView, PlanningView]:
    """A pod that was released to node a at 100 s and waits, and another like it that waits for Tonnage."""
    pods = [pod("ns/sent", gpus=1), pod("ns/next", gpus=1), pod("other/next", gpus=1)]
    seen = fake_view(world([node("a", gpus=1), node("b", gpus=1)], pods, at_s=at_s))
    sent = {"scheduler_name": "default-scheduler", "chosen_node": "a", "devices": (0,), "placed_at_s": 100.0, **of_pod}
    seen.pods["ns/sent"] = replace(seen.pods["ns/sent"], **sent)
    return seen, PlanningView(seen, DEFAULT_POOLS, clock=HandClock(), release_deadline_s=60.0)


def refused_on(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    pods = snapshot.pods
    return {pods.names[row]: pods.shapes[int(pods.shape[row])].refused_on for row in pods.pending.tolist()}


def test_where_kube_scheduler_refuses_a_pod_others_like_it_are_not_sent() -> None:
    seen, view = on_its_way(scheduler_says=SAYS, is_recreated=True)

    at_once = view.snapshot()
    seen.now = replace(seen.now, at_s=105.0)
    later = view.snapshot()
    seen.pods["ns/sent"] = replace(seen.pods["ns/next"], name="ns/sent", uid="another")  # evicted, and made anew
    anew = view.snapshot()

    assert refused_on(at_once) == {"ns/next": (), "other/next": ()}
    assert refused_on(later) == {"ns/next": ("a",), "other/next": ()}
    assert later.scheduler_says == {"ns/sent": f"kube-scheduler says: {SAYS}"}
    assert later.left_out == (), "its eviction is decided by the plan"
    assert refused_on(anew) == {"ns/sent": ("a",), "ns/next": ("a",), "other/next": ()}
    assert "Insufficient example.com/nic" in anew.refused["Pod/ns/sent"]


@pytest.mark.parametrize(
    ("of_pod", "at_s", "holds"),
    [
        ({}, 159.0, True),
        ({}, 160.0, False),
        ({"scheduler_says": SAYS}, 104.0, True),
        ({"scheduler_says": SAYS}, 105.0, False),
        ({"scheduler_says": SAYS, "is_recreated": True}, 105.0, True),  # it is evicted, which frees its devices
        ({"scheduler_says": NO_CLAIM, "is_recreated": True}, 105.0, False),  # an eviction would change nothing
        ({"scheduler_says": SAYS, "nominated_node": "a"}, 500.0, True),  # kube-scheduler makes room for it
        ({"scheduler_says": SAYS, "has_share": True}, 500.0, True),  # kube-scheduler does not see what it holds
        ({"scheduler_says": SAYS, "has_claims": True}, 500.0, True),
    ],
)
def test_a_pod_that_cannot_be_evicted_gives_up_what_it_holds_in_vain(
    of_pod: dict[str, Any], at_s: float, holds: bool
) -> None:
    """By accident or on purpose, pods that no node runs would otherwise hold GPUs until somebody deletes them."""
    _, view = on_its_way(at_s=at_s, **of_pod)

    snapshot = view.snapshot()

    assert ("ns/sent" in snapshot.pods.names) is holds
    assert [each.pod for each in snapshot.left_out if each.code == "NotBound"] == ([] if holds else ["ns/sent"])


def test_a_refusal_of_a_pod_for_reasons_of_its_own_closes_no_node() -> None:
    _, view = on_its_way(at_s=105.0, scheduler_says=NO_CLAIM)

    assert refused_on(view.snapshot())["ns/next"] == ()


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


def test_a_service_of_a_cluster_is_planned_within_what_its_namespace_may_still_hold() -> None:
    """Four devices less two that another pod holds, of which the quota's status tells; its own instance is its own."""
    pods = [
        pod("ns/other", gpus=2, on="a", devices=(0, 1)),
        pod("ns/own", gpus=1, gpu_types=["A100"], on="a", devices=(2,), owner="ns/chat"),
    ]
    chat = service("ns/chat", quota_ask=QuotaAsk({"pods": 1}))
    seen = fake_view(world([node("a", gpus=8, gpu_type="A100")], pods, services=[chat]))
    hard = {"requests.nvidia.com/gpu": 4, "pods": 3}
    used = {"requests.nvidia.com/gpu": 3, "pods": 2}
    seen.bounds = (NamespaceQuota("ns", "q", hard, used), NamespaceQuota("elsewhere", "q", {"pods": 0}, {}))

    (bounded,) = view_of(seen).snapshot().services

    assert {each.name.partition(" ")[0]: each.most for each in bounded.quotas} == {
        "requests.nvidia.com/gpu": 2,
        "pods": 2,
    }
    assert {each.units_of("A100", 2) for each in bounded.quotas} == {2, 1}


def test_in_a_namespace_that_is_not_managed_what_waits_is_told_so_and_what_runs_or_was_released_stays() -> None:
    pods = [pod("in/waits", gpus=1), pod("out/waits", gpus=1), pod("out/released", gpus=1),
            pod("out/runs", gpus=1, on="a", devices=(0,))]  # fmt: skip
    seen = fake_view(world([node("a", gpus=4)], pods, services=(service("in/chat"), service("out/chat"))))
    seen.pods["out/released"] = replace(seen.pods["out/released"], chosen_node="a", devices=(1,))
    seen.labelled = frozenset({"in"})

    planned = view_of(seen).snapshot()

    assert {name: planned.pods.node[row] for row, name in enumerate(planned.pods.names)} == {
        "in/waits": -1, "out/released": 0, "out/runs": 0}  # fmt: skip
    assert [each.name for each in planned.services] == ["in/chat"]
    assert {(each.kind, each.pod, each.code) for each in planned.left_out} == {
        ("Pod", "out/waits", NOT_MANAGED), ("ModelService", "out/chat", NOT_MANAGED)}  # fmt: skip
    assert "kubectl label namespace out tonnage.dev/managed=true" in planned.left_out[0].words


def test_a_clock_that_is_set_forwards_makes_no_pod_of_a_team_late() -> None:
    """Two pods of one team wait; the clock of dates is set a day forwards, and then a third comes."""
    teams, clock = (Team("ns", frozenset({"ns"})),), HandClock()

    def at(at_s: float, **created_s: int) -> Snapshot:
        pods = [pod(f"ns/{name}", gpus=1, started_s=made_s) for name, made_s in created_s.items()]
        return replace(world([node("a")], pods, at_s=at_s), teams=teams)

    seen = fake_view(at(1000.0, old=400, young=990))
    view = PlanningView(seen, DEFAULT_POOLS, clock=clock)

    def waited_s() -> list[float]:
        now = view.snapshot()
        assert now.pods.started_s is not None
        return [now.at_s - since_s for since_s in now.pods.started_s.tolist()]

    assert waited_s() == [600, 10]
    clock.now_s += 1.0
    seen.now = at(1001.0 + 86_400.0, old=400, young=990)
    assert waited_s() == [601, 11]
    clock.now_s += 1.0
    seen.now = at(1002.0 + 86_400.0, old=400, young=990, new=1001)
    seen.pods["ns/new"] = replace(seen.pods["ns/young"], name="ns/new", uid="new")
    assert waited_s() == [602, 12, 0]
