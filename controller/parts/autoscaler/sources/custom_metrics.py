"""Metrics of a target from the custom metrics API, which an adapter of the cluster serves."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol
from urllib.parse import quote

import msgspec

from autoscaler.demand.loads import Role
from cluster.errors import UNREADABLE, ObservationError
from controller.api.notation import quantity
from controller.api.scaling_policy import Target
from controller.kube.discovery import Discovered
from controller.kube.request import KubeReadError, Query
from controller.parts.autoscaler.measured import Sample
from controller.parts.autoscaler.sources.prometheus_answer import SourceError
from controller.parts.autoscaler.sources.readings import CustomReading

PATH = "/apis/custom.metrics.k8s.io/v1beta2"
DISCOVER_EVERY_S = 300.0


class Reader(Protocol):
    """Part of a connection that this needs."""

    async def read(self, path: str, query: Query | None = None) -> bytes:
        """Response body of a GET. Raises KubeReadError."""
        ...


class _Value(msgspec.Struct):
    value: str
    timestamp: str | None = None
    """None, written as null, where the adapter sets no instant."""


class _Values(msgspec.Struct):
    items: tuple[_Value, ...] = ()


class CustomMetrics:
    """Reads metrics of objects, with the plural of each kind from API discovery."""

    def __init__(
        self, reader: Reader, discover: Callable[[], Awaitable[Discovered]], clock: Callable[[], float]
    ) -> None:
        """clock: seconds since the epoch."""
        self._reader, self._discover, self._clock = reader, discover, clock
        self._known: Discovered | None = None
        self._known_at_s = 0.0

    async def read(self, namespace: str, reading: CustomReading) -> Sample:
        """Newest value. Raises SourceError."""
        path = f"{PATH}/namespaces/{namespace}/{await self._object(reading.target)}/{quote(reading.metric, safe='')}"
        selector = ",".join(f"{name}={value}" for name, value in reading.selector)
        try:
            body = await self._reader.read(path, {"metricLabelSelector": selector} if selector else {})
        except KubeReadError as error:
            code = "MetricNotFound" if error.refusal.status == 404 else "CustomMetricsUnreachable"
            raise SourceError(code, error.refusal.words[:200]) from error
        return sample_in(body, reading.role, self._clock())

    async def _object(self, target: Target) -> str:
        """Plural, group and name, as the API writes an object: `deployments.apps/chat`."""
        if self._known is None or self._clock() - self._known_at_s > DISCOVER_EVERY_S:
            try:
                self._known, self._known_at_s = await self._discover(), self._clock()
            except ObservationError as error:
                if self._known is None:
                    raise SourceError("CustomMetricsUnreachable", str(error)[:200]) from error
        found = self._known.of_kind(target.api_version, target.kind)
        if found is None:
            raise SourceError("TargetUnknown", f"the server has no {target.kind} in {target.api_version}")
        return f"{found.full_name}/{target.name}"


def sample_in(body: bytes, role: Role, now_s: float) -> Sample:
    """Value in a MetricValueList; several are added up. Raises SourceError.

    now_s: instant of the value where the adapter names none, and the latest possible one.
    """
    try:
        items = msgspec.json.decode(body, type=_Values).items
        values = [float(quantity(item.value)) for item in items]
        at_s = min((_instant(item.timestamp, now_s) for item in items), default=now_s)
    except UNREADABLE as error:
        raise SourceError("AnswerMalformed", f"the custom metrics API answered {str(error)[:150]}") from error
    if not values:
        raise SourceError("MetricNotFound", f"the custom metrics API has no value for {role}")
    return Sample(min(at_s, now_s), sum(values))


def _instant(written: str | None, now_s: float) -> float:
    return datetime.fromisoformat(written).timestamp() if written else now_s
