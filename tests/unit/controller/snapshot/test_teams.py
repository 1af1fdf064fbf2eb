"""Teams from their objects: their namespaces, errors, and what their statuses say."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.actions import Bind, Evict, HoldSeats
from cluster.quotas import QuotaAsk
from cluster.teams import Amounts, Team
from cluster.workloads import GpuType
from controller.api.team import KIND, Team as TeamObject, TeamStatus
from controller.objects.read import Findings, Read
from controller.snapshot.nodes import TypeIndex
from controller.snapshot.teams import facts_of_teams, team_status_after, teams_from, with_team_limits
from placement.engine.packer import Packer
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders import fleet
from tests.builders.manifests import gpu_type, having, node as manifest_node, observed, pod
from tests.builders.mix import service

TYPES = TypeIndex((GpuType("a100", 1, 4.0),), ("nvidia.com/gpu",), {})


def read(name: str, **spec: object) -> Read[TeamObject]:
    plain = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Team", "metadata": {"name": name}, "spec": spec}
    return Read(TeamObject.model_validate(plain), KIND)


def test_a_team_has_the_namespaces_with_its_labels_and_each_has_one_team() -> None:
    spaces = {"x": {"team": "a", "tier": "dev"}, "y": {"team": "a"}, "z": {}}
    findings, share = Findings(), {"gpus": {"a100": "2.5"}}
    first, second = teams_from(
        [read("a", namespaces={"team": "a", "tier": "dev"}, share=share), read("b", namespaces={"team": "a"})],
        spaces, TYPES, findings,
    )  # fmt: skip

    assert (first.namespaces, second.namespaces) == ({"x"}, {"y"})
    assert first.share == Amounts({"a100": 2500})
    assert ["namespace x belongs to Team a" in str(each) for each in findings.mistakes] == [True]


def test_a_share_of_an_unknown_type_is_an_error() -> None:
    findings = Findings()

    assert teams_from([read("a", namespaces={"t": "a"}, share={"gpus": {"h100": 1}})], {}, TYPES, findings) == ()
    assert ["there is no GPUType" in str(each) for each in findings.mistakes] == [True]


def test_a_status_says_what_is_used_borrowed_lent_and_waited_for() -> None:
    teams = (
        Team("a", frozenset({"a"}), Amounts({"A100": 2000})),
        Team("b", frozenset({"b"}), Amounts({"A100": 3000})),
    )
    pods = [
        fleet.pod("a/p", 4, on="n", devices=(0, 1, 2, 3)),
        fleet.pod("b/p", 1, gpu_milli=500, on="n", devices=(4,)),
        fleet.pod("b/q", 2),
    ]
    facts = facts_of_teams(replace(fleet.world([fleet.node("n", gpus=8)], pods), teams=teams))

    a, b = (team_status_after(TeamStatus(), facts[name], 0.0) for name in "ab")
    assert (a.used, a.borrowed, a.lent, a.waiting) == (4, 2, 0, 0)
    assert (b.used, b.borrowed, b.lent, b.waiting) == (0.5, 0, 2, 2)


def test_what_was_borrowed_decays_by_half_in_a_day() -> None:
    facts = facts_of_teams(replace(fleet.world([fleet.node("n", gpus=8)]), teams=(Team("a", frozenset({"a"})),)))["a"]

    was = TeamStatus(borrowed=8.0, usage=0.0, usage_at=0.0)
    day = team_status_after(was, replace(facts, borrowed=8.0), 86_400.0)
    assert day.usage == pytest.approx(4.0)
    assert team_status_after(day, facts, 2 * 86_400.0).usage == pytest.approx(6.0)  # it still held them until now
    assert team_status_after(day, facts, 86_430.0).usage_at == 86_400.0  # not written anew within a minute


@pytest.mark.parametrize("is_admitted", [True, False])
def test_nothing_is_stopped_for_a_pod_that_kueue_has_not_admitted(tmp_path: Path, *, is_admitted: bool) -> None:
    ours, kueues = {"name": "tonnage.dev/placement"}, {"name": "kueue.x-k8s.io/admission"}
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each, "labels": {"team": each}}} for each in "ab"
    ]
    share = {"namespaces": {"team": "a"}, "share": {"gpus": {"a100": 8}}}
    team = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Team", "metadata": {"name": "a"}, "spec": share}
    gates = [ours] if is_admitted else [kueues, ours]
    runs = having(pod("runs", 8, on="n1", phase="Running"), "metadata.namespace", "b")
    asks = having(having(pod("asks", 8, schedulingGates=gates), "metadata.namespace", "a"), "metadata.uid", "u")

    now = observed(tmp_path, gpu_type(), manifest_node(), *spaces, team, runs, asks).snapshot
    plan = pack(now, Packer(now, BestFit()))

    assert [type(each) for each in plan.actions if not isinstance(each, HoldSeats)] == (
        [Evict, Bind] if is_admitted else []
    )
    assert facts_of_teams(now)["a"].waiting == (8.0 if is_admitted else 0.0)


def test_services_know_what_the_limit_of_their_team_leaves_beside_its_other_pods() -> None:
    """a may hold 2 + 6 A100s and $3 + $9 an hour; its other pods hold 2.5 of them, and an L4 that is spot."""
    spot = fleet.node("s", gpus=8, gpu_type="L4", labels={"karpenter.sh/capacity-type": "spot"})
    pods = [
        fleet.pod("a/p", 2, on="n", devices=(0, 1)),
        fleet.pod("x/p", 1, gpu_milli=500, on="n", devices=(2,)),
        fleet.pod("a/spot", 1, on="s", devices=(0,)),
        fleet.pod("a/waits", 4),
        fleet.pod("a/chat-0", 1, on="n", devices=(3,), owner="a/chat"),
        fleet.pod("b/p", 3, on="n", devices=(4, 5, 6)),
    ]
    world = fleet.world([fleet.node("n", gpus=8), spot], pods, prices={"A100": 2.0, "L4": 1.0})
    l4 = replace(world.gpu_types[1], spot_price_per_hour=0.5)
    share, loan = Amounts({"A100": 2000}, 3.0), Amounts({"A100": 6000}, 9.0)
    teams = Team("a", frozenset("ax"), share, loan), Team("b", frozenset("b"))
    services = [service(name, quota_ask=QuotaAsk({"pods": 1})) for name in ("a/chat", "b/chat", "z/chat")]
    now = replace(world, gpu_types=(world.gpu_types[0], l4), teams=teams, services=(*services, service("x/free")))

    limits = [{each.name: each.most for each in one.quotas} for one in with_team_limits(now).services]

    # 8 - 2.5 A100s; 12 - (2.5 × 2 + 1 × 0.5) dollars
    assert limits == [{"A100 of Team a": 5, "cents per hour of Team a": 650}, {}, {}, {}]
