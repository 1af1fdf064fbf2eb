"""Metrics of the cluster, of a cycle, and of a replica that does not lead."""

from dataclasses import replace
from io import StringIO

import pytest
import structlog
from structlog.testing import capture_logs

from cluster.actions import Evict
from cluster.errors import ObservationError
from cluster.plans import Finding, Reason, Step
from cluster.snapshot import Snapshot
from cluster.workloads import Gang
from controller.brain.inline import InlineBrain
from controller.cycle import Cycle, run_cycle
from controller.deciders.decisions import Decisions
from controller.guard import Limits
from controller.metrics.registry import Meter
from controller.ports import Outcome, Undone
from controller.report.cycle_reporter import CycleReporter
from controller.report.fleet_metrics import MOST_SHOWN
from simulator.world import Fault, SimulatedWorld
from tests.builders.fleet import node, pod, world
from tests.builders.mix import profile, service
from tests.clock import ticking

SILENT = structlog.wrap_logger(structlog.PrintLogger(StringIO()), processors=[structlog.processors.JSONRenderer()])


def turn(simulated: SimulatedWorld, took_s: float = 0.0) -> Cycle:
    brain = InlineBrain(Decisions(policy="bestfit"), clock=lambda: 0.0)
    return run_cycle(simulated, brain, Limits(), deadline_s=10.0, clock=ticking(took_s))


def told(*cycles: Cycle) -> Meter:
    meter = Meter()
    reporter = CycleReporter(meter, SILENT, now_s=lambda: 1000.0)
    for cycle in cycles:
        reporter.report_cycle(cycle)
    return meter


def after_one_cycle(seen: Snapshot, fault: Fault = lambda _: None) -> Meter:
    return told(turn(SimulatedWorld(seen, fault)))


def test_a_finding_is_logged_when_it_begins_and_when_it_ends_and_counted_in_between() -> None:
    quiet = turn(SimulatedWorld(world([node("a")])))
    ill = replace(quiet, plan=replace(quiet.plan, findings=(Finding("Node/a", Reason("Degrading", "errors rise")),)))
    meter = Meter()
    reporter = CycleReporter(meter, structlog.get_logger(), now_s=lambda: 1000.0)

    with capture_logs() as lines:
        for cycle in (ill, ill):
            reporter.report_cycle(cycle)
        counted = value(meter, "tonnage_findings", reason="Degrading")
        reporter.report_cycle(quiet)

    assert [(line["event"], line["cycle"], line["finding"]) for line in lines if "finding" in line] == [
        ("found", 1, "Degrading"),
        ("found no longer", 3, "Degrading"),
    ]
    assert counted == 1
    assert value(meter, "tonnage_findings", reason="Degrading") is None


def test_a_failure_that_the_cycle_before_had_is_counted_and_not_logged_again() -> None:
    """What a tenant wrote may fail in each cycle, such as a service whose template no pod can have."""
    quiet = turn(SimulatedWorld(world([node("a")])))
    step = Step(Evict("ns/p", "a"), Reason("Preempted", "makes room"))

    def failing(words: str) -> Cycle:
        return replace(quiet, outcome=Outcome(undone=(Undone(step, Reason("ActionFailed", words)),)))

    meter = Meter()
    reporter = CycleReporter(meter, structlog.get_logger(), now_s=lambda: 1000.0)
    with capture_logs() as lines:
        for cycle in (
            failing("status 422"),
            failing("status 422"),
            failing("status 403"),
            quiet,
            failing("status 403"),
        ):
            reporter.report_cycle(cycle)

    told = [(line["cycle"], line["log_level"]) for line in lines if line["event"] == "action not done"]
    assert told == [(1, "warning"), (2, "debug"), (3, "warning"), (5, "warning")]
    assert value(meter, "tonnage_actions_total", action="Evict", result="failed") == 4


def value(meter: Meter, name: str, **labels: str) -> float | None:
    return meter.registry.get_sample_value(name, labels)


def gpus(meter: Meter, gpu_type: str = "A100") -> dict[str, float | None]:
    states = ("allocated", "free", "stranded", "closed")
    return {state: value(meter, "tonnage_gpus", gpu_type=gpu_type, state=state) for state in states}


def test_devices_are_allocated_free_stranded_or_closed_and_add_up() -> None:
    """16 devices: p takes one of `a`, its other 7 are free; on `starved` no CPU is left for a pod like p; `shut` is
    cordoned with 4 idle."""
    fleet = [node("a", gpus=8), node("starved", gpus=4, cpu_milli=500), node("shut", gpus=4, schedulable=False)]

    meter = after_one_cycle(world(fleet, [pod("p", gpus=1, on="a", devices=(0,))]))

    assert gpus(meter) == {"allocated": 1.0, "free": 7.0, "stranded": 4.0, "closed": 4.0}


def test_nothing_is_stranded_while_no_pod_asks_for_gpus() -> None:
    meter = after_one_cycle(world([node("a", gpus=8)], [pod("cpu-only")]))

    assert gpus(meter) == {"allocated": 0.0, "free": 8.0, "stranded": 0.0, "closed": 0.0}


