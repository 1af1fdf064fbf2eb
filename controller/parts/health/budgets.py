"""Disruption budgets of jobs: how many pods of a gang may be evicted now, as the API server counts."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from controller.api.structs import Meta, Page, Slim
from controller.parts.health.members import Members

EVERY_S = 5.0
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class _Requirement(Slim, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _Selector(Slim, frozen=True):
    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[_Requirement, ...] = ()


class _Spec(Slim, frozen=True):
    selector: _Selector | None = None


class _Status(Slim, frozen=True):
    disruptions_allowed: int = 0


class DisruptionBudget(Slim, frozen=True):
    """policy/v1 PodDisruptionBudget."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Named(Slim, frozen=True):
    metadata: Meta


class Reads(Protocol):
    """Part of a connection that this needs."""

    async def read(self, path: str, query: Mapping[str, str] | None = None, accept: str = ...) -> bytes:
        """Response body of a GET. Raises KubeReadError."""
        ...


async def allowed_disruptions(connection: Reads, members: Members) -> dict[str, int]:
    """Pods of each job that its budgets allow to be evicted together; jobs without a budget are left out.

    Raises KubeReadError.
    """
    allowed: dict[str, int] = {}
    for namespace in sorted({job.partition("/")[0] for job in members.jobs}):
        for budget in await _budgets(connection, namespace):
            covered = await _covered(connection, namespace, budget)
            for job, pods in members.jobs.items():
                mine = sum(member.uid in covered for member in pods)
                if mine:
                    may = budget.status.disruptions_allowed + len(pods) - mine
                    allowed[job] = min(allowed.get(job, len(pods)), may)
    return allowed


async def _budgets(connection: Reads, namespace: str) -> list[DisruptionBudget]:
    body = await connection.read(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
    return msgspec.json.decode(body, type=Page[DisruptionBudget]).items or []


async def _covered(connection: Reads, namespace: str, budget: DisruptionBudget) -> frozenset[str]:
    """UIDs of the pods that a budget selects. An empty selector selects all, a missing one none."""
    if budget.spec.selector is None:
        return frozenset()
    query = {"labelSelector": selector_text(budget.spec.selector)}
    body = await connection.read(f"/api/v1/namespaces/{namespace}/pods", query, accept=_METADATA)
    return frozenset(each.metadata.uid for each in msgspec.json.decode(body, type=Page[_Named]).items or [])


def selector_text(selector: _Selector) -> str:
    """A selector as the API server reads it in a query."""
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for each in selector.match_expressions:
        values = f"({','.join(each.values)})"
        parts.append(
            {
                "In": f"{each.key} in {values}",
                "NotIn": f"{each.key} notin {values}",
                "Exists": each.key,
                "DoesNotExist": f"!{each.key}",
            }[each.operator]
        )
    return ",".join(parts)
