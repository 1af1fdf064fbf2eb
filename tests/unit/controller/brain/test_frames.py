"""Frames carry snapshots and plans whole, and invalid bytes are refused."""

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cluster.actions import Bind, Evict, Move, Scale, SetReplicas
from cluster.arrays import column
from cluster.autoscaling import Arm, BanditState, ConcurrencyLimit, Context, Learned, ScaleTarget
from cluster.demand import Demand, ExpectedDemand, LengthGrid, Slo, ThroughputProfile
from cluster.frame import FORM, FrameError
from cluster.nodes import NodeTaint
from cluster.plans import Certificate, Finding, Phase, Plan, Reason, Refused, Routing, ServicePlan, Step, Unplaced
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, InstanceType, ModelService, Toleration
from controller.brain.frames import plan_frame, plan_from_frame, snapshot_frame, snapshot_from_frame
from controller.deciders.remediation import HealthOutcome
from health.remediation.incidents import JobDo, JobIntent
from tests.builders.fleet import node, pod, world
from tests.builders.mix import demand, of_types, profile, service
from tests.builders.power import Device, row_of
from tests.builders.scalers import scaler
from tests.builders.snapshot_content import plain

WHY = Reason("LeastCost", "for a reason", {"cost": 1.5})
GRID = LengthGrid((100, 1000), (10,))

texts = st.text(max_size=8)
numbers = st.floats(allow_nan=False)
counts = st.integers(0, 1000)
devices = st.lists(st.integers(0, 15), max_size=3, unique=True).map(tuple)
reasons = st.builds(Reason, texts, texts, st.dictionaries(texts, numbers, max_size=2))
certificates = st.builds(Certificate, numbers, numbers, texts, numbers)
shares = st.lists(st.floats(0, 1), min_size=4, max_size=4)
routings = shares.map(lambda s: Routing(GRID, (InstanceType("a"), InstanceType("b")), np.array(s).reshape(2, 1, 2)))
instance_types = st.builds(InstanceType, texts, st.integers(1, 16), st.booleans())
actions = st.one_of(
    st.builds(Bind, texts, texts, devices),
    st.builds(Evict, texts, texts),
    st.builds(Move, texts, texts, texts, devices),
    st.builds(Scale, texts, st.dictionaries(instance_types, counts, max_size=2)),
)
steps = st.builds(Step, actions, reasons)
few_steps = st.lists(steps, max_size=3).map(tuple)
service_plans = st.builds(
    ServicePlan,
    service=texts,
    instances=st.dictionaries(instance_types, counts, max_size=2),
    cost_per_hour=numbers,
    routing=st.none() | routings,
    certificate=st.none() | certificates,
    notes=st.lists(reasons, max_size=2).map(tuple),
    refusal=st.none() | reasons,
)
plans = st.builds(
    Plan,
    phases=st.lists(st.builds(Phase, texts, few_steps, st.booleans()), max_size=2).map(tuple),
    unplaced=st.lists(st.builds(Unplaced, texts, reasons), max_size=2).map(tuple),
    services=st.lists(service_plans, max_size=2).map(tuple),
    refused=st.lists(st.builds(Refused, steps, reasons), max_size=2).map(tuple),
    certificates=st.dictionaries(texts, certificates, max_size=2),
    findings=st.lists(st.builds(Finding, texts, reasons), max_size=2).map(tuple),
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Snapshots with something in every field."""
    names = draw(st.lists(texts, min_size=1, max_size=3, unique=True))
    taints = (NodeTaint(draw(texts), draw(texts)),)
    nodes = [node(n, gpus=draw(st.integers(0, 8)), labels={"zone": n}, taints=taints) for n in names]
    pods = [
        pod(
            f"p{i}",
            1,
            gpu_milli=draw(st.integers(1, 1000)),
            on=draw(st.none() | st.sampled_from(names)),
            devices=(draw(st.integers(0, 15)),),
            gang=draw(st.sampled_from(["", "g"])),
            selector={"zone": "z"},
            tolerations=(Toleration("t", "Exists"),),
        )
        for i in range(draw(st.integers(0, 4)))
    ]
    demand = Demand(draw(numbers), GRID, column([[0.5], [0.5]], np.float64))
    replicas = draw(st.none() | st.dictionaries(instance_types, counts, max_size=2))
    services = [
        ModelService("default/s", "m", draw(st.none() | st.just(demand)), Slo(draw(numbers)), replicas=replicas)
    ]
    profiles = [ThroughputProfile("m", "A100", Slo(0.04), GRID, column([[draw(numbers)], [0.0]], np.float64))]
    return world(nodes, pods, [Gang("g", 2, within="rack")], services, profiles, {"A100": 3.5}, at_s=draw(numbers))


def same(a: object, b: object) -> bool:
    """Equality that looks into arrays, and at types: a column stays a column of its type."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b))
    if is_dataclass(a):
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in fields(a))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


@given(plans)
def test_any_plan_comes_back_as_it_went_in(plan: Plan) -> None:
    assert same(plan_from_frame(plan_frame(plan)), plan)


@given(snapshots())
def test_any_snapshot_comes_back_as_it_went_in(snapshot: Snapshot) -> None:
    assert same(snapshot_from_frame(snapshot_frame(snapshot)), snapshot)


def test_the_same_content_gives_the_same_bytes() -> None:
    # Support bundles store a snapshot or plan once however often it was seen, by a digest of its frame.
    one, other = (world([node("a", 4)], [pod("d/p", 1)]) for _ in range(2))

    assert snapshot_frame(one) == snapshot_frame(other)
    assert plan_frame(full_plan()) == plan_frame(full_plan())