def test_cost_is_the_devices_times_the_price_of_their_type() -> None:
    """2 of 8 A100 at 3 $/h are held: 6 $/h allocated, 18 $/h free."""
    seen = world([node("a", gpus=8)], [pod("p", gpus=2, on="a", devices=(0, 1))], prices={"A100": 3.0})

    meter = after_one_cycle(seen)

    assert value(meter, "tonnage_fleet_cost_dollars_per_hour", gpu_type="A100", state="allocated") == 6.0
    assert value(meter, "tonnage_fleet_cost_dollars_per_hour", gpu_type="A100", state="free") == 18.0


def test_the_picture_is_the_one_after_the_actions_that_were_done() -> None:
    meter = after_one_cycle(world([node("a", gpus=2)], [pod("p", gpus=1), pod("wide", gpus=4)]))

    assert value(meter, "tonnage_pods", state="running") == 1
    assert value(meter, "tonnage_pods", state="pending") == 1
    assert value(meter, "tonnage_unplaced", reason="NoNodeFits") == 1
    assert value(meter, "tonnage_actions_total", action="Bind", result="done") == 1


def test_an_action_that_failed_is_counted_so_and_its_pod_stays_pending() -> None:
    meter = after_one_cycle(world([node("a", gpus=1)], [pod("p", gpus=1)]), fault=lambda _: "driver hiccup")

    assert value(meter, "tonnage_actions_total", action="Bind", result="failed") == 1
    assert value(meter, "tonnage_pods", state="pending") == 1


def test_what_was_to_be_taken_back_and_could_not_is_stuck() -> None:
    cycle = turn(SimulatedWorld(world([node("a", gpus=1)], [pod("p", gpus=1, on="a", devices=(0,))])))
    late = Undone(Step(Evict("p", "a"), Reason("GangTakenBack", "too few ran")), Reason("ActionFailed", "a budget"))

    meter = told(replace(cycle, outcome=Outcome((), (late,))))

    assert value(meter, "tonnage_actions_total", action="Evict", result="stuck") == 1
    assert value(meter, "tonnage_actions_total", action="Evict", result="failed") == 0


def test_a_gang_is_pending_until_enough_members_run() -> None:
    seen = world(
        [node("a", gpus=2)],
        [pod("g0", gpus=1, gang="fits"), pod("g1", gpus=4, gang="waits")],
        gangs=[Gang("fits", 1), Gang("waits", 1), Gang("later", 1)],
    )

    meter = after_one_cycle(seen)

    assert [value(meter, "tonnage_gangs", state=state) for state in ("running", "pending", "empty")] == [1, 1, 1]


def test_waiting_is_told_from_when_a_workload_was_first_seen_pending() -> None:
    """`wide` is pending from the start; an hour passes between the two cycles."""
    simulated = SimulatedWorld(world([node("a", gpus=1)], [pod("p", gpus=1), pod("wide", gpus=4)], at_s=100.0))
    first = turn(simulated)
    simulated.pass_time(3600.0)

    meter = told(first, turn(simulated))

    assert value(meter, "tonnage_oldest_pending_seconds", kind="pod") == 3600.0
    assert value(meter, "tonnage_oldest_pending_seconds", kind="gang") == 0.0


def test_a_pods_wait_ends_when_it_is_placed() -> None:
    """q waits 60 s until p leaves, then the five stages of its cycle, 0.1 s each: 60.5 s, in the bucket up to 300 s."""
    simulated = SimulatedWorld(world([node("a", gpus=1)], [pod("p", gpus=1, on="a", devices=(0,)), pod("q", gpus=1)]))
    first = turn(simulated)
    simulated.pass_time(60.0)
    simulated.depart(["p"])

    meter = told(first, turn(simulated, took_s=0.1))

    assert value(meter, "tonnage_pod_wait_seconds_count") == 1
    assert value(meter, "tonnage_pod_wait_seconds_sum") == pytest.approx(60.5)


def test_a_service_tells_its_cost_its_proof_and_its_instances() -> None:
    """1.5 instances' worth of load on A100 at 2 $/h each: 2 instances, 4 $/h."""
    seen = world(
        [node("a", gpus=4)],
        services=[service("ns/chat", rate=1.5), service("ns/odd", demand=None)],
        profiles=[profile("A100", [[1.0]])],
        prices={"A100": 2.0},
    )

    meter = after_one_cycle(seen)

    assert value(meter, "tonnage_service_cost_dollars_per_hour", model_service="ns/chat") == 4.0
    assert value(meter, "tonnage_service_cost_gap_ratio", model_service="ns/chat") == 0.0
    for state in ("wanted", "running"):
        labels = {"model_service": "ns/chat", "instance_type": "A100", "state": state}
        assert value(meter, "tonnage_service_instances", **labels) == 2
    assert value(meter, "tonnage_service_unplanned", model_service="ns/odd", reason="DemandUnknown") == 1


