"""Spot nodes: a place at its own price, for services that may use it."""

from collections.abc import KeysView
from dataclasses import replace
from typing import Any

import pytest

from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import SPOT_LABELS, GpuType, InstanceType, ModelService, Requirement, is_spot
from controller.snapshot.builder import with_instances_off_spot
from placement.engine.packer import Packer
from placement.mix.planner import plan_mix
from placement.mix.problem import Need
from placement.mix.problem_builder import need_of
from placement.packing.planner import pack
from placement.policies.published import BestFit
from tests.builders.fleet import Node, node, pod, world
from tests.builders.mix import ample, profile, service

SPOT = {"karpenter.sh/capacity-type": "spot"}
ON_DEMAND = {"karpenter.sh/capacity-type": "on-demand"}
A100, SPOT_A100 = InstanceType("A100"), InstanceType("A100", spot=True)


def fleet(services: list[ModelService], nodes: list[Node], **rest: Any) -> Snapshot:
    """An A100 serves one request a second for $1, $0.30 on spot."""
    seen = world(nodes, services=services, profiles=[profile("A100", [[1.0]])], **rest)
    return with_instances_off_spot(replace(seen, gpu_types=(GpuType("A100", 1, 1.0, 0.3),)))


def planned(snapshot: Snapshot) -> Plan:
    return plan_mix(snapshot, ample())


def test_spot_instances_are_sold_as_far_as_there_are_spot_nodes() -> None:
    nodes = [node("d", gpus=4, labels=ON_DEMAND), node("s", gpus=2, labels=SPOT)]

    (chat,) = planned(fleet([service(rate=3.0, spot=True, continuous_split=True)], nodes)).services

    assert chat.instances == {SPOT_A100: 2, A100: 1}
    assert chat.cost_per_hour == pytest.approx(1.6)


def test_spot_instances_are_placed_on_spot_nodes_and_the_others_are_not() -> None:
    nodes = [node("d", gpus=4, labels=ON_DEMAND), node("s", gpus=2, labels=SPOT)]
    snapshot = fleet([service(rate=3.0, spot=True, continuous_split=True)], nodes)

    after = snapshot.after(planned(snapshot).actions)
    after = after.after(pack(after, Packer(after, BestFit())).actions)

    on = {name: after.nodes.names[after.pods.node[row]] for row, name in enumerate(after.pods.names)}
    assert on == {"ns/chat-a100-0": "d", "ns/chat-a100-spot-0": "s", "ns/chat-a100-spot-1": "s"}


def test_a_service_that_may_not_use_spot_nodes_is_not_offered_them() -> None:
    nodes = [node("d", gpus=1, labels=ON_DEMAND), node("s", gpus=8, labels=SPOT)]

    (chat,) = planned(fleet([service(rate=2.0)], nodes)).services

    assert chat.refusal is not None
    assert chat.refusal.code == "InventoryShort"


def test_labels_of_nodes_are_read_only_for_a_service_that_may_use_spot_nodes() -> None:
    """The need is computed for every service in every cycle; a fleet has thousands of nodes."""
    seen = fleet([service(), service("ns/cheap", spot=True)], [node("d", gpus=1)])
    unread = replace(seen, nodes=replace(seen.nodes, labels=(Unreadable(),)))
    plain, cheap = unread.services

    assert isinstance(need_of(plain, unread), Need)
    with pytest.raises(AssertionError):
        need_of(cheap, unread)


class Unreadable(dict[str, str]):
    """Labels that must not be read."""

    def keys(self) -> KeysView[str]:
        raise AssertionError("labels were read")


def test_a_pending_instance_of_a_service_that_may_not_use_spot_nodes_waits_for_another() -> None:
    snapshot = fleet([service()], [node("s", gpus=8, labels=SPOT)], pods=[pod("p", 1, owner="ns/chat")])

    assert pack(snapshot, Packer(snapshot, BestFit())).actions == ()


def test_a_template_that_asks_for_spot_nodes_itself_is_left_alone() -> None:
    asks = service(node_terms=((Requirement("karpenter.sh/capacity-type", "In", ("spot",)),),))

    (chat,) = planned(fleet([asks], [node("s", gpus=1, labels=SPOT)])).services

    assert chat.instances == {A100: 1}


def test_without_nodes_a_service_that_may_use_spot_pays_spot_prices() -> None:
    (chat,) = planned(fleet([service(rate=2.0, spot=True)], [])).services

    assert chat.instances == {A100: 2}
    assert chat.cost_per_hour == pytest.approx(0.6)


@pytest.mark.parametrize(("key", "value"), SPOT_LABELS.items())
def test_the_labels_of_every_provisioner_mark_spot_nodes(key: str, value: str) -> None:
    assert is_spot({key: value})
    assert not is_spot({key: "on-demand"})
    (chat,) = planned(fleet([service(spot=True)], [node("s", gpus=1, labels={key: value})])).services

    assert chat.instances == {SPOT_A100: 1}


def test_spot_instances_whose_nodes_were_taken_away_are_planned_again() -> None:
    """Two ran on spot; now there is no spot node any more."""
    snapshot = fleet([service(rate=2.0, spot=True, replicas={SPOT_A100: 2})], [node("d", gpus=4)])

    plan = planned(snapshot)

    assert plan.services[0].instances == {A100: 2}
    (action,) = plan.actions
    assert action.values()["instances"] == {"A100": 2, "A100-spot": 0}
