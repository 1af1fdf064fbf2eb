"""Ways of placing as deciders see them: no plan brings a pod and a node of different ways together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster.actions import Bind, Scale
from cluster.cordon import cordoned
from cluster.pods import PENDING
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService, Requirement
from controller.api.labels import PLACEMENT_GATE
from controller.deciders.awaiting_pods import without_pods_to_come
from controller.deciders.decisions import Decisions
from controller.deciders.pipeline import decide
from controller.kube.cluster_view import SeenDeployment, SeenPod, SeenService
from controller.kube_world.deployments import Instance, content_of
from controller.placers.pool_affinity import Standing, Ways
from controller.placers.pools import Pool
from placement.mix.problem_builder import stock_of
from tests.builders.fleet import Node, node, pod, world
from tests.builders.mix import profile, service, still
from tests.unit.controller.kube.fake_cluster_view import A100, PretendSightings, kubernetes, sighted
from tests.unit.controller.kube.fake_writer import ScriptedWriter

POOLS = (Pool("bind", {"pool": "bind"}), Pool("gate", {"pool": "gate"}))


def of_pool(name: str, gpus: int, pool: str) -> Node:
    return node(name, gpus=gpus, labels={"pool": pool, "kubernetes.io/hostname": name})


def asks(**ways: str) -> Mapping[str, str]:
    return {f"ns/{name}": way for name, way in ways.items()}


def told(snapshot: Snapshot, ways: Mapping[str, str], pools: Sequence[Pool] = POOLS) -> Snapshot:
    known = Ways(pools)
    return known.told(snapshot, known.of_services(snapshot, lambda *_: 0), ways.get)


def kept(name: str, **labels: str) -> ModelService:
    return service(f"ns/{name}", node_terms=(tuple(Requirement(k, "In", (v,)) for k, v in labels.items()),))


def ways(fleet: Snapshot, standing: Standing = lambda *_: 0) -> dict[str, str]:
    return {name: of_types["A100"] for name, of_types in Ways(POOLS).of_services(fleet, standing).items()}


def placed(snapshot: Snapshot) -> dict[str, str]:
    """Pod → node, as a plan of everything that waits has it."""
    plan = decide(snapshot, Decisions(policy="bestfit"), deadline_s=10, clock=still)
    return {action.pod: action.node for action in plan.actions if isinstance(action, Bind)}


def test_a_pod_is_planned_onto_nodes_of_its_own_way_only() -> None:
    # Either node takes either pod, and the best fit for both is `a`, whose one device one pod fills.
    fleet = world([of_pool("a", 1, "bind"), of_pool("b", 8, "gate")], [pod("ns/x", gpus=1), pod("ns/y", gpus=1)])

    assert placed(told(fleet, asks(x="gate", y="gate"))) == {"ns/x": "b", "ns/y": "b"}
    assert placed(told(fleet, asks(x="gate", y="bind"))) == {"ns/x": "b", "ns/y": "a"}


def test_a_pod_without_a_node_of_its_way_is_told_so() -> None:
    fleet = world([of_pool("a", 8, "gate")], [pod("ns/x", gpus=1)])

    plan = decide(told(fleet, asks(x="bind")), Decisions(policy="bestfit"), deadline_s=10, clock=still)

    (unplaced,) = plan.unplaced
    assert unplaced.reason.figures == {"nodes": 1.0, "way": 1.0}
    assert "`pools` in the settings" in unplaced.reason.words


def test_a_node_of_no_pool_takes_nothing_new() -> None:
    fleet = world([of_pool("a", 8, "elsewhere")], [pod("ns/x", gpus=1)])

    assert placed(told(fleet, asks(x="gate"))) == {}


def test_a_cluster_of_one_way_is_planned_on_as_it_was_seen() -> None:
    fleet = world([of_pool("a", 8, "gate")], [pod("ns/x", gpus=1)])

    assert told(fleet, asks(x="gate")) is fleet


def test_what_else_a_pod_asks_of_its_node_still_holds() -> None:
    nodes = [of_pool("a", 8, "gate"), replace(of_pool("b", 8, "gate"), labels={"pool": "gate", "disk": "fast"})]
    fleet = world([*nodes, of_pool("c", 8, "bind")], [pod("ns/x", gpus=1, selector={"disk": "fast"})])

    assert placed(told(fleet, asks(x="gate"))) == {"ns/x": "b"}


def test_what_runs_stays_where_it_is_whatever_the_pool_has_become() -> None:
    fleet = world([of_pool("a", 8, "bind"), of_pool("b", 8, "gate")], [pod("ns/x", gpus=1, on="a", devices=(0,))])

    assert told(fleet, {}).pods.shapes == fleet.pods.shapes


def test_instances_go_the_way_of_most_devices_of_their_type() -> None:
    fleet = world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/chat")])

    assert ways(fleet) == {"ns/chat": "gate"}


def test_instances_that_stand_are_not_restarted_because_another_pool_has_grown() -> None:
    fleet = world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/chat")])

    assert ways(fleet, lambda _, __, way: way == "bind") == {"ns/chat": "bind"}


def test_instances_leave_a_way_that_has_no_node_of_their_type_any_more() -> None:
    fleet = world([of_pool("b", 8, "gate")], services=[service("ns/chat")])

    assert ways(fleet, lambda _, __, way: way == "bind") == {"ns/chat": "gate"}


def test_a_type_whose_nodes_are_all_gone_for_now_keeps_its_way() -> None:
    fleet = world([node("cpu")], prices={"A100": 1.0}, services=[service("ns/chat")])

    assert ways(fleet, lambda _, __, way: way == "bind") == {"ns/chat": "bind"}
    assert ways(fleet) == {"ns/chat": "gate"}, "the last pool's, where nothing stands"


def test_the_mix_is_offered_the_devices_of_the_way_of_its_instances_only() -> None:
    fleet = world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/chat")])

    seen = told(fleet, {})

    assert stock_of(seen, seen.services, ())["A100"].gpus == 8


# A cluster that obeys


TEMPLATE = {"spec": {"containers": [{"name": "server", "image": "i"}]}}


def with_a_service(rate: float) -> PretendSightings:
    """One A100 in a pool of `bind`, four in one of `gate`; an instance serves one request a second."""
    sightings = sighted(
        world(
            [of_pool("a", 1, "bind"), of_pool("b", 4, "gate")],
            services=[service("ns/chat", rate)],
            profiles=[profile("A100", [[1.0]])],
        )
    )
    sightings.services["ns/chat"] = SeenService("ns/chat", "uid-chat", 1, TEMPLATE)
    return sightings


def test_every_step_of_a_plan_over_pools_of_several_ways_can_be_written() -> None:
    """Instances were planned onto nodes whose placer refuses them, in every cycle again."""
    sightings, writer = with_a_service(4.0), ScriptedWriter()
    cluster = kubernetes(sightings, writer, pools=POOLS)
    scale = decide(cluster.observe(), Decisions(policy="bestfit"), deadline_s=10, clock=still)
    assert [each for each in scale.actions if isinstance(each, Scale)] == [Scale("ns/chat", {"A100": 4})]

    # Its Deployment makes the pods: gated, because most devices are in the pool of that way.
    sightings.now = replace(sightings.now, pods=sightings.now.after(scale.actions[:1]).pods)
    assert set(sightings.now.pods.node.tolist()) == {PENDING}
    sightings.pods = {n: SeenPod(n, f"u-{n}", "1", gates=(PLACEMENT_GATE,)) for n in sightings.now.pods.names}
    made = Instance(sightings.now.services[0], sightings.services["ns/chat"], "A100", 1, A100, "gate")
    sightings.deployed = (SeenDeployment("ns/chat", "A100", 4, content_of(made)),)
    seen = cluster.observe()
    plan = without_pods_to_come(seen, decide(seen, Decisions(policy="bestfit"), deadline_s=10, clock=still))

    assert {action.node for action in plan.actions if isinstance(action, Bind)} == {"b"}
    assert len(plan.actions) == 4
    assert cluster.apply(plan.actions) == [None] * 4


def test_a_service_that_only_pools_of_several_ways_together_could_hold_is_refused_rather_than_half_placed() -> None:
    seen = kubernetes(with_a_service(5.0), ScriptedWriter(), pools=POOLS).observe()

    plan = decide(seen, Decisions(policy="bestfit"), deadline_s=10, clock=still)

    assert plan.actions == ()
    assert plan.services[0].refusal is not None


def test_a_cordoned_node_still_says_which_way_its_type_goes() -> None:
    """A reboot must not send the instances of a type another way: that would restart them all."""
    fleet = cordoned(world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/chat")]), "b")

    assert ways(fleet) == {"ns/chat": "gate"}


# Services that are kept to some nodes


def test_a_service_kept_to_a_pool_goes_its_way_and_the_others_the_way_of_most_devices() -> None:
    fleet = world(
        [of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/x"), kept("y", pool="bind")]
    )

    assert ways(fleet) == {"ns/x": "gate", "ns/y": "bind"}


def test_a_service_kept_to_nodes_of_several_ways_goes_the_shared_way_unless_it_stands_in_another() -> None:
    nodes = [
        replace(of_pool(n, g, p), labels={"pool": p, "disk": "fast"})
        for n, g, p in (("a", 4, "bind"), ("b", 2, "gate"))
    ]
    fleet = world([*nodes, of_pool("c", 8, "gate")], services=[kept("y", disk="fast")])

    assert ways(fleet) == {"ns/y": "gate"}
    assert ways(fleet, lambda service, _, way: (service, way) == ("ns/y", "bind")) == {"ns/y": "bind"}


def test_a_service_kept_to_no_node_that_there_is_keeps_its_way() -> None:
    fleet = world([of_pool("a", 2, "bind")], services=[kept("y", disk="fast")])

    assert ways(fleet, lambda _, __, way: way == "bind") == {"ns/y": "bind"}


def test_what_a_kept_service_stands_for_does_not_hold_the_others() -> None:
    fleet = world(
        [of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[service("ns/x"), kept("y", pool="bind")]
    )

    assert ways(fleet, lambda service, _, way: 9 * (service == "ns/y" and way == "bind"))["ns/x"] == "gate"


def test_the_mix_of_a_kept_service_is_offered_its_nodes_of_its_way_only() -> None:
    fleet = world([of_pool("a", 2, "bind"), of_pool("b", 8, "gate")], services=[kept("y", pool="bind")])

    seen = told(fleet, {})

    assert stock_of(seen, seen.services, ())["A100"].gpus == 2
