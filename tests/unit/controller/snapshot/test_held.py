"""Held seats as annotations: which replacement takes one, and what holds nothing."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cluster.snapshot import HeldSeat, HeldSeats, Snapshot
from controller.api import core_v1
from controller.api.labels import HELD_SEATS_ANNOTATION
from controller.api.notation import rfc3339
from controller.api.structs import Node, Pod, object_from
from controller.objects.read import Read
from controller.snapshot.builder import SnapshotBuilder

AT_S = 1_000_000.0
OWN = HeldSeat("ns/wide", "a", (0,), 1000, 0, 0)
MOVED = HeldSeat("ns/app-1", "b", (1,), 1000, 0, 0, is_moved=True, owner="ReplicaSet/ns/app")


def text(*seats: HeldSeat) -> str:
    return msgspec.json.encode(HeldSeats("ns/wide", AT_S, AT_S + 60, seats)).decode()


TEXT = text(OWN, MOVED)


def a_pod(
    name: str, *, on: str = "", owner: str = "", created_s: float = 0.0, started_s: float | None = None, **meta: Any
) -> tuple[str, Read[Pod]]:
    metadata = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": rfc3339(AT_S + created_s), **meta}
    if owner:
        metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "controller": True}]
    limits = {"nvidia.com/gpu": 1}
    spec = {"schedulerName": "tonnage", "nodeName": on, "containers": [{"resources": {"limits": limits}}]}
    status = {} if started_s is None else {"phase": "Running", "startTime": rfc3339(AT_S + started_s)}
    return f"ns/{name}", Read(object_from({"metadata": metadata, "spec": spec, "status": status}, Pod), core_v1.POD)


def seen(*pods: tuple[str, Read[Pod]], written: str = TEXT, at_s: float = AT_S + 10, **wide: Any) -> Snapshot:
    builder = SnapshotBuilder()
    for name in "ab":
        spec = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "2"}}}
        builder.put_node(name, Read(object_from(spec, Node), core_v1.NODE))
    for name, read in (a_pod("wide", annotations={HELD_SEATS_ANNOTATION: written}, created_s=-600, **wide), *pods):
        builder.put_pod(name, read)
    return builder.build(at_s).snapshot


def takers(snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(seat.pod, seat.taker) for held in snapshot.held for seat in held.seats]


def test_the_pod_itself_takes_its_seat_and_the_replacement_has_not_come() -> None:
    assert takers(seen()) == [("ns/wide", "ns/wide"), ("ns/app-1", "")]


def test_the_next_pod_of_the_same_owner_takes_the_seat_of_one_that_moved() -> None:
    others = (a_pod("app-0", owner="app", created_s=-600), a_pod("web-2", owner="web", created_s=1))

    assert takers(seen(*others, a_pod("app-2", owner="app", created_s=1)))[1] == ("ns/app-1", "ns/app-2")


def test_a_replacement_that_runs_there_needs_no_seat_any_more() -> None:
    assert takers(seen(a_pod("app-2", owner="app", on="b", created_s=1))) == [("ns/wide", "ns/wide")]


def test_a_replacement_that_started_elsewhere_needs_no_seat_once_the_pod_is_gone() -> None:
    elsewhere = a_pod("app-2", owner="app", on="a", created_s=1, started_s=2)
    before = a_pod("app-3", owner="app", on="a", created_s=-600, started_s=-599)
    of_another = a_pod("web-2", owner="web", on="a", created_s=1, started_s=2)
    ends = a_pod("app-1", owner="app", on="a", created_s=-600, deletionTimestamp="2026-01-01T00:00:00Z")

    assert takers(seen(elsewhere)) == [("ns/wide", "ns/wide")]
    assert takers(seen(a_pod("app-1", owner="app", on="a", created_s=6, started_s=7))) == [("ns/wide", "ns/wide")]
    assert takers(seen(before, of_another))[1] == ("ns/app-1", "")
    assert takers(seen(elsewhere, ends))[1] == ("ns/app-1", "")
    assert takers(seen(elsewhere, a_pod("app-4", owner="app", created_s=3)))[1] == ("ns/app-1", "ns/app-4")


def test_the_seat_of_a_pod_that_is_yet_to_move_waits_for_it_and_not_for_the_replacement_of_another() -> None:
    other = replace(MOVED, pod="ns/app-9", devices=(0,))
    runs, waits = a_pod("app-1", owner="app", on="a", created_s=-600), a_pod("app-2", owner="app", created_s=1)

    assert takers(seen(runs, waits, written=text(MOVED))) == [("ns/app-1", "")]
    assert takers(seen(runs, waits, written=text(MOVED, other))) == [("ns/app-1", ""), ("ns/app-9", "ns/app-2")]
    ends = a_pod("app-1", owner="app", on="a", created_s=-600, deletionTimestamp="2026-01-01T00:00:00Z")
    assert takers(seen(ends, waits, written=text(MOVED))) == [("ns/app-1", "ns/app-2")]


def test_a_replacement_has_one_of_the_seats_that_decisions_hold_on_a_node_and_it_is_the_one_that_it_runs_on() -> None:
    """Two wide pods, each with a seat on b; the pod on its first device is the replacement for the later decision."""
    first, later = text(MOVED), text(replace(MOVED, pod="ns/app-9", devices=(0,)))
    wide = a_pod("wider", annotations={HELD_SEATS_ANNOTATION: later.replace("ns/wide", "ns/wider")}, created_s=-600)
    here = a_pod("app-2", owner="app", on="b", created_s=1, annotations={"tonnage.dev/devices": "0"})

    assert takers(seen(wide, here, written=first)) == [("ns/app-1", "")]


def test_a_seat_of_an_earlier_decision_waits_for_replacements_that_were_made_since_that_one() -> None:
    old = a_pod("app-2", owner="app", created_s=-60)

    assert takers(seen(old, written=text(MOVED))) == [("ns/app-1", "")]
    assert takers(seen(old, written=text(replace(MOVED, since_s=AT_S - 60)))) == [("ns/app-1", "ns/app-2")]


def test_the_seats_of_those_that_moved_are_held_on_after_the_pod_has_its_own() -> None:
    assert takers(seen(on="a")) == [("ns/app-1", "")]


@pytest.mark.parametrize(
    "without",
    [
        {"written": "[]"},
        {"written": TEXT.replace("until_s", "till")},
        {"written": text(replace(OWN, devices=(-1,)))},
        {"written": text(replace(OWN, cpu_milli=1 << 90))},
        {"written": text(replace(MOVED, owner=""))},
        {"at_s": AT_S + 60},
        {"at_s": AT_S - 600},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
)
def test_nothing_is_held_by_what_is_unreadable_or_over_or_given_up(without: dict[str, Any]) -> None:
    assert seen(**without).held == ()
