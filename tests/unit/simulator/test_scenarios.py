"""Scenarios: their effects, in figures that can be computed by hand."""

from dataclasses import replace

import pytest

from cluster.errors import ConfigError
from cluster.snapshot import PENDING, Snapshot
from simulator.scenarios import Scenario, ScenarioAnswer, answered, changed, losses, survives, without_nodes
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service


def fleet() -> Snapshot:
    """Two A100 nodes with one free GPU between them; a service that needs two A100 at 10 requests/s each."""
    return world(
        [node("a", gpus=2), node("b", gpus=2), node("h", gpus=1, gpu_type="H100")],
        [pod("one", gpus=1, on="a", devices=(0,))],
        services=[service("ns/chat", rate=15)],
        profiles=[profile("A100", [[10.0]])],
        prices={"A100": 2.0, "H100": 5.0},
    )


def asked(scenario: Scenario) -> ScenarioAnswer:
    return answered(scenario, fleet(), 10.0)


def test_the_fleet_as_it_is() -> None:
    answer = asked(Scenario())

    # 15 requests/s need two A100 of 10 each: $4; three of four A100 are then at work, and the H100 idles.
    assert answer.services_per_hour == pytest.approx(4.0)
    assert answer.bound_per_hour == pytest.approx(4.0)
    assert (answer.gpus, answer.gpus_used) == (5, pytest.approx(3.0))
    assert answer.fleet_per_hour == pytest.approx(4 * 2.0 + 5.0)
    assert answer.idle_per_hour == pytest.approx(2.0 + 5.0)
    assert (answer.running, answer.unplaced, answer.refused_services) == (3, 0, 0)


def test_demand_and_prices_scale_what_services_cost() -> None:
    assert asked(Scenario(demand=2.0)).services_per_hour == pytest.approx(3 * 2.0)
    assert asked(Scenario(prices=(("A100", 3.0),))).services_per_hour == pytest.approx(2 * 3.0)


def test_an_slo_without_a_profile_is_a_refused_service() -> None:
    answer = asked(Scenario(slo=0.5))

    assert (answer.refused_services, answer.services_per_hour) == (1, 0.0)


def test_more_nodes_are_like_those_of_their_type() -> None:
    made = changed(fleet(), Scenario(nodes=(("A100", 2),)))

    assert made.nodes.names[-2:] == ("whatif-0", "whatif-1")
    assert made.nodes.gpus[-2:].tolist() == [2, 2]
    assert made.nodes.gpu_type[-2:].tolist() == [made.gpu_type_names.index("A100")] * 2
    assert asked(Scenario(demand=3.0, nodes=(("A100", 2),))).unplaced == 0


def test_fewer_nodes_leave_the_fullest_ones() -> None:
    assert tuple(changed(fleet(), Scenario(nodes=(("A100", -1),))).nodes.names) == ("a", "h")


def test_pods_of_a_lost_node_wait() -> None:
    made = without_nodes(fleet(), [0])

    assert tuple(made.nodes.names) == ("b", "h")
    assert made.pods.node.tolist() == [PENDING]
    assert made.pods.devices.tolist() == [0]


def test_pods_elsewhere_keep_their_node_and_devices() -> None:
    made = without_nodes(fleet(), [1])

    assert made.nodes.names[int(made.pods.node[0])] == "a"
    assert made.pods.devices.tolist() == [1]


def test_each_value_of_a_label_can_be_lost() -> None:
    rooms = [node(name, gpus=1, labels={"room": room}) for name, room in (("a", "x"), ("b", "y"), ("c", "y"))]
    whole = world([*rooms, node("d")], [pod("one", gpus=1, on="c", devices=(0,))])

    left = [changed(whole, Scenario(lost=each)) for each in losses(whole, "room")]

    assert [tuple(each.nodes.names) for each in left] == [("b", "c", "d"), ("a", "d")]
    assert [each.pods.node.tolist() for each in left] == [[1], [PENDING]]


def test_a_label_that_no_node_has_cannot_be_lost() -> None:
    with pytest.raises(ConfigError) as wrong:
        losses(fleet(), "room")

    assert wrong.value.mistakes[0].place == "--lose room"


def test_a_loss_is_survived_where_all_keep_a_place() -> None:
    rooms = [node(name, gpus=2, labels={"room": name}) for name in ("x", "y", "z")]
    whole = world(rooms, [pod("one", gpus=2, on="x", devices=(0, 1)), pod("two", gpus=2, on="y", devices=(0, 1))])

    def lost(*rooms: str) -> list[ScenarioAnswer]:
        return [answered(Scenario(lost=("room", room) if room else None), whole, 10.0) for room in rooms]

    before, without_x, without_z = lost("", "x", "z")

    assert (without_x.unplaced, survives(without_x, before)) == (0, True)
    assert survives(without_z, before)
    assert not survives(replace(without_x, unplaced=1), before)
    assert not survives(replace(without_x, refused=("ns/chat",)), before)


@pytest.mark.parametrize(
    ("scenario", "place"),
    [
        (Scenario(prices=(("B200", 3.0),)), "GPU type 'B200'"),
        (Scenario(nodes=(("B200", 3),)), "GPU type 'B200'"),
        (Scenario(nodes=(("A100", -3),)), "nodes A100=-3"),
    ],
)
def test_what_the_fleet_has_not_is_named(scenario: Scenario, place: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        changed(fleet(), scenario)

    assert wrong.value.mistakes[0].place == place
