"""Frames carry snapshots and plans whole, and refuse what is no frame."""

from dataclasses import fields, replace

import numpy as np
import pytest

from cluster.actions import Bind, Evict, Move, Scale
from cluster.demand import LengthGrid
from cluster.plans import Certificate, Finding, Phase, Plan, Reason, Refused, Routing, ServicePlan, Step, Unplaced
from cluster.record import plan_to_json
from cluster.workloads import Gang
from controller.brain.frames import FrameError, plan_frame, plan_from_frame, snapshot_frame, snapshot_from_frame
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service
from tests.builders.power import Device, row_of
from tests.builders.snapshot_content import plain

WHY = Reason("LeastCost", "for a reason", {"cost": 1.5})


def test_watts_cross_with_their_snapshot() -> None:
    table = replace(row_of([Device("g", "n")], 1000.0), headroom_w={"row": 500.0})
    snapshot = replace(world([node("n", gpus=1)]), power=table)

    crossed = snapshot_from_frame(snapshot_frame(snapshot)).power

    assert crossed is not None
    assert crossed.headroom_w == {"row": 500.0}
    assert list(crossed.devices.names) == ["g"]
    assert crossed.domains.budget_w.tolist() == table.domains.budget_w.tolist()


def full_plan() -> Plan:
    """A plan in which no field is empty."""
    grid = LengthGrid((100, 200), (50,))
    certificate = Certificate(10.0, 9.5, "highs", 0.1)
    routing = Routing(grid, ("A100", "L4"), np.array([[[0.5, 0.5]], [[1.0, 0.0]]]))
    service = ServicePlan("d/s", {"A100": 2}, 7.0, routing, certificate, (WHY,), Reason("No", "not now"))
    steps = (
        Step(Bind("d/p", "n", (0, 3)), WHY),
        Step(Evict("d/q", "n"), WHY),
        Step(Move("d/r", "n", "m", (1,)), WHY),
        Step(Scale("d/s", {"A100": 2}), WHY),
    )
    return Plan(
        phases=(Phase("one", steps, whole=True), Phase("two", steps[:1])),
        unplaced=(Unplaced("Pod/d/x", WHY),),
        services=(service,),
        refused=(Refused(steps[1], WHY),),
        certificates={"mix": certificate},
        findings=(Finding("Node/n", WHY),),
    )


def test_a_snapshot_crosses_with_every_column() -> None:
    nodes = [node("a", 4, labels={"rack": "x"}), node("b", 0, schedulable=False)]
    pods = [pod("d/p", 1, on="a", devices=(2,), owner="d/s", movable=True), pod("d/q", 2, gang="d/g", priority=7)]
    gangs = [Gang("d/g", 1, within="rack", priority=3)]
    seen = world(nodes, pods, gangs, [service()], [profile("A100", ((1.0,),))], at_s=12.5)

    read = snapshot_from_frame(snapshot_frame(seen))

    assert plain(read) == plain(seen)
    assert read.pods.node.dtype == seen.pods.node.dtype


def test_a_snapshot_of_nothing_crosses() -> None:
    assert len(snapshot_from_frame(snapshot_frame(world([]))).nodes) == 0


def test_what_was_read_cannot_be_written_to() -> None:
    read = snapshot_from_frame(snapshot_frame(world([node("a", 1)])))

    with pytest.raises(ValueError, match="read-only"):
        read.nodes.gpus[0] = 2


def test_a_plan_crosses_with_every_field() -> None:
    plan = full_plan()

    assert plan_to_json(plan_from_frame(plan_frame(plan))) == plan_to_json(plan)


def test_no_field_of_a_plan_is_left_behind() -> None:
    # Plans are taken apart by hand in controller/brain/frames.py: who adds a field adds it there, above, and here.
    known = {
        Plan: {"phases", "unplaced", "services", "refused", "certificates", "findings"},
        Phase: {"name", "steps", "whole"},
        Step: {"action", "reason"},
        Refused: {"step", "reason"},
    }

    assert {kind: {field.name for field in fields(kind)} for kind in known} == known


@pytest.mark.parametrize("frame", [b"", b"TNGF", b"JUNK" + bytes(60)])
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(FrameError):
        snapshot_from_frame(frame)


def test_a_frame_that_was_cut_short_is_refused() -> None:
    frame = snapshot_frame(world([node("a", 1), node("b", 2)]))

    with pytest.raises(FrameError):
        snapshot_from_frame(frame[:-64])
    with pytest.raises(FrameError):
        snapshot_from_frame(frame[:100])


def test_a_frame_of_a_snapshot_is_no_plan() -> None:
    with pytest.raises(FrameError):
        plan_from_frame(snapshot_frame(world([])))
