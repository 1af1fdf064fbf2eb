"""The mix where services are restricted to some of the nodes: the stock of each, alone and together with others."""

from cli.printing.plan_figures import named
from cluster.actions import Scale
from cluster.nodes import NodeTaint
from cluster.plans import Plan
from cluster.snapshot import Snapshot
from cluster.workloads import ModelService, Requirement, Toleration
from placement.mix.planner import plan_mix
from tests.builders.fleet import Node, node, pod, world
from tests.builders.mix import ample, of_types, profile, service


def zoned(name: str, rate: float, *zones: str, **rest: object) -> ModelService:
    terms = ((Requirement("zone", "In", zones),),) if zones else ()
    return service(f"ns/{name}", rate, node_terms=terms, slice_factor=2, **rest)


def there(name: str, gpus: int, zone: str, **rest: object) -> Node:
    return node(name, gpus=gpus, labels={"zone": zone}, **rest)


def fleet(*services: ModelService, nodes: list[Node], **rest: object) -> Snapshot:
    """An instance serves one request a second on one device."""
    return world(nodes, services=list(services), profiles=[profile("A100", [[1.0]])], prices={"A100": 1.0}, **rest)  # type: ignore[arg-type]


def planned(snapshot: Snapshot) -> Plan:
    return plan_mix(snapshot, ample())


def scaled(plan: Plan) -> dict[str, dict[str, int]]:
    return {each.service: named(each.instances) for each in plan.actions if isinstance(each, Scale)}


def refusals(plan: Plan) -> dict[str, str]:
    return {each.service: each.refusal.words for each in plan.services if each.refusal}


def test_a_service_gets_no_more_instances_than_the_nodes_of_its_selector_hold() -> None:
    nodes = [there("a", 2, "a"), there("b", 8, "b")]

    assert scaled(planned(fleet(zoned("x", 2.0, "a"), nodes=nodes))) == {"ns/x": {"A100": 2}}
    plan = planned(fleet(zoned("x", 3.0, "a"), nodes=nodes))
    assert plan.actions == ()
    assert refusals(plan) == {"ns/x": "does not fit: at least 1 more A100 (of 2) would suffice"}


def test_a_service_that_may_run_anywhere_leaves_the_few_nodes_of_another_to_it() -> None:
    nodes = [there("a", 2, "a"), there("b", 2, "b")]

    plan = planned(fleet(zoned("anywhere", 2.0), zoned("x", 2.0, "a"), nodes=nodes))

    assert scaled(plan) == {"ns/anywhere": {"A100": 2}, "ns/x": {"A100": 2}}


def test_a_service_is_refused_for_its_own_nodes_although_there_are_others() -> None:
    nodes = [there("a", 1, "a"), there("b", 8, "b")]

    plan = planned(fleet(zoned("anywhere", 2.0), zoned("x", 2.0, "a"), nodes=nodes))

    assert scaled(plan) == {"ns/anywhere": {"A100": 2}}
    assert refusals(plan) == {"ns/x": "does not fit: at least 1 more A100 on nodes for ns/x (of 1) would suffice"}


def test_two_services_kept_to_nodes_that_overlap_get_what_both_sets_together_hold() -> None:
    """Each alone would fit its own two zones, but they share them: three devices for four instances."""
    nodes = [there("a", 1, "a"), there("b", 1, "b"), there("c", 1, "c"), there("d", 9, "d")]
    x, y, anywhere = zoned("x", 2.0, "a", "b"), zoned("y", 2.0, "b", "c"), zoned("anywhere", 1.0)

    plan = planned(fleet(anywhere, x, y, nodes=nodes))

    assert scaled(plan) == {"ns/x": {"A100": 2}, "ns/anywhere": {"A100": 1}}
    assert list(refusals(plan)) == ["ns/y"]
    assert "1 more A100 on nodes for ns/x, ns/y (of 3)" in refusals(plan)["ns/y"]


def test_devices_of_its_own_instances_count_wherever_they_run() -> None:
    nodes = [there("a", 1, "a"), there("b", 2, "b")]
    pods = [pod("x-1", 1, on="b", devices=(0,), owner="ns/x")]

    plan = planned(fleet(zoned("x", 2.0, "a"), zoned("anywhere", 1.0), nodes=nodes, pods=pods))

    assert scaled(plan) == {"ns/x": {"A100": 2}, "ns/anywhere": {"A100": 1}}


def test_tainted_nodes_count_for_services_that_tolerate_the_taint_alone() -> None:
    nodes = [node("a", gpus=2, taints=(NodeTaint("gpu", "", "NoSchedule"),))]
    tolerant = zoned("x", 2.0, tolerations=(Toleration("gpu", "Exists"),))

    assert scaled(planned(fleet(tolerant, nodes=nodes))) == {"ns/x": {"A100": 2}}
    plan = planned(fleet(tolerant, zoned("y", 1.0), nodes=nodes))
    assert scaled(plan) == {"ns/x": {"A100": 2}}
    assert list(refusals(plan)) == ["ns/y"]


def test_the_next_cheaper_mix_says_what_it_would_need() -> None:
    """One more A100 in zone a would do what an H100 does there now."""
    nodes = [there("a", 1, "a"), there("b", 8, "b"), there("h", 2, "a", gpu_type="H100")]
    snapshot = world(
        nodes,
        services=[zoned("x", 2.0, "a"), zoned("anywhere", 1.0)],
        profiles=[profile("A100", [[1.0]]), profile("H100", [[1.0]])],
        prices={"A100": 1.0, "H100": 4.0},
    )
    plan = planned(snapshot)
    (mine,) = [each for each in plan.services if each.service == "ns/x"]

    assert mine.instances == of_types({"A100": 1, "H100": 1})
    assert [note.words for note in mine.notes if note.code == "Cheaper"] == [
        "2 × A100 at 2.00 $/h would cost 3.00 $/h less and need 1 more A100"
    ]
