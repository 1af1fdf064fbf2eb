"""Power table from PowerDomains, nodes and inventories, and the errors in them by name."""

from dataclasses import replace
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.power import UNLIMITED_W, PowerTable
from cluster.workloads import MAX_GPUS_PER_NODE
from controller.api.power_domain import PowerDomainSpec
from controller.loops.power.domain_tree import CLASS_LABEL, PoweredNode, power_tree
from controller.loops.power.power_table import UNHEARD_GPU_W, power_table, sound, unheard
from controller.objects.accelerators import COUNT_LABELS, PRODUCT_LABELS
from power.leases.messages import DeviceInventory, Inventory
from power.tree import reach_of

CLASSES = [{"name": "high", "rank": 0, "minPriority": 1000}, {"name": "low", "rank": 1, "floor": 0.3}]


def spec(**fields: Any) -> PowerDomainSpec:
    return PowerDomainSpec.model_validate({"type": "rack", **fields})


def rack(*values: str, **fields: Any) -> PowerDomainSpec:
    return spec(nodes={"key": "rack", "values": list(values)}, **fields)


def node(place: str = "a", gpus: int = 2, priority: int | None = None, **labels: str) -> PoweredNode:
    return PoweredNode({"rack": place, **labels}, gpus, priority)


def found(**fields: Any) -> DeviceInventory:
    return DeviceInventory(**{"model": "H100", "min_w": 200.0, "max_w": 700.0, "default_w": 700.0, "previous_w": 650.0,
                    "managed": True, **fields})  # fmt: skip


def inventory(name: str, count: int = 2, **fields: Any) -> Inventory:
    return Inventory(name, "life", {f"{name}-{n}": found(**fields) for n in range(count)})


ROW = {"row": spec(type="row", budgetWatts=5000.0, classes=CLASSES), "a": rack("a", feeds=[{"name": "row"}])}


def other_w(table: PowerTable, name: str) -> float:
    return float(table.domains.other_w[table.domains.names.row(name)])


def mistakes(domains: dict[str, PowerDomainSpec], nodes: dict[str, PoweredNode]) -> dict[str, str]:
    tree = power_tree(domains, nodes)
    return {each.place: each.problem for each in (*tree.fatal, *tree.mistakes)}


def test_devices_draw_through_their_node_its_rack_and_the_row() -> None:
    table = power_table(ROW, {"n1": node()}, {"n1": inventory("n1")})

    reach = reach_of(table)
    where = [table.domains.names.row(name) for name in ("n1", "a", "row")]
    assert [reach[table.devices.domain[0], row] for row in where] == [1.0, 1.0, 1.0]
    assert table.domains.budget_w.tolist() == [UNLIMITED_W, 5000.0, UNLIMITED_W]
    assert list(table.devices.names) == ["n1-0", "n1-1"]
    assert table.devices.previous_w.tolist() == [650.0, 650.0]


def test_a_rack_that_is_fed_twice_counts_whole_on_both_feeds() -> None:
    feeds = [{"name": "left"}, {"name": "right"}]
    domains = {"left": spec(budgetWatts=900.0), "right": spec(budgetWatts=900.0), "a": rack("a", feeds=feeds)}
    table = power_table(domains, {"n1": node()}, {"n1": inventory("n1")})

    reach = reach_of(table)[table.devices.domain[0]]
    assert [reach[table.domains.names.row(name)] for name in ("left", "right")] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (node(priority=1000), "high"),
        (node(priority=999), "low"),
        (node(), "low"),
        (node(**{CLASS_LABEL: "high"}), "high"),
        (node(priority=2000, **{CLASS_LABEL: "low"}), "low"),
        (node(**{CLASS_LABEL: "hihg"}), "low"),
    ],
)
def test_the_class_is_the_labels_then_that_of_the_most_important_pod(given: PoweredNode, expected: str) -> None:
    assert power_tree(ROW, {"n1": given}).class_of_node["n1"].name == expected


def test_the_floor_is_that_of_the_class_and_never_below_what_the_device_takes() -> None:
    table = power_table(ROW, {"n1": node()}, {"n1": inventory("n1")})
    picky = power_table(ROW, {"n1": node()}, {"n1": inventory("n1", min_w=400.0)})

    assert table.devices.floor_w.tolist() == [pytest.approx(0.3 * 700)] * 2
    assert picky.devices.floor_w.tolist() == [400.0, 400.0]


