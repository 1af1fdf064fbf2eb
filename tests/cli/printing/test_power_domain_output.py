"""`tonnage power explain`: statuses of PowerDomains in print."""

from typing import Any

from cli.printing.power_domain_output import domains_of, why
from controller.loops.power.domain_facts import DomainFacts, HeldBackDevice, Suspect
from controller.loops.power.domain_status import StatusInputs, status_after

AT_S = 1_700_000_000.0
HELD = HeldBackDevice("g1", "n1", "low", 400.0, 640.0, "row", AT_S, 0.1)


def domain(
    name: str, *, feeds: tuple[str, ...] = (), held: tuple[HeldBackDevice, ...] = (), wrong: tuple[Suspect, ...] = ()
) -> Any:
    facts = DomainFacts(
        draw_w=1200.0, worst_w=1400.0, budget_w=2000.0, headroom_w=300.0, devices=4, managed=4, stale=0,
        suspects=len(wrong), held=len(held), unheard_nodes=(), culprits=wrong,
    )  # fmt: skip
    spec = {"type": "row" if name == "row" else "rack", "budgetWatts": 2000, "feeds": [{"name": f} for f in feeds]}
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": status_after({}, StatusInputs(1, facts=facts, held=held), AT_S, may_refresh=True),
    }


ROW = [domain("a-rack", feeds=("row",), held=(HELD,), wrong=(Suspect("g2", "n1", "OverCap"),)), domain("row")]


def test_a_domain_without_a_reported_status_is_explained_by_what_may_be_off() -> None:
    bare = [{"metadata": {"name": "new"}, "spec": {"type": "rack"}}]

    found = why(domains_of(bare), "new")
    assert found is not None
    assert "is power enabled" in found.lines[1]


def test_a_device_is_explained_by_who_is_short_and_which_class_gives() -> None:
    found = why(domains_of(ROW), "g1")

    assert found is not None
    assert found.lines == (
        (
            "g1 on n1 (a-rack, class low) may draw 400 W and needs 640 W: row cannot carry the other 240 W; "
            "about 10% slower."
        ),
        "Below row class low lacks 240 W on 1 listed devices, about 10% of their speed.",
    )


def test_a_node_is_explained_by_its_devices_and_a_liar_by_its_fault() -> None:
    node, liar = why(domains_of(ROW), "n1"), why(domains_of(ROW), "g2")

    assert node is not None
    assert [line.split()[0] for line in node.lines] == ["g2", "g1", "Below"]
    assert liar is not None
    assert "drew more than its cap allows" in liar.lines[0]


def test_a_domain_is_explained_with_what_hangs_below_it() -> None:
    found = why(domains_of(ROW), "row")

    assert found is not None
    assert "  class low lacks 240 W on 1 listed devices, about 10% of their speed" in found.lines
    assert found.data["heldBackBelow"][0]["device"] == "g1"


def test_what_no_status_names_has_no_answer() -> None:
    assert why(domains_of(ROW), "g9") is None


def test_a_circle_is_shown_too() -> None:
    circle = [domain("a", feeds=("b",)), domain("b", feeds=("a",))]

    assert {each.name for each in domains_of(circle)} == {"a", "b"}
