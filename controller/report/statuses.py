"""Statuses of ModelServices after each cycle; an unchanged status is not written again."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from cluster.errors import ActionError
from cluster.plans import Plan, Reason, ServicePlan
from cluster.pods import PENDING
from cluster.scaling import instance_type_of
from cluster.snapshot import Snapshot
from cluster.workloads import InstanceType
from controller.api.kind import Kind
from controller.api.model_service import KIND as SERVICE
from controller.kube.cluster_view import ClusterView, SeenService
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Job, Write
from controller.ports import Outcome
from controller.report.finding_condition import found_after
from controller.report.service_status import ServiceFacts, status_after

log = structlog.get_logger(__name__)

STATUS_MANAGER = "tonnage-status"


def status_jobs(
    sightings: ClusterView,
    snapshot: Snapshot,
    plan: Plan,
    outcome: Outcome,
    generations: Mapping[str, int],
    at_s: float,
) -> Iterator[Job]:
    """Writes of the changed statuses.

    snapshot: the cluster after the plan. generations: metadata.generation of each service when the plan was made.
    at_s: now, seconds since the epoch.
    """
    running = running_instances(snapshot, lambda name: bool((pod := sightings.pod(name)) and pod.is_running))
    desired = {service.name: service.replicas or {} for service in snapshot.services}
    undone = {each.step.action.subject: each.reason for each in outcome.undone}
    found = {finding.about: finding.reason for finding in plan.findings}
    for service in plan.services:
        seen = sightings.service(service.service)
        if seen is None or service.service not in generations:
            continue
        facts = ServiceFacts(
            generation=generations[service.service],
            asked=desired.get(service.service, {}),
            running=running.get(service.service, {}),
            makes_pods=seen.template is not None,
            undone=undone.get(f"ModelService/{service.service}"),
        )
        finding = found.get(f"ModelService/{service.service}")
        yield from each_alone("ModelService", seen.name, partial(_job, seen, service, facts, finding, at_s))


def each_alone(kind: str, name: str, jobs: Callable[[], Iterator[Job]]) -> Iterator[Job]:
    """The writes of one object; none, and a line in the log, where its status cannot be computed."""
    try:
        yield from tuple(jobs())
    except Exception:  # one object must not stop the others
        log.exception("a status could not be computed", subject=f"{kind}/{name}")


def _job(
    seen: SeenService, service: ServicePlan, facts: ServiceFacts, finding: Reason | None, at_s: float
) -> Iterator[Job]:
    status = found_after(status_after(seen.status, service, facts, at_s), finding, facts.generation, at_s)
    if status != seen.status:
        yield Job(f"ModelService/{seen.name}", status_write(SERVICE, seen.name, seen.uid, status))


def status_write(kind: Kind, name: str, uid: str, status: Mapping[str, Any]) -> Write:
    """Server-side apply of a status to the object with this uid, not to a newer one of the same name.

    name: `name`, or `namespace/name` where the kind has namespaces.
    """
    namespace, _, bare = name.rpartition("/")
    metadata = {"name": bare, "uid": uid} | ({"namespace": namespace} if kind.is_namespaced else {})
    return Write(
        "PATCH",
        f"{kind.path_of(name)}/status",
        {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "status": status},
        APPLY_PATCH,
        {"fieldManager": STATUS_MANAGER, "force": "true"},
    )


def running_instances(snapshot: Snapshot, is_running: Callable[[str], bool]) -> Mapping[str, Counter[InstanceType]]:
    """Number of running instances by service and instance type."""
    found: dict[str, Counter[InstanceType]] = {}
    pods = snapshot.pods
    types = [instance_type_of(shape) for shape in pods.shapes]
    for row, owner in enumerate(pods.owner):
        instance_type = types[pods.shape[row]]
        if owner and instance_type and pods.node[row] != PENDING and is_running(pods.names[row]):
            found.setdefault(owner, Counter())[instance_type] += 1
    return found


def log_unwritten(error: ActionError) -> None:
    """Log that a status, or a published limit, could not be written."""
    log.warning("a report was not written; a later cycle tries again", why=str(error))