def test_a_node_that_was_never_heard_counts_at_its_worst() -> None:
    domains = {"a": rack("a", budgetWatts=9000.0)}
    domains["a"] = domains["a"].model_copy(
        update={"nodes": domains["a"].nodes.model_copy(update={"other_watts": 300.0})}  # type: ignore[union-attr]
    )
    table = power_table(domains, {"n1": node(gpus=4)}, {})

    assert table.domains.other_w[table.domains.names.row("n1")] == pytest.approx(300 + 4 * UNHEARD_GPU_W * 1.05)
    assert unheard(power_tree(domains, {"n1": node()}), {"n1": node()}, {}) == {"n1"}


def test_an_unheard_node_counts_as_those_of_its_product() -> None:
    alike = {"nvidia.com/gpu.product": "H100"}
    nodes = {"n1": node(**alike), "n2": node(**alike)}
    table = power_table(ROW, nodes, {"n1": inventory("n1")})

    assert table.domains.other_w[table.domains.names.row("n2")] == pytest.approx(2 * 700 * 1.05)


def test_observed_nodes_are_not_managed() -> None:
    domains = {**ROW, "row": spec(type="row", budgetWatts=5000.0, mode="observe")}

    assert not power_table(domains, {"n1": node()}, {"n1": inventory("n1")}).devices.managed.any()


@pytest.mark.parametrize("wrong", [{"max_w": float("nan")}, {"min_w": 0.0}, {"min_w": 800.0}, {"default_w": 0.0}])
def test_an_agent_that_tells_nonsense_stops_nobody_else(wrong: dict[str, Any]) -> None:
    told = {"n1": inventory("n1", **wrong), "n2": inventory("n2")}
    table = power_table(ROW, {"n1": node(), "n2": node()}, told)

    assert list(table.devices.names) == ["n2-0", "n2-1"]
    assert other_w(table, "n1") == pytest.approx(2 * UNHEARD_GPU_W * 1.05)


@pytest.mark.parametrize("wrong", [{"min_w": 0.0, "max_w": 0.0, "default_w": 0.0}, {"max_w": float("nan")}])
def test_a_device_without_power_management_takes_nothing_from_the_others_of_its_node(wrong: dict[str, Any]) -> None:
    told = inventory("n1", 3)
    told = replace(told, devices={**told.devices, "n1-2": found(**wrong, managed=False)})
    table = power_table(ROW, {"n1": node(gpus=3)}, {"n1": told})

    assert list(table.devices.names) == ["n1-0", "n1-1"]
    assert other_w(table, "n1") == pytest.approx(UNHEARD_GPU_W * 1.05)


@pytest.mark.parametrize(
    ("labels", "gpus", "missing"),
    [
        ({}, 8, 1),
        ({"nvidia.com/gpu.count": "8"}, 8, 1),
        ({"nvidia.com/gpu.count": "8"}, 32, 1),  # each GPU is shared by four
        ({"nvidia.com/gpu.product": "H100-MIG-1g.10gb", "nvidia.com/gpu.count": "56"}, 56, 0),
        ({"nvidia.com/gpu.product": "H100-SHARED"}, 32, 0),
        ({}, 4, 0),
    ],
)
def test_gpus_that_their_agent_did_not_report_count_at_their_highest(
    labels: dict[str, str], gpus: int, missing: int
) -> None:
    """Found by faults: a GPU that did not answer when its agent started drew 700 W that nobody counted."""
    nodes = {"n1": node(gpus=gpus, **labels)}
    table = power_table(ROW, nodes, {"n1": inventory("n1", 7)})
    highest_w = 700.0 if "nvidia.com/gpu.product" in labels else UNHEARD_GPU_W

    assert other_w(table, "n1") == pytest.approx(missing * highest_w * 1.05)


def test_overhead_follows_the_draw_of_devices_and_is_the_highest_where_domains_contradict_each_other() -> None:
    def domain(value: str, **fields: Any) -> PowerDomainSpec:
        return spec(nodes={"key": value, "values": ["a"], **fields})

    domains = {"a": domain("rack", overheadShare=0.25, otherWatts=300.0), "b": domain("pdu", overheadShare=0.1)}
    table = power_table(domains, {"n1": node(pdu="a"), "n2": node("b", pdu="a")}, {"n1": inventory("n1")})

    assert table.devices.overhead_share.tolist() == [0.25, 0.25]
    assert other_w(table, "n1") == 300.0
    assert other_w(table, "n2") == pytest.approx(2 * UNHEARD_GPU_W * 1.05 * 1.1)  # its agent was never heard


