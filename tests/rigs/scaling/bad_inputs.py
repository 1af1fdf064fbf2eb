"""A policy whose source measures wrongly for a time, beside the same policy whose source does not. Simulated.

The operator's own collector, forecasts, deciders and status run every 15 s on a source that answers as Prometheus does.
A minute is off where the target's replicas differ by more than a tenth, and by more than one, from those of the policy
that was measured rightly.

    python -m tests.rigs.scaling.bad_inputs [word of cases;...] [hour,...]
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from cluster.arrays import FloatArray, IntArray
from controller.api.notation import rfc3339
from controller.api.scaling_policy import ScalingPolicy
from controller.brain.inline import InlineBrain, decisions_from
from controller.cycle import stopped
from controller.kube.discovery import ApiResource, Discovered
from controller.loops.autoscaler.forecasting import Forecasts
from controller.loops.autoscaler.loop import Collector, series_of
from controller.loops.autoscaler.measured import Measured
from controller.loops.autoscaler.policies import with_measured
from controller.loops.autoscaler.prometheus import Series
from controller.loops.autoscaler.readings import Allowed
from controller.loops.autoscaler.targets import KnownKinds, Targets
from controller.metrics.registry import Meter
from controller.report.scaling_status import scaling_status_after
from controller.settings import AutoscalerSettings, OperatorSettings
from controller.snapshot.scalers import PolicyState, scaler_of
from tests.builders.background import Here
from tests.builders.fleet import node, world
from tests.clock import HandClock
from tests.rigs.scaling.shapes import shape

NAME = "default/web"
SYNC_S, MINUTE_S, HOUR_S, DAY_S = 15.0, 60.0, 3600.0, 86_400.0
LEAD_S, SLOW_LEAD_S = 120.0, 600.0
PEAK_REPLICAS = 40
BEGIN_S = 10 * DAY_S
"""Instant at which the operator starts: there are ten days of history."""
OFF_SHARE = 0.1
ALLOWED_MINUTES = 12.0


@dataclass(frozen=True, slots=True)
class Span:
    """Time during which a source measures wrongly, seconds."""

    since_s: float
    until_s: float

    def holds(self, at_s: float) -> bool:
        return self.since_s <= at_s < self.until_s


@dataclass(slots=True)
class LoadSource:
    """Prometheus with the load of one service: what was offered, and what its servers and their queue show of it."""

    offered: FloatArray
    """Shape (minutes,), requests per second, since the epoch."""
    wrong: Callable[[float, float], float | None] = lambda _, value: value
    """What is measured instead of a value at an instant; None: nothing is."""
    unit: float = 1.0
    """Size of the query's unit."""
    served: dict[float, float] = field(default_factory=dict)
    """What ready replicas could serve, by instant: a server counts no more than that. Empty: offered load counts."""
    is_unscraped: Callable[[float], bool] = lambda _: False
    """Whether queue and cache are not scraped at an instant."""

    def load(self, at_s: float) -> float:
        return float(self.offered[int(at_s // MINUTE_S)]) / self.unit

    async def now(self, query: str, namespace: str, at_s: float, max_age_s: float) -> tuple[Series, ...]:
        return self._series([at_s], query)

    async def over(
        self, query: str, namespace: str, start_s: float, end_s: float, step_s: float, max_age_s: float
    ) -> tuple[Series, ...]:
        return self._series(np.arange(start_s, end_s + 1.0, step_s).tolist(), query)

    def of(self, url: str) -> "LoadSource":
        return self

    def _series(self, instants: list[float], query: str) -> tuple[Series, ...]:
        points: dict[str, list[tuple[float, float]]] = {"requests": [], "queue": [], "saturation": []}
        for at_s in instants:
            load = self.load(at_s) if at_s >= 0 else 0.0
            most = self.served.get(at_s, np.inf)
            value = self.wrong(at_s, min(load, most))
            if value is not None and at_s >= 0:
                points["requests"].append((at_s, value))
            if not self.is_unscraped(at_s):
                points["queue"].append((at_s, max(load - most, 0.0)))
                points["saturation"].append((at_s, min(load / most, 1.0)))
        if "tonnage_quantity" not in query:
            return (Series({}, tuple(points["requests"])),)
        return tuple(Series({"tonnage_quantity": name}, tuple(each)) for name, each in points.items() if each)


def policy_of(demand: Mapping[str, Any], per_replica: float, target: str = "web") -> ScalingPolicy:
    """Policy in force on a Deployment."""
    body = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "ScalingPolicy",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "maxReplicas": 1000,
            "mode": "Auto",
            "capacity": {"perReplica": per_replica},
            "demand": {"sources": [{"prometheus": demand}]},
        },
    }
    return ScalingPolicy.model_validate(body)


class Deployments:
    """Deployments on an API server, whose pods become ready a lead time after their creation."""

    def __init__(self, lead_s: Mapping[str, float]) -> None:
        """lead_s: by name."""
        self._lead_s = lead_s
        self.created_s: dict[str, list[float]] = {name: [] for name in lead_s}
        self.now_s = 0.0

    async def read(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Scale of a Deployment, or its pods."""
        if path.endswith("/scale"):
            name = path.split("/")[-2]
            count = len(self.created_s[name])
            answer: dict[str, Any] = {
                "spec": {"replicas": count},
                "status": {"replicas": count, "selector": f"app={name}"},
            }
        else:
            name = (query or {})["labelSelector"].removeprefix("app=")
            answer = {"items": [self._pod(name, n, at_s) for n, at_s in enumerate(self.created_s[name])]}
        return json.dumps(answer).encode()

    async def discover(self) -> Discovered:
        return Discovered((ApiResource("apps", "v1", "Deployment", "deployments"),))

    def scale(self, name: str, replicas: int, at_s: float) -> None:
        """The latest orders are stopped first."""
        known = self.created_s[name]
        self.created_s[name] = known[:replicas] + [at_s] * (replicas - len(known))

    def ready(self, name: str) -> int:
        return sum(self.now_s >= at_s + self._lead_s[name] for at_s in self.created_s[name])

    def _pod(self, name: str, number: int, at_s: float) -> dict[str, Any]:
        is_ready = self.now_s >= at_s + self._lead_s[name]
        uid = f"{name}-{number}-{at_s:.0f}"
        since = rfc3339(at_s + self._lead_s[name] if is_ready else at_s)
        condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": since}
        return {
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": rfc3339(at_s)},
            "status": {"phase": "Running", "conditions": [condition]},
        }


class OperatedPolicy:
    """The operator with one policy, and its target."""

    def __init__(self, source: LoadSource, policy: ScalingPolicy, *, saturates: bool = False) -> None:
        """saturates: whether the source counts no more than the ready replicas serve."""
        self.source, self.policy, self._saturates = source, policy, saturates
        self.clock = HandClock(BEGIN_S)
        self.deployments = Deployments({"web": LEAD_S, "slow": SLOW_LEAD_S})
        self.status: dict[str, Any] = {}
        self.codes: dict[str, int] = {}
        """Number of cycles for each problem of the source."""
        self._empty = world([node("a", gpus=1)])
        self.start_operator()

    @property
    def _unit(self) -> float:
        return self.policy.spec.capacity.per_replica if self.policy.spec.capacity else 1.0

    def start_operator(self) -> None:
        """A new process: what it measured is gone, the policy's status stays."""
        me: Any = self.source
        api: Any = self.deployments
        self.measured = Measured(self.clock)
        allowed = Allowed("http://prometheus", queries=True)
        self._collector = Collector(self.measured, me, me, allowed, AutoscalerSettings(), self.clock, Meter())
        self._targets = Targets(api, KnownKinds(api.discover, self.clock), self.clock)
        self._forecasts = Forecasts(self.measured, self.clock, Here())
        self._brain = InlineBrain(decisions_from(OperatorSettings()), clock=stopped)

    async def until(self, at_s: float) -> IntArray:
        """Cycles up to an instant; the target's replicas after each."""
        found = []
        while self.clock() < at_s:
            await self._cycle()
            found.append(len(self.deployments.created_s[self.policy.spec.target.name]))
            self.clock.now_s += SYNC_S
        return np.array(found)

    async def _cycle(self) -> None:
        now_s, target = self.clock(), self.policy.spec.target.name
        self.deployments.now_s = now_s
        if not self.deployments.created_s[target]:
            enough = np.ceil(self.source.load(now_s) / self._unit / 0.7)
            self.deployments.created_s[target] = [now_s - DAY_S] * int(enough)
        if self._saturates:
            self.source.served[now_s] = self.deployments.ready(target) * self._unit
        read = self.policy.model_copy(update={"status": type(self.policy.status).model_validate(self.status)})
        policies = {NAME: read}
        await self._collector.turn(policies)
        await self._collector.histories()
        self.measured.keep({NAME: read.about})
        await self._targets.turn(policies)
        self._forecasts.turn({NAME: series_of(read)})
        seen = replace(self._empty, at_s=now_s)
        seen = replace(seen, scalers=(scaler_of(NAME, read, seen, PolicyState()),))
        self.seen = with_measured(seen, policies, self.measured, self._targets.state, {})
        plan = self._brain.plan(self.seen, 60.0)
        (finding,) = (each.reason for each in plan.findings if each.about == f"ScalingPolicy/{NAME}")
        for step in plan.steps():
            self.deployments.scale(target, step.action.replicas, now_s)  # type: ignore[attr-defined]
        code = self.seen.scalers[0].source_problem.partition(":")[0]
        if code:
            self.codes[code] = self.codes.get(code, 0) + 1
        self.status = scaling_status_after(self.status, self.seen.scalers[0], finding, generation=1, at_s=now_s)


@dataclass(frozen=True, slots=True)
class Found:
    """What a wrong source did to a policy."""

    case: str
    hour: float
    """Hour of the day at which it began to measure wrongly."""
    off_minutes: float
    longest: int
    """Most replicas that it was off by."""
    after_minutes: float
    """Those of them after the source was right again."""
    codes: Mapping[str, int]


QUERY: Mapping[str, Any] = {"query": "sum(rate(requests[1m]))"}
GATEWAY: Mapping[str, Any] = {"preset": "sglang"}
"""Requests that the servers took; what waits before them is their queue."""
HOURS = (3.0, 8.0, 16.0)
"""Hours of the day: before dawn, while the load rises, and while it falls."""


AFTER_S = 2 * HOUR_S
"""Time that is judged after the source is right again."""
LONGEST_S = 9 * HOUR_S


def _operated(hour: float, demand: Mapping[str, Any]) -> OperatedPolicy:
    """The operator an hour before this one, on working days and weekends."""
    offered = shape("holiday", 1).values / MINUTE_S
    unit = float(np.quantile(offered, 0.995)) / PEAK_REPLICAS
    one = OperatedPolicy(LoadSource(offered), policy_of(demand, unit), saturates="preset" in demand)
    one.clock.now_s = BEGIN_S + (hour - 1.0) * HOUR_S
    return one


@lru_cache
def _right(hour: float, preset: str) -> IntArray:
    """Replicas of a policy that is measured rightly."""
    one = _operated(hour, {"preset": preset} if preset else QUERY)
    return asyncio.run(one.until(one.clock() + LONGEST_S))


def _run(
    name: str,
    hour: float,
    for_s: float,
    wrong: Callable[[Span, LoadSource], None],
    demand: Mapping[str, Any] = QUERY,
    change: Callable[[OperatedPolicy], None] = lambda _: None,
) -> tuple[Found, OperatedPolicy]:
    """The policy from an hour before the wrong measurements to two hours after. change: of the policy or its operator,
    half an hour after them."""
    span = Span(BEGIN_S + hour * HOUR_S, BEGIN_S + hour * HOUR_S + for_s)
    one = _operated(hour, demand)
    began_s = one.clock()
    wrong(span, one.source)
    before = asyncio.run(one.until(span.until_s + HOUR_S / 2))
    change(one)
    found = np.concatenate([before, asyncio.run(one.until(span.until_s + AFTER_S))])
    right = _right(hour, demand.get("preset", ""))[: len(found)]
    apart = np.abs(found - right)
    off = (apart > OFF_SHARE * right) & (apart > 1)
    after = began_s + np.arange(len(off)) * SYNC_S >= span.until_s
    minutes = SYNC_S / MINUTE_S
    figures = minutes * float(off.sum()), int(apart.max()), minutes * float((off & after).sum())
    return Found(name, hour, *figures, dict(one.codes)), one


def _measures(value_of: Callable[[float, float], float | None]) -> Callable[[Span, LoadSource], None]:
    def change(span: Span, source: LoadSource) -> None:
        source.wrong = lambda at_s, value: value_of(at_s, value) if span.holds(at_s) else value

    return change


def _frozen(span: Span, source: LoadSource) -> None:
    stands = source.load(span.since_s)
    source.wrong = lambda at_s, value: stands if span.holds(at_s) else value


def _unscraped(span: Span, source: LoadSource) -> None:
    source.is_unscraped = span.holds


def _other_unit(one: OperatedPolicy) -> None:
    """The query counts tokens now, 500 of a request."""
    assert one.policy.spec.capacity
    one.source.unit /= TOKENS
    one.policy = policy_of({"query": "sum(rate(tokens[1m]))"}, TOKENS * one.policy.spec.capacity.per_replica)


def _other_target(one: OperatedPolicy) -> None:
    """Another Deployment, whose pods take longer to become ready."""
    assert one.policy.spec.capacity
    one.policy = policy_of(QUERY, one.policy.spec.capacity.per_replica, "slow")


TOKENS = 500.0
_Change = tuple[float, Callable[[Span, LoadSource], None], Mapping[str, Any], Callable[[OperatedPolicy], None]]


def _tenfold(_: float, value: float) -> float:
    return 1e4 * value


def _absurd(_: float, __: float) -> float:
    return 1e300


def _half(_: float, value: float) -> float:
    return value / 2


def _same(_: OperatedPolicy) -> None:
    pass


CASES: Mapping[str, _Change] = {
    **{
        f"{count:,} samples {words}": (count * SYNC_S, _measures(value_of), QUERY, _same)
        for words, value_of in (("× 10,000", _tenfold), ("of 1e300", _absurd))
        for count in (1, 5, 1000)
    },
    "frozen for 6 h": (6 * HOUR_S, _frozen, QUERY, _same),
    "queue and cache unscraped for 6 h": (6 * HOUR_S, _unscraped, GATEWAY, _same),
    "half of the servers unscraped for 6 h": (6 * HOUR_S, _measures(_half), QUERY, _same),
    "5 samples × 10,000, a new leader": (5 * SYNC_S, _measures(_tenfold), QUERY, OperatedPolicy.start_operator),
    "1,000 samples × 10,000, a new leader": (1000 * SYNC_S, _measures(_tenfold), QUERY, OperatedPolicy.start_operator),
    "frozen for 6 h, a new leader": (6 * HOUR_S, _frozen, QUERY, OperatedPolicy.start_operator),
    "the query's unit changes": (0.0, _measures(lambda _, value: value), QUERY, _other_unit),
    "the target changes": (0.0, _measures(lambda _, value: value), QUERY, _other_target),
}


def found_in(names: tuple[str, ...] = tuple(CASES), hours: tuple[float, ...] = HOURS) -> Iterator[Found]:
    """What each case does to the policy at each hour."""
    for name in names:
        for hour in hours:
            for_s, wrong, demand, change = CASES[name]
            yield _run(name, hour, for_s, wrong, demand, change)[0]


if __name__ == "__main__":
    words, hours = [*sys.argv[1:], "", ""][:2]
    chosen = tuple(name for name in CASES if any(word in name for word in words.split(";")))
    for each in found_in(chosen, tuple(float(hour) for hour in hours.split(",")) if hours else HOURS):
        off = f"{each.off_minutes:6.1f} min off ({each.after_minutes:6.1f} of them after)"
        said = f"by {each.longest} replicas at most; said: {each.codes}"
        sys.stdout.write(f"{each.case:38s} from {each.hour:4.1f} h: {off}, {said}\n")
        sys.stdout.flush()
