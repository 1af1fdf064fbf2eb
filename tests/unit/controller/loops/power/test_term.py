"""One term of the fast loop: when it begins to grant, and what stays when its table is made again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from cluster.errors import ConfigError, Mistake
from cluster.power import PowerTable
from controller.loops.power.term import LISTEN_MOST_S, LISTEN_S, PowerTerm, TableOf
from power.leases.messages import DeviceInventory, DeviceReport, Inventory, Lease, Report
from power.rules import PowerRules
from tests.builders.power import Device, row_of

RULES = PowerRules(burst_share=0.0)
HIGHEST_W, LOWEST_W = 400.0, 100.0


def tables(budget_w: float = 1000.0, without: str = "") -> TableOf:
    """A row of all nodes that were heard but one; one device of 400 W each."""

    def made(inventories: Mapping[str, Inventory]) -> PowerTable:
        return row_of([Device(f"g-{node}", node) for node in sorted(inventories) if node != without], budget_w)

    return made


def unusable(_: Mapping[str, Inventory]) -> PowerTable:
    raise ConfigError(Mistake("PowerDomain/row", "feeds itself"))


@dataclass
class Fleet:
    """A term, and agents that obey what they are granted at once."""

    term: PowerTerm
    now_s: float = 100.0
    leases: dict[str, Lease] = field(default_factory=dict)
    """The newest lease of each node."""

    def joins(self, *nodes: str) -> None:
        for node in nodes:
            device = DeviceInventory("A100", LOWEST_W, HIGHEST_W, HIGHEST_W, HIGHEST_W, managed=True)
            self.term.found(Inventory(node, f"life-{node}", {f"g-{node}": device}))

    def reports(self, *nodes: str) -> None:
        for node in nodes:
            lease = self.leases.get(node)
            held_w = lease.caps_w.get(f"g-{node}", HIGHEST_W) if lease else HIGHEST_W
            report = Report(
                node, f"life-{node}", self.now_s, -1, -1, {f"g-{node}": DeviceReport(0.9 * held_w, 0.0, held_w, 2)}
            )
            if lease is not None:
                report = replace(
                    report,
                    epoch=lease.epoch,
                    sequence=lease.sequence,
                    answered_epoch=lease.epoch,
                    answered_s=lease.issued_s,
                    since_s=self.now_s - lease.issued_s,
                )
            assert self.term.receive(report) is None

    def turn(self, *nodes: str, for_s: float = 1.0) -> dict[str, Lease]:
        """The leases of one turn, after reports of these nodes."""
        self.now_s += for_s
        self.reports(*nodes)
        made = {lease.node: lease for lease in self.term.turn(self.now_s)}
        self.leases |= made
        return made

    def settles(self, *nodes: str, turns: int = 12) -> None:
        for _ in range(turns):
            self.turn(*nodes)


def fleet(*nodes: str, budget_w: float = 1000.0, awaited: tuple[str, ...] = (), outside: tuple[str, ...] = ()) -> Fleet:
    made = Fleet(PowerTerm(tables(budget_w), 4, RULES, frozenset(awaited), frozenset(outside)))
    made.joins(*nodes)
    return made


def test_a_new_controller_listens_before_it_grants_anything() -> None:
    row = fleet("n1")

    assert row.turn("n1") == {}
    assert row.turn("n1", for_s=LISTEN_S - 0.1) == {}
    assert set(row.turn("n1", for_s=0.2)) == {"n1"}


def test_a_new_controller_waits_for_agents_that_were_not_heard_but_not_for_ever() -> None:
    """Started without them, their devices would count at their highest limit and take the power of all others."""
    row = fleet("n1", awaited=("n1", "n2"))
    row.turn("n1")

    assert row.turn("n1", for_s=LISTEN_S + 1.0) == {}
    assert set(row.turn("n1", for_s=LISTEN_MOST_S - LISTEN_S)) == {"n1"}

    complete = fleet("n1", "n2", awaited=("n1", "n2"))
    complete.turn("n1", "n2")
    assert set(complete.turn("n1", "n2", for_s=LISTEN_S + 0.1)) == {"n1", "n2"}


def test_the_first_leases_of_a_term_only_lower() -> None:
    row = fleet("n1")
    row.turn("n1")

    first = row.turn("n1", for_s=LISTEN_S + 0.1)["n1"]
    row.settles("n1")

    assert first.only_lower
    assert not row.leases["n1"].only_lower
    assert {lease.epoch for lease in (first, row.leases["n1"])} == {4}


def test_a_node_in_no_domain_is_let_go_and_none_is_while_the_domains_are_unusable() -> None:
    """An error in a domain must not give every node that it held its highest limit."""
    row = fleet("n1", outside=("free",))
    row.settles("n1")
    assert row.turn("n1", "free")["free"].caps_w == {}

    row.term.changed(unusable, outside=frozenset({"free", "n1"}))
    leases = row.turn("n1", "free")

    assert "feeds itself" in row.term.mistake
    assert set(leases) == {"n1"}
    assert leases["n1"].caps_w


def test_grants_go_on_when_the_domains_change() -> None:
    """Else every change would let devices only be lowered until they were met again."""
    row = fleet("n1", "n2", budget_w=700.0)
    row.settles("n1", "n2")
    before = dict(row.leases)

    row.term.changed(tables(710.0))
    after = row.turn("n1", "n2")

    assert sum(lease.caps_w[f"g-{node}"] for node, lease in before.items()) > 600.0
    for node in ("n1", "n2"):
        assert not after[node].only_lower
        assert after[node].caps_w[f"g-{node}"] == pytest.approx(before[node].caps_w[f"g-{node}"], abs=10.0)


def test_what_was_learnt_of_devices_goes_on_when_the_domains_change() -> None:
    row = fleet("n1", "n2", budget_w=700.0)
    row.settles("n1", "n2")
    before = row.term.state

    row.term.changed(tables(710.0))
    row.turn("n1", "n2")

    assert before is not None
    assert row.term.state is not None
    assert row.term.state.started_s == before.started_s, "else it listens and measures from the beginning"


def test_numbers_go_on_for_a_node_that_leaves_the_domains_and_comes_back() -> None:
    """Its agent has seen higher ones in this epoch and would refuse every lease. It comes back to ample power, so that
    nothing is granted anew.
    """
    row = fleet("n1", "n2", budget_w=700.0)
    row.settles("n1", "n2")
    last = row.leases["n2"].sequence
    assert last > 0

    row.term.changed(tables(2000.0, without="n2"))
    row.settles("n1")
    row.term.changed(tables(2000.0))
    back = row.turn("n1", "n2")["n2"]

    assert back.sequence >= last


def test_a_node_of_which_nothing_is_known_is_not_let_go() -> None:
    """It is in no table yet, and may be in a domain: only nodes outside all domains are let go."""
    row = Fleet(PowerTerm(tables(without="n2"), 4, RULES))
    row.joins("n1", "n2")
    row.settles("n1")

    assert set(row.turn("n1", "n2")) == {"n1"}


def test_every_report_is_answered_once() -> None:
    row = fleet("n1", "n2")
    row.settles("n1", "n2", turns=20)

    assert set(row.turn("n1")) == {"n1"}
    assert row.turn() == {}


def test_an_agent_that_names_devices_of_others_comes_after_them() -> None:
    known = fleet("a", "b")
    device = DeviceInventory("A100", LOWEST_W, HIGHEST_W, HIGHEST_W, HIGHEST_W, managed=True)

    known.term.found(Inventory("a", "life-a", {"g-a": device, "g-b": device}))
    assert list(known.term.inventories) == ["b", "a"]

    known.term.found(Inventory("b", "another life", {"g-b": device}))
    assert list(known.term.inventories) == ["b", "a"]