def test_of_very_many_services_of_a_namespace_the_first_by_name_have_metrics() -> None:
    """Each service has several series; running pods may name services that there are not."""
    numbers = range(MOST_SHOWN + 1)
    many = [service(f"many/s{n:03}", demand=None) for n in numbers]
    runs = [
        pod(f"astray/p{n:03}", 1, on=f"n{n}", devices=(0,), owner=f"astray/s{n:03}", gpu_types=["A100"])
        for n in numbers
    ]
    nodes = [node(f"n{n}", gpus=1) for n in numbers]
    meter = after_one_cycle(world(nodes, runs, services=[*many, service("ns/odd", demand=None)]))

    def is_told(metric: str, name: str, **labels: str) -> bool:
        return value(meter, metric, model_service=name, **labels) is not None

    told_of = [is_told("tonnage_service_unplanned", each.name, reason="DemandUnknown") for each in many]
    assert told_of == [True] * MOST_SHOWN + [False]
    assert is_told("tonnage_service_unplanned", "ns/odd", reason="DemandUnknown")
    runs_told = [
        is_told("tonnage_service_instances", each.owner, state="running", instance_type="A100") for each in runs
    ]
    assert runs_told == [True] * MOST_SHOWN + [False]


def test_what_is_gone_from_the_cluster_is_gone_from_the_metrics() -> None:
    simulated = SimulatedWorld(world([node("a", gpus=1)], [pod("wide", gpus=4)]))
    first = turn(simulated)
    simulated.depart(["wide"])

    meter = told(first, turn(simulated))

    assert value(meter, "tonnage_unplaced", reason="NoNodeFits") is None


def test_a_replica_that_does_not_lead_says_nothing_of_the_cluster() -> None:
    meter = Meter()
    reporter = CycleReporter(meter, SILENT, now_s=lambda: 1000.0)
    reporter.report_leadership(leads=True, epoch=3)
    reporter.report_cycle(turn(SimulatedWorld(world([node("a", gpus=1)]))))

    reporter.report_leadership(leads=False, epoch=3)

    assert value(meter, "tonnage_leader") == 0
    assert value(meter, "tonnage_nodes", state="open") is None


def test_a_blind_cycle_leaves_the_time_of_the_last_good_one() -> None:
    meter = told(turn(SimulatedWorld(world([node("a")]))))
    reporter = CycleReporter(meter, SILENT, now_s=lambda: 2000.0)

    reporter.report_blind(ObservationError("listing pods: connection refused"))

    assert value(meter, "tonnage_cycles_total", result="blind") == 1
    assert value(meter, "tonnage_last_cycle_timestamp_seconds") == 1000.0


def test_plans_that_time_cut_short_are_counted_by_what_it_cut_off() -> None:
    cycle = turn(SimulatedWorld(world([node("a", gpus=1)], [pod("p", gpus=1)])))
    late = replace(cycle, plan=replace(cycle.plan, cut_short=(Reason("PackingOutOfTime", "no time"),) * 2))

    meter = told(cycle, late)

    assert value(meter, "tonnage_plans_out_of_time_total", reason="PackingOutOfTime") == 1.0


def test_a_decider_that_failed_counts_once_a_plan() -> None:
    meter, cycle = Meter(), turn(SimulatedWorld(world([node("a")])))
    failed = Finding("Decider/packing", Reason("DeciderFailed", "raised TypeError"))
    reporter = CycleReporter(meter, SILENT, now_s=lambda: 0.0)
    assert value(meter, "tonnage_decider_failures_total", decider="packing") == 0.0

    reporter.report_cycle(replace(cycle, plan=replace(cycle.plan, findings=(failed, failed))))

    assert value(meter, "tonnage_decider_failures_total", decider="packing") == 1.0


def test_devices_are_counted_from_cycle_to_cycle_and_a_long_gap_is_not() -> None:
    first = turn(SimulatedWorld(world([node("n", gpus=4)], [pod("a/wide", 3, on="n", devices=(0, 1, 2))])))
    meter = told(*(replace(first, snapshot=replace(first.snapshot, at_s=at_s)) for at_s in (0.0, 10.0, 15.0, 900.0)))

    held, idle = (
        value(meter, "tonnage_device_seconds_total", team="", namespace=space, gpu_type=kind, state=state)
        for space, kind, state in (("a", "A100", "used"), ("", "A100", "idle"))
    )
    assert (held, idle) == (45.0, 15.0)  # 3 and 1 for 15 seconds


def test_namespaces_past_the_bound_share_one_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.report.cycle_reporter.MOST_ACCOUNTS", 1)
    pods = [pod(f"{space}/p", 1, gpu_milli=500, on="n", devices=(0,)) for space in "ab"]
    first = turn(SimulatedWorld(world([node("n", gpus=1)], pods)))
    meter = told(first, replace(first, snapshot=replace(first.snapshot, at_s=first.snapshot.at_s + 10.0)))

    of = {"team": "", "gpu_type": "A100", "state": "used"}
    assert value(meter, "tonnage_device_seconds_total", namespace="a", **of) == 5.0
    assert value(meter, "tonnage_device_seconds_total", namespace="(others)", **of) == 5.0
