"""A new decider takes a folder and three lines: a kind, a fact, and its place in the order."""

from typing import Any

from cluster.plans import Finding, Plan, Reason, ServicePlan
from controller.api.model_service import KIND
from controller.api.structs import Meta, OwnObject
from controller.brain.frames import snapshot_frame, snapshot_from_frame
from controller.brain.inline import InlineBrain, decisions_from
from controller.ports import Outcome
from controller.process.cluster import PRODUCT
from controller.report.own_statuses import ObjectFacts, StatusReports, status_jobs
from controller.report.service_status import facts_of_services
from controller.settings import OperatorSettings
from placement.budget import stopped
from tests.builders.fleet import node as node_row, world
from tests.builders.live_cluster import LiveCluster
from tests.builders.manifests import node
from tests.builders.mix import service
from tests.toy_decider import REGISTRIES

NOON_S = 1_772_366_400.0


def reserve(gpus: int, status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "GPUReserve",
        "metadata": {"name": "spare"},
        "spec": {"gpus": gpus},
        **({"status": status} if status else {}),
    }


def live(*objects: dict[str, Any]) -> LiveCluster:
    return LiveCluster(objects, REGISTRIES.kinds, facts=REGISTRIES.facts)


def plan_of(cluster: LiveCluster) -> Plan:
    brain = InlineBrain(decisions_from(OperatorSettings()), stopped, order=REGISTRIES.order)
    return brain.plan(cluster.observer.observe(), deadline_s=2.0)


def conditions(cluster: LiveCluster, plan: Plan) -> dict[str, tuple[str, str]]:
    """Condition → (status, reason) that is written to the reserve."""
    reports = StatusReports(cluster.observer, cluster.caches, lambda _: False)
    jobs = reports.jobs(cluster.observer.observe(), plan, Outcome(), {}, NOON_S)
    (write,) = (job.write for job in jobs if job.about == "GPUReserve/spare")
    assert isinstance(write.body, dict)
    return {each["type"]: (each["status"], each["reason"]) for each in write.body["status"]["conditions"]}


def test_it_adds_one_line_to_each_of_three_registries_and_none_elsewhere() -> None:
    assert len(REGISTRIES.kinds) == len(PRODUCT.kinds) + 1
    assert len(REGISTRIES.facts) == len(PRODUCT.facts) + 1
    assert len(REGISTRIES.order) == len(PRODUCT.order) + 1
    assert REGISTRIES.loops == PRODUCT.loops


def test_it_is_asked_in_its_place_and_its_finding_is_in_the_plan() -> None:
    (finding,) = plan_of(live(node(gpus=8), reserve(10))).findings

    assert (finding.about, finding.reason.code) == ("GPUReserve/spare", "ReserveShort")
    assert finding.reason.figures == {"free": 8, "wanted": 10}
    assert plan_of(live(node(gpus=8), reserve(8))).findings == ()


def test_its_finding_becomes_a_condition_of_its_object() -> None:
    cluster = live(node(gpus=8), reserve(10))

    written = conditions(cluster, plan_of(cluster))

    assert written == {"Accepted": ("True", "Valid"), "Found": ("True", "ReserveShort")}


def test_a_finding_that_is_gone_is_reported_as_gone() -> None:
    found = {
        "type": "Found",
        "status": "True",
        "reason": "ReserveShort",
        "message": "",
        "lastTransitionTime": "2026-03-01T11:00:00Z",
    }
    cluster = live(node(gpus=8), reserve(8, {"conditions": [found]}))

    assert conditions(cluster, plan_of(cluster))["Found"] == ("False", "NothingFound")


def test_its_facts_are_recorded_in_a_frame() -> None:
    observed = live(node(gpus=8), reserve(10)).observer.observe()

    assert snapshot_from_frame(snapshot_frame(observed)).facts == {"reserve": {"spare": 10.0}}


def test_a_finding_about_a_service_is_written_beside_its_plan() -> None:
    snapshot = world([node_row("a", gpus=8)], services=[service("ns/chat", rate=0.0)])
    finding = Finding("ModelService/ns/chat", Reason("DemandRises", "twice the demand within ten minutes"))
    plan = Plan(services=(ServicePlan("ns/chat", {}, 0.0, None, None),), findings=(finding,))
    planned = facts_of_services(snapshot, plan, Outcome(), {"ns/chat": 1}, lambda _: False, {})["ns/chat"]
    facts = ObjectFacts(finding=finding.reason, service=planned)

    (job,) = status_jobs([(KIND, "ns/chat", OwnObject(Meta("chat", "ns", "u1")), facts)], NOON_S, {})

    assert isinstance(job.write.body, dict)
    written = {each["type"]: each["reason"] for each in job.write.body["status"]["conditions"]}
    assert written["Found"] == "DemandRises"