def test_a_device_that_two_agents_claim_belongs_to_one() -> None:
    twice = Inventory("n2", "life", {"n1-0": found()})

    assert set(sound({"n1": inventory("n1"), "n2": twice}, ["n1", "n2"])) == {"n1"}
    # The order of names would let an agent of n0 take devices of all others, and lower them to their floors.
    early = Inventory("n0", "life", {"n1-0": found()})
    assert set(sound({"n1": inventory("n1"), "n0": early}, ["n0", "n1"])) == {"n1"}


def test_a_node_that_was_renamed_has_its_devices() -> None:
    renamed = Inventory("n2", "life", inventory("n1").devices)

    assert set(sound({"n1": inventory("n1"), "n2": renamed}, ["n2"])) == {"n2"}


def test_an_agent_that_names_absurd_watts_takes_nothing_from_others() -> None:
    """GPUs of its product that were not heard from counted at as much, also in other racks."""
    nodes = {"n1": node(**{PRODUCT_LABELS[0]: "H100"}), "n2": node(**{PRODUCT_LABELS[0]: "H100"})}
    liar = inventory("n1", max_w=1e300, default_w=1e300)

    table = power_table(ROW, nodes, {"n1": liar})

    assert len(table.devices) == 0
    assert other_w(table, "n1") == other_w(table, "n2") == pytest.approx(2 * UNHEARD_GPU_W * 1.05)


@pytest.mark.parametrize("odd", [node(**{COUNT_LABELS[0]: "9" * 63}), node(gpus=2**62)])
def test_a_node_that_says_it_has_absurdly_many_gpus_has_as_many_as_nodes_have(odd: PoweredNode) -> None:
    """A kubelet writes label and capacity of its own node: 63 digits took the power of all domains of the node."""
    table = power_table(ROW, {"n1": odd}, {"n1": inventory("n1")})

    assert other_w(table, "n1") == pytest.approx((MAX_GPUS_PER_NODE - 2) * UNHEARD_GPU_W * 1.05)


def test_an_unknown_feed_is_named_with_what_was_meant() -> None:
    domains = {**ROW, "b": rack("b", feeds=[{"name": "rwo"}])}
    tree = power_tree(domains, {})

    assert [(each.place, each.remedy) for each in tree.fatal] == [
        ("PowerDomain/b, spec.feeds[0].name", "did you mean row?")
    ]
    with pytest.raises(ConfigError, match="there is no PowerDomain 'rwo'"):
        power_table(domains, {}, {})


def test_a_circle_is_named_at_every_domain_in_it() -> None:
    domains = {"a": spec(feeds=[{"name": "b"}]), "b": spec(feeds=[{"name": "a"}]), "c": spec(feeds=[{"name": "a"}])}

    assert set(mistakes(domains, {})) == {"PowerDomain/a, spec.feeds", "PowerDomain/b, spec.feeds"}


def test_a_node_in_two_domains_of_which_neither_feeds_the_other_counts_whole_in_both() -> None:
    pdu = spec(nodes={"key": "pdu", "values": ["p"]}, budgetWatts=900.0)
    both = {"n1": node(pdu="p")}

    assert power_tree({**ROW, "p": pdu}, both).feeds_of_node == {"n1": ("a", "p")}
    assert set(mistakes({**ROW, "p": pdu}, both)) == {"PowerDomain/a, spec.nodes", "PowerDomain/p, spec.nodes"}


def test_a_node_that_is_labelled_into_a_rack_and_its_row_is_in_the_rack() -> None:
    domains = {"row": rack("a"), "a": rack("a", feeds=[{"name": "row"}])}

    assert power_tree(domains, {"n1": node()}).feeds_of_node == {"n1": ("a",)}
    assert mistakes(domains, {"n1": node()}) == {}


def test_a_domain_with_the_name_of_a_node_is_refused() -> None:
    assert "PowerDomain/a, metadata.name" in mistakes(ROW, {"a": node()})


def test_a_class_that_is_none_is_told_once_with_its_nodes() -> None:
    nodes = {f"n{n}": node(**{CLASS_LABEL: "hihg"}) for n in range(5)}

    assert mistakes(ROW, nodes) == {
        "PowerDomain/a, spec.classes": "Nodes n0, n1, n2 and 2 more are of class 'hihg', which is not defined here: "
        "the priority of its pods decides"
    }