def test_figures_without_a_finite_value_cross_too() -> None:
    plan = Plan(unplaced=(Unplaced("Pod/a", Reason("X", "x", {"bound": float("nan"), "cost": float("inf")})),))

    (read,) = plan_from_frame(plan_frame(plan)).unplaced

    assert np.isnan(read.reason.figures["bound"])
    assert read.reason.figures["cost"] == float("inf")


def test_watts_cross_with_their_snapshot() -> None:
    table = replace(row_of([Device("g", "n")], 1000.0), headroom_w={"row": 500.0})
    snapshot = replace(world([node("n", gpus=1)]), power=table)

    crossed = snapshot_from_frame(snapshot_frame(snapshot)).power

    assert crossed is not None
    assert crossed.headroom_w == {"row": 500.0}
    assert list(crossed.devices.names) == ["g"]
    assert crossed.domains.budget_w.tolist() == table.domains.budget_w.tolist()


BANDIT = BanditState(
    3, Context("A100", 4, 3), (Learned(Context("A100", 4, 3), 3, 12, 40.0, (Arm(12, 2.0, 1.0, 0.5),)),)
)


def full_plan() -> Plan:
    """A plan in which no field is empty."""
    grid = LengthGrid((100, 200), (50,))
    certificate = Certificate(10.0, 9.5, "highs", 0.1, "work")
    routing = Routing(grid, (InstanceType("A100"), InstanceType("L4")), np.array([[[0.5, 0.5]], [[1.0, 0.0]]]))
    service = ServicePlan("d/s", of_types({"A100": 2}), 7.0, routing, certificate, (WHY,), Reason("No", "not now"))
    steps = (
        Step(Bind("d/p", "n", (0, 3)), WHY),
        Step(Evict("d/q", "n"), WHY),
        Step(Move("d/r", "n", "m", (1,)), WHY),
        Step(Scale("d/s", of_types({"A100": 2})), WHY),
        Step(SetReplicas("d/p", ScaleTarget("apps/v1", "Deployment", "d/w", "deployments"), 3, 2), WHY),
    )
    return Plan(
        phases=(Phase("one", steps, whole=True), Phase("two", steps[:1])),
        unplaced=(Unplaced("Pod/d/x", WHY),),
        services=(service,),
        refused=(Refused(steps[1], WHY),),
        certificates={"mix": certificate},
        findings=(Finding("Node/n", WHY),),
        expected=(ExpectedDemand("d/s", Demand(2.5, grid, np.array([[0.25], [0.75]])), 0.5),),
        limits=(ConcurrencyLimit("d/p", 5.0, 12, "Raised", "more", BANDIT),),
        health=HealthOutcome(jobs=(JobIntent(JobDo.TOLERATE, "d/j", "run", "i", 1, "why"),)),
        cut_short=(WHY,),
    )


def test_a_snapshot_crosses_with_every_column() -> None:
    nodes = [node("a", 4, labels={"rack": "x"}), node("b", 0, schedulable=False)]
    pods = [pod("d/p", 1, on="a", devices=(2,), owner="d/s", movable=True), pod("d/q", 2, gang="d/g", priority=7)]
    gangs = [Gang("d/g", 1, within="rack", priority=3)]
    fleet = world(nodes, pods, gangs, [service()], [profile("A100", ((1.0,),))], at_s=12.5)
    seen = replace(fleet, scalers=(scaler(demand=demand(3.0), recommended=((1.0, 2),), changes=((2.0, -1),)),))

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

    assert same(plan_from_frame(plan_frame(plan)), plan)


def test_no_field_of_a_plan_is_left_behind() -> None:
    # Plans are taken apart by hand in controller/brain/frames.py: who adds a field adds it there, above, and here.
    known = {
        Plan: {
            "phases",
            "unplaced",
            "services",
            "refused",
            "certificates",
            "findings",
            "cut_short",
            "expected",
            "health",
            "limits",
        },
        Phase: {"name", "steps", "whole"},
        Step: {"action", "reason"},
        Refused: {"step", "reason"},
    }

    assert {kind: {field.name for field in fields(kind)} for kind in known} == known


@pytest.mark.parametrize("kind", [b",,,", b"|O8", b"<M8", b"3<i"])
def test_a_column_of_anything_but_numbers_is_no_column(kind: bytes) -> None:
    """numpy's parser takes objects and structures for types, too, and ends with a SyntaxError at a comma."""
    sound = snapshot_frame(world([node("a", 1)]))
    assert b"<i8" in sound

    with pytest.raises(FrameError, match="other than numbers"):
        snapshot_from_frame(sound.replace(b"<i8", kind))


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


def of_form(number: int) -> bytes:
    frame = plan_frame(Plan(unplaced=(Unplaced("Pod/d/x", WHY),)))
    return frame[:4] + number.to_bytes(4, "little") + frame[8:]


def test_frames_of_another_form_are_refused() -> None:
    assert plan_from_frame(of_form(FORM)).unplaced == (Unplaced("Pod/d/x", WHY),)
    for unknown in (FORM - 1, FORM + 1):
        with pytest.raises(FrameError, match="another version"):
            plan_from_frame(of_form(unknown))


def test_a_frame_of_a_snapshot_is_no_plan() -> None:
    with pytest.raises(FrameError):
        plan_from_frame(snapshot_frame(world([])))
