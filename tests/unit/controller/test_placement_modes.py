"""Placement modes in snapshots: no plan puts a pod on a node of another placement mode."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster.actions import Bind, Scale
from cluster.changes import cordoned
from cluster.snapshot import PENDING, Snapshot
from cluster.workloads import InstanceType, ModelService, Requirement
from controller.api.labels import PLACEMENT_GATE
from controller.deciders.decisions import Decisions
from controller.deciders.edits import without_pods_to_come
from controller.deciders.pipeline import decide
from controller.kube.cluster_view import SeenDeployment, SeenPod, SeenService
from controller.kube_world.deployments import Instance, content_of
from controller.placers import DeployedInstances, NodePool, PlacementModes
from tests.builders.fleet import Node, node, pod, world
from tests.builders.mix import of_types, profile, seats, service, still
from tests.unit.controller.kube.fake_cluster_view import A100, FakeClusterView, fake_view, kubernetes
from tests.unit.controller.kube.fake_writer import FakeWriter

POOLS = (NodePool("bind", {"pool": "bind"}), NodePool("gate", {"pool": "gate"}))


def of_pool(name: str, gpus: int, pool: str) -> Node:
    return node(name, gpus=gpus, labels={"pool": pool, "kubernetes.io/hostname": name})


def asks(**modes: str) -> Mapping[str, str]:
    return {f"ns/{name}": mode for name, mode in modes.items()}


def restricted(snapshot: Snapshot, modes: Mapping[str, str], pools: Sequence[NodePool] = POOLS) -> Snapshot:
    known = PlacementModes(pools)
    return known.restricted(snapshot, known.of_services(snapshot, lambda *_: 0), modes, frozenset())


def restricted_service(name: str, **labels: str) -> ModelService:
    return service(f"ns/{name}", node_terms=(tuple(Requirement(k, "In", (v,)) for k, v in labels.items()),))


def modes(fleet: Snapshot, deployed: DeployedInstances = lambda *_: 0) -> dict[str, str]:
    return {name: of_types["A100"] for name, of_types in PlacementModes(POOLS).of_services(fleet, deployed).items()}


def placed(snapshot: Snapshot) -> dict[str, str]:
    """Pod → node, as a plan of everything that waits has it."""
    plan = decide(snapshot, Decisions(policy="bestfit"), deadline_s=10, clock=still)
    return {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}


def test_a_pod_that_waits_keeps_its_restricted_shape_from_one_snapshot_to_the_next() -> None:
    """Its constraints, of which a tenant writes thousands, are then not made, hashed and compared again."""
    fleet = world([of_pool("a", 1, "bind"), of_pool("b", 8, "gate")], [pod("ns/x", gpus=1), pod("ns/y", gpus=2)])
    known, requested = PlacementModes(POOLS), asks(x="gate", y="gate")
    first, second = (known.restricted(fleet, {}, requested, frozenset()).pods for _ in range(2))

    assert {id(first.shapes[n]) for n in first.shape} == {id(second.shapes[n]) for n in second.shape}
    gone = known.restricted(fleet, {}, {}, frozenset())
    assert gone.pods.shape.tolist() == fleet.pods.shape.tolist()


def test_a_pod_is_planned_onto_nodes_of_its_own_placement_mode_only() -> None:
    # Either node takes either pod, and the best fit for both is `a`, whose one device one pod fills.
    fleet = world([of_pool("a", 1, "bind"), of_pool("b", 8, "gate")], [pod("ns/x", gpus=1), pod("ns/y", gpus=1)])

    assert placed(restricted(fleet, asks(x="gate", y="gate"))) == {"ns/x": "b", "ns/y": "b"}
    assert placed(restricted(fleet, asks(x="gate", y="bind"))) == {"ns/x": "b", "ns/y": "a"}


def test_a_pod_without_a_node_of_its_placement_mode_is_unplaced_for_that_reason() -> None:
    fleet = world([of_pool("a", 8, "gate")], [pod("ns/x", gpus=1)])

    plan = decide(restricted(fleet, asks(x="bind")), Decisions(policy="bestfit"), deadline_s=10, clock=still)

    (unplaced,) = plan.unplaced
    assert unplaced.reason.figures == {"nodes": 1.0, "way": 1.0}
    assert "`pools` in the settings" in unplaced.reason.words


def test_a_node_of_no_pool_takes_nothing_new() -> None:
    fleet = world([of_pool("a", 8, "elsewhere")], [pod("ns/x", gpus=1)])

    assert placed(restricted(fleet, asks(x="gate"))) == {}


def test_a_cluster_of_one_placement_mode_is_planned_on_as_it_was_seen() -> None:
    fleet = world([of_pool("a", 8, "gate")], [pod("ns/x", gpus=1)])

    assert restricted(fleet, asks(x="gate")) is fleet


def test_what_else_a_pod_asks_of_its_node_still_holds() -> None:
    nodes = [of_pool("a", 8, "gate"), replace(of_pool("b", 8, "gate"), labels={"pool": "gate", "disk": "fast"})]
    fleet = world([*nodes, of_pool("c", 8, "bind")], [pod("ns/x", gpus=1, selector={"disk": "fast"})])

    assert placed(restricted(fleet, asks(x="gate"))) == {"ns/x": "b"}


def test_what_runs_stays_where_it_is_whatever_the_pool_has_become() -> None:
    fleet = world([of_pool("a", 8, "bind"), of_pool("b", 8, "gate")], [pod("ns/x", gpus=1, on="a", devices=(0,))])

    assert restricted(fleet, {}).pods.shapes == fleet.pods.shapes


def test_instances_have_the_placement_mode_of_most_devices_of_their_type() -> None:
    fleet = world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/chat")])

    assert modes(fleet) == {"ns/chat": "gate"}


def test_running_instances_are_not_restarted_because_another_pool_has_grown() -> None:
    fleet = world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/chat")])

    assert modes(fleet, lambda _, __, mode: mode == "bind") == {"ns/chat": "bind"}


def test_instances_leave_a_placement_mode_that_has_no_node_of_their_type_any_more() -> None:
    fleet = world([of_pool("b", 8, "gate")], services=[service("ns/chat")])

    assert modes(fleet, lambda _, __, mode: mode == "bind") == {"ns/chat": "gate"}


def test_a_type_whose_nodes_are_all_gone_for_now_keeps_its_placement_mode() -> None:
    fleet = world([node("cpu")], prices={"A100": 1.0}, services=[service("ns/chat")])

    assert modes(fleet, lambda _, __, mode: mode == "bind") == {"ns/chat": "bind"}
    assert modes(fleet) == {"ns/chat": "gate"}, "the last pool's, where nothing is deployed"


def test_the_mix_is_offered_only_devices_of_the_placement_mode_of_its_instances() -> None:
    fleet = world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/chat")])

    seen = restricted(replace(fleet, profiles=(profile("A100", [[1.0]]),)), {})

    assert seats(seen, InstanceType("A100")) == 8


# A cluster that does what is written


TEMPLATE = {"spec": {"containers": [{"name": "server", "image": "i"}]}}


def with_a_service(rate: float) -> FakeClusterView:
    """One A100 in a pool of `bind`, four in one of `gate`; an instance serves one request a second."""
    sightings = fake_view(
        world(
            [of_pool("a", 1, "bind"), of_pool("b", 4, "gate")],
            services=[service("ns/chat", rate)],
            profiles=[profile("A100", [[1.0]])],
        )
    )
    sightings.services["ns/chat"] = SeenService("ns/chat", "uid-chat", 1, TEMPLATE)
    return sightings


def test_every_step_of_a_plan_over_pools_of_several_placement_modes_can_be_written() -> None:
    """Instances were planned onto nodes whose placer refuses them, in every cycle again."""
    sightings, writer = with_a_service(4.0), FakeWriter()
    cluster = kubernetes(sightings, writer, pools=POOLS)
    scale = decide(cluster.observe(), Decisions(policy="bestfit"), deadline_s=10, clock=still)
    assert [each for each in scale.actions if isinstance(each, Scale)] == [Scale("ns/chat", of_types({"A100": 4}))]

    # Its Deployment makes the pods: gated, because most devices are in the pool of that placement mode.
    sightings.now = replace(sightings.now, pods=sightings.now.after(scale.actions[:1]).pods)
    assert set(sightings.now.pods.node.tolist()) == {PENDING}
    sightings.pods = {n: SeenPod(n, f"u-{n}", "1", gates=(PLACEMENT_GATE,)) for n in sightings.now.pods.names}
    made = Instance(sightings.now.services[0], sightings.services["ns/chat"], InstanceType("A100"), A100, "gate")
    sightings.deployed = (SeenDeployment("ns/chat", InstanceType("A100"), 4, content_of(made)),)
    seen = cluster.observe()
    plan = without_pods_to_come(seen, decide(seen, Decisions(policy="bestfit"), deadline_s=10, clock=still))

    assert {action.node for action in plan.actions if isinstance(action, Bind)} == {"b"}
    assert len(plan.actions) == 4
    assert cluster.apply(plan.actions) == [None] * 4


def test_a_service_that_fits_only_pools_of_several_modes_together_is_refused_rather_than_half_placed() -> None:
    seen = kubernetes(with_a_service(5.0), FakeWriter(), pools=POOLS).observe()

    plan = decide(seen, Decisions(policy="bestfit"), deadline_s=10, clock=still)

    assert plan.actions == ()
    assert plan.services[0].refusal is not None


def test_a_cordoned_node_still_counts_for_the_placement_mode_of_its_type() -> None:
    """A reboot must not change the placement mode of a type: that would restart all its instances."""
    fleet = cordoned(world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/chat")]), "b")

    assert modes(fleet) == {"ns/chat": "gate"}


# Services restricted to some nodes


def test_a_service_restricted_to_a_pool_has_its_mode_and_the_others_the_mode_of_most_devices() -> None:
    fleet = world(
        [of_pool("a", 2, "bind"), of_pool("b", 8, "gate")],
        services=[service("ns/x"), restricted_service("y", pool="bind")],
    )

    assert modes(fleet) == {"ns/x": "gate", "ns/y": "bind"}


def test_a_service_restricted_to_nodes_of_several_modes_has_the_shared_one_unless_it_is_deployed_in_another() -> None:
    nodes = [
        replace(of_pool(n, g, p), labels={"pool": p, "disk": "fast"})
        for n, g, p in (("a", 4, "bind"), ("b", 2, "gate"))
    ]
    fleet = world([*nodes, of_pool("c", 8, "gate")], services=[restricted_service("y", disk="fast")])

    assert modes(fleet) == {"ns/y": "gate"}
    assert modes(fleet, lambda service, _, mode: (service, mode) == ("ns/y", "bind")) == {"ns/y": "bind"}


def test_a_service_restricted_to_nodes_that_do_not_exist_keeps_its_placement_mode() -> None:
    fleet = world([of_pool("a", 2, "bind")], services=[restricted_service("y", disk="fast")])

    assert modes(fleet, lambda _, __, mode: mode == "bind") == {"ns/y": "bind"}


def test_the_deployed_mode_of_a_restricted_service_does_not_bind_the_others() -> None:
    fleet = world(
        [of_pool("a", 2, "bind"), of_pool("b", 8, "gate")],
        services=[service("ns/x"), restricted_service("y", pool="bind")],
    )

    assert modes(fleet, lambda service, _, mode: 9 * (service == "ns/y" and mode == "bind"))["ns/x"] == "gate"


def test_the_mix_of_a_restricted_service_is_offered_only_its_nodes_of_its_placement_mode() -> None:
    fleet = world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[restricted_service("y", pool="bind")])

    seen = restricted(replace(fleet, profiles=(profile("A100", [[1.0]]),)), {})

    assert seats(seen, InstanceType("A100")) == 2


def test_a_share_of_a_device_goes_only_where_no_other_scheduler_gives_whole_ones_away() -> None:
    """By `gate` a share asks for no extended resource: kube-scheduler would give its device to the next pod."""
    fleet = world(
        [of_pool("a", 8, "gate"), of_pool("b", 8, "own")], [pod("ns/x", gpus=1, gpu_milli=500), pod("ns/y", gpus=8)]
    )
    shared, own = NodePool("gate", {"pool": "gate"}), NodePool("gate", {"pool": "own"}, shares=True)

    def planned(*pools: NodePool) -> dict[str, str]:
        known = PlacementModes(pools)
        of_services = known.of_services(fleet, lambda *_: 0)
        return placed(known.restricted(fleet, of_services, asks(x="gate", y="gate"), frozenset({"ns/x"})))

    assert planned(shared, own) == {"ns/x": "b", "ns/y": "a"}
    assert planned(shared) == {"ns/y": "a"}
    everywhere = planned(NodePool("gate", {}, shares=True))
    assert set(everywhere) == {"ns/x", "ns/y"}
