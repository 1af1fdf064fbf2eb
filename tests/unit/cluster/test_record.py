"""Records come back as they went in, say the same in the same bytes, and refuse what is no record."""

import json
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.actions import Bind, Evict, Move, Scale
from cluster.arrays import Names, column
from cluster.demand import Demand, LengthGrid, Slo, ThroughputProfile
from cluster.errors import ConfigError
from cluster.nodes import Taint
from cluster.plans import Certificate, Finding, Phase, Plan, Reason, Refused, Routing, ServicePlan, Step, Unplaced
from cluster.record import plan_from_json, plan_to_json, snapshot_from_json, snapshot_to_json
from cluster.snapshot import Snapshot
from cluster.workloads import Gang, ModelService, Toleration
from tests.builders.fleet import node, pod, world
from tests.builders.power import Device, row_of

GRID = LengthGrid((100, 1000), (10,))

texts = st.text(max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 1000)
devices = st.lists(st.integers(0, 15), max_size=3, unique=True).map(tuple)
reasons = st.builds(Reason, texts, texts, st.dictionaries(texts, numbers, max_size=2))
certificates = st.builds(Certificate, numbers, numbers, texts, numbers)
shares = st.lists(st.floats(0, 1), min_size=4, max_size=4)
routings = shares.map(lambda s: Routing(GRID, ("a", "b"), np.array(s).reshape(2, 1, 2)))
actions = st.one_of(
    st.builds(Bind, texts, texts, devices),
    st.builds(Evict, texts, texts),
    st.builds(Move, texts, texts, texts, devices),
    st.builds(Scale, texts, st.dictionaries(texts, counts, max_size=2)),
)
steps = st.builds(Step, actions, reasons)
few_steps = st.lists(steps, max_size=3).map(tuple)
service_plans = st.builds(
    ServicePlan,
    service=texts,
    instances=st.dictionaries(texts, counts, max_size=2),
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
    """Worlds with something in every field."""
    names = draw(st.lists(texts, min_size=1, max_size=3, unique=True))
    taints = (Taint(draw(texts), draw(texts)),)
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
    replicas = draw(st.none() | st.dictionaries(texts, counts, max_size=2))
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
def test_a_plan_comes_back_as_it_went_in(plan: Plan) -> None:
    assert same(plan_from_json(plan_to_json(plan)), plan)


@given(snapshots())
def test_a_snapshot_comes_back_as_it_went_in(snapshot: Snapshot) -> None:
    assert same(snapshot_from_json(snapshot_to_json(snapshot)), snapshot)


def test_power_domains_come_back_as_they_went_in() -> None:
    snapshot = replace(world([]), power=row_of([Device("g1", "n1"), Device("g2", "n2", "high")], 5000.0))

    assert same(snapshot_from_json(snapshot_to_json(snapshot)), snapshot)


def test_a_snapshot_of_nothing_comes_back() -> None:
    empty = world([])

    back = snapshot_from_json(snapshot_to_json(empty))

    assert same(back, empty)
    assert back.free().gpu_milli.shape == (0, 0)


def test_the_order_in_which_a_mapping_was_filled_does_not_show() -> None:
    forth, back = (
        Plan(certificates={"a": CERTIFICATE, "b": CERTIFICATE}),
        Plan(certificates={"b": CERTIFICATE, "a": CERTIFICATE}),
    )

    assert plan_to_json(forth) == plan_to_json(back)


CERTIFICATE = Certificate(1.0, 1.0, "HiGHS", 0.1)


def test_a_record_says_its_version() -> None:
    assert json.loads(plan_to_json(Plan()))["record"] == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_json_has_no_number_for_is_not_written(bad: float) -> None:
    with pytest.raises(ConfigError, match="NaN or infinity"):
        plan_to_json(Plan(unplaced=(Unplaced("Pod/a", Reason("X", "x", {"figure": bad})),)))


RECORDED = json.loads(snapshot_to_json(world([node("a", gpus=1), node("b")], [pod("p", 1)])))


def altered(path: str, value: object) -> str:
    record = json.loads(json.dumps(RECORDED))
    *way, last = path.split(".")
    at = record
    for part in way:
        at = at[part]
    at[last] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "has no 'snapshot'"),
        (plan_to_json(Plan()), "has no 'snapshot'"),
        (altered("record", 2), "is of version 2, this Tonnage reads 1"),
        (altered("snapshot.at_s", float("nan")), "NaN is no number"),
        (altered("snapshot.at_s", "now"), "snapshot.at_s: should be float, not 'now'"),
        (altered("snapshot.weather", "fine"), "snapshot.weather: there is no such field"),
        (altered("snapshot.nodes.gpus", [1]), "snapshot.nodes.gpus: has 1 entries for 2 names"),
        (altered("snapshot.nodes.gpus", [1, 0.5]), "snapshot.nodes.gpus: should be numbers of type int64"),
        (altered("snapshot.nodes.names", ["a", 2]), r"snapshot.nodes.names\[1\]: should be str, not 2"),
        (altered("snapshot.pods", 3), "snapshot.pods: should be an object, not 3"),
        (altered("snapshot.gangs", {}), "snapshot.gangs: should be a list"),
    ],
)
def test_what_is_no_record_is_refused_at_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        snapshot_from_json(text)


def test_a_field_that_is_missing_is_named_unless_it_has_a_default() -> None:
    record = json.loads(json.dumps(RECORDED))
    del record["snapshot"]["observed_at_s"]
    assert snapshot_from_json(json.dumps(record)).observed_at_s == {}

    del record["snapshot"]["nodes"]["gpus"]
    with pytest.raises(ConfigError, match=r"snapshot\.nodes\.gpus: is missing"):
        snapshot_from_json(json.dumps(record))


def test_an_action_that_does_not_exist_is_refused() -> None:
    record = json.loads(plan_to_json(Plan(phases=(Phase("x", (Step(Evict("p", "n"), Reason("R", "r")),)),))))
    record["plan"]["phases"][0]["steps"][0]["action"]["action"] = "Explode"

    with pytest.raises(ConfigError, match="should be one of Scale, Evict, Move, Bind, not 'Explode'"):
        plan_from_json(json.dumps(record))


def test_columns_that_come_back_cannot_be_written_to() -> None:
    back = snapshot_from_json(json.dumps(RECORDED))

    assert isinstance(back.nodes.names, Names)
    with pytest.raises(ValueError, match="read-only"):
        back.nodes.gpus[0] = 3
