"""Status of a ScalingPolicy after a cycle: the decision, the figures behind it, and what a restart needs."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import ValidationError

from autoscaler.decision.missed_share import missed_after
from autoscaler.decision.outcome import LIMITS, LimitedBy
from cluster.autoscaling import ConcurrencyLimit, ConcurrencyTuning, Scaler
from cluster.plans import Reason
from controller.api import conditions as api_conditions, scaling_policy
from controller.kube.request import APPLY_PATCH
from controller.kube.sender import Write, WriteJob
from controller.snapshot.scalers import contexts_of, pool_of

LONGEST_MESSAGE = 1024
_STATUS_OF: Mapping[str, api_conditions.ConditionStatus] = {
    "Breach": "False",
    "Unsafe": "False",
    "NoData": "False",
    "FewRequests": "Unknown",
    "Scaling": "Unknown",
}
"""Whether the limit follows what was measured, by its cause; `True` for the others."""


def concurrency_status_after(
    old: scaling_policy.ConcurrencyStatus | None, tuning: ConcurrencyTuning | None, decided: ConcurrencyLimit | None
) -> scaling_policy.ConcurrencyStatus | None:
    """Status of the tuning; None where the policy has none. decided: limit of this cycle's plan, if there is one."""
    if tuning is None:
        return None
    if decided is None:
        kept = old or scaling_policy.ConcurrencyStatus(limit=tuning.wanted, in_force=tuning.in_force)
        return kept.model_copy(update={"limit": tuning.wanted, "in_force": tuning.in_force})
    in_force = tuning.in_force_after(decided.limit)
    try:
        return scaling_policy.ConcurrencyStatus(
            limit=decided.limit,
            in_force=in_force,
            time=decided.at_s,
            reason=decided.code,
            message=decided.words[:LONGEST_MESSAGE],
            decisions=decided.state.decisions,
            learned=contexts_of(decided.state),
            pool=pool_of(decided.state),
        )
    except ValidationError:  # a source that measures a throughput of 1e50, for example
        words = "figures beyond what a status may hold; what was learned is dropped"
        return scaling_policy.ConcurrencyStatus(
            limit=tuning.wanted, in_force=tuning.in_force, time=decided.at_s, reason="NoData", message=words
        )


def concurrency_claim(
    tuning: ConcurrencyTuning, status: scaling_policy.ConcurrencyStatus, *, publishes: bool
) -> api_conditions.Claim:
    """The condition ConcurrencyTuned. What hides the limit from the replicas, and a source that fails, count more than
    the last decision.

    publishes: whether the operator writes ConfigMaps.
    """
    if tuning.config_map and not publishes:
        words = f"the operator does not write ConfigMap/{tuning.config_map}; set autoscaler.configMaps in the chart"
        return api_conditions.CONCURRENCY_TUNED, "False", Reason("NotPublished", words)
    if tuning.problem:
        code, _, words = tuning.problem.partition(": ")
        return api_conditions.CONCURRENCY_TUNED, "False", Reason(code, words)
    if not status.reason:
        return api_conditions.CONCURRENCY_TUNED, "Unknown", Reason("NotDecided", "the replicas were not measured yet")
    return (
        api_conditions.CONCURRENCY_TUNED,
        _STATUS_OF.get(status.reason, "True"),
        Reason(status.reason, status.message),
    )


KEY = "concurrency"
"""Key of the limit, and the name of its file in a volume."""
MANAGER = "tonnage-concurrency"
AGAIN_S = 60.0
"""Time after which what did not change is sent again: an object that was deleted or could not be written is repaired
within it, and nothing needs to be read. An apply without a change writes nothing on the API server."""


class Published:
    """Writes of objects that others read; it remembers what was sent in this process: no cycle sends it again."""

    def __init__(self) -> None:
        self._sent: dict[str, tuple[Write, float]] = {}

    def jobs(self, writes: Iterable[Write], at_s: float) -> Iterator[WriteJob]:
        """Those of all that are wanted which changed, or were sent long ago. at_s: now, seconds since the epoch."""
        wanted: dict[str, Write] = {}
        for write in writes:  # of several that write one object, the first
            wanted.setdefault(write.path, write)
        self._sent = {path: sent for path, sent in self._sent.items() if path in wanted}
        for path, write in wanted.items():
            before, sent_at_s = self._sent.get(path, (None, at_s))
            if before != write or at_s - sent_at_s >= AGAIN_S:
                self._sent[path] = write, at_s
                yield WriteJob(path, write)


def limit_writes(scalers: Iterable[Scaler], decided: Iterable[ConcurrencyLimit]) -> Iterator[Write]:
    """Limits in the ConfigMaps that policies name, sorted by policies. decided: limits of this cycle's plan."""
    new = {each.scaler: each.limit for each in decided}
    for scaler in sorted(scalers, key=lambda each: each.name):
        tuning = scaler.concurrency
        if tuning is not None and tuning.config_map and scaler.mode != "Off":
            yield config_map_write(tuning.config_map, tuning.in_force_after(new.get(scaler.name, tuning.wanted)))


def config_map_write(name: str, limit: int) -> Write:
    """Server-side apply of the limit to a ConfigMap, which it creates. name: `namespace/name`.

    A key of that name that somebody else wrote is not taken over. The ConfigMap outlives the policy: pods that mount it
    could not start without it.
    """
    namespace, _, bare = name.partition("/")
    metadata = {"name": bare, "namespace": namespace}
    return Write(
        "PATCH",
        f"/api/v1/namespaces/{namespace}/configmaps/{bare}",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: str(limit)}},
        APPLY_PATCH,
        {"fieldManager": MANAGER},
    )


DIGITS = 6
FIGURES_EVERY_S = 30.0
"""Least time between two samples of the load of which both figures are written; what was decided is written at once."""
MOST_KEPT = 64
"""Entries of each list in a status."""
MOST_LEARNED = 32
NO_LIMITS = ("none", "load")
_LIMITS: Mapping[str, LimitedBy] = {code: limit for limit, (code, _) in LIMITS.items()}


def scaling_status_after(
    before: Mapping[str, Any],
    scaler: Scaler,
    found: Reason | None,
    *,
    generation: int,
    at_s: float,
    limit: ConcurrencyLimit | None = None,
    publishes: bool = False,
) -> dict[str, Any]:
    """Status as plain data; equal to `before` when nothing changed that matters now.

    before: the present status, with its condition Accepted. found: finding of the decider about the policy; None: the
    policy is off. generation: of the observed object. at_s: now, seconds since the epoch. limit: concurrency limit of
    the plan, where one was decided. publishes: whether limits are written to the ConfigMaps that policies name.
    """
    old = scaling_policy.ScalingPolicyStatus.read(before)
    if scaler.about and old.about not in (None, scaler.about):
        old = scaling_policy.ScalingPolicyStatus(conditions=old.conditions)
    concurrency = concurrency_status_after(old.concurrency, scaler.concurrency, limit)
    claims = [*_claims(scaler, found, at_s)]
    if scaler.concurrency and concurrency:
        claims.append(concurrency_claim(scaler.concurrency, concurrency, publishes=publishes))
    kept = (each for each in old.conditions if concurrency or each.type != api_conditions.CONCURRENCY_TUNED)
    conditions = api_conditions.conditions_after(kept, claims, generation=generation, at_s=at_s)
    decided = _decided(old, scaler, found, at_s)
    known = scaling_policy.ScalingPolicyStatus.model_validate(
        {**decided, "observed_generation": generation, "conditions": conditions}
    )
    figures = found.figures if found else {}
    skill = scaler.skill
    p50, p95 = np.quantile(scaler.lead_time.points_s, (0.5, 0.95))
    cost = None
    if "cost_per_hour" in figures:
        cost = scaling_policy.ExpectedCostStatus(
            chosen=round(figures["cost_per_hour"], DIGITS),
            one_fewer=_rounded(figures.get("cost_one_fewer")),
            one_more=_rounded(figures.get("cost_one_more")),
        )
    after = known.model_copy(
        update={
            "about": scaler.about or old.about,
            "missed": _missed(scaler),
            "load": _rounded(scaler.load),
            "load_time": None if scaler.load is None else float(int(scaler.observed_at_s)),
            "replica_load": _rounded(scaler.replica_load),
            "forecast": _forecast(scaler),
            "lead_time": scaling_policy.LeadTimeStatus(
                p50=round(float(p50), 1),
                p95=round(float(p95), 1),
                samples=scaler.lead_time.samples,
                learned=tuple(round(each, 1) for each in scaler.starts_s[-MOST_LEARNED:]),
            ),
            "coverage90": _rounded(skill.coverage_90 if skill else None),
            "coverage99": _rounded(skill.coverage_99 if skill else None),
            "skill": _rounded(skill.skill if skill else None),
            "chosen_quantile": _rounded(figures.get("quantile")),
            "expected_cost": cost,
            "concurrency": concurrency,
        }
    )
    if not _is_due(old, after) and _without_figures(after) == _without_figures(old):
        return dict(before)
    return after.plain()


def _missed(scaler: Scaler) -> scaling_policy.MissedStatus | None:
    found = missed_after(scaler)
    if found is None:
        return None
    return scaling_policy.MissedStatus(
        miss_cost=round(found.miss_cost, DIGITS),
        multiplier=round(found.multiplier, DIGITS),
        load=round(found.load, DIGITS),
        share=round(found.share, DIGITS),
        seconds=found.for_s,
        time=float(int(found.at_s)),
    )


def _is_due(old: scaling_policy.ScalingPolicyStatus, after: scaling_policy.ScalingPolicyStatus) -> bool:
    """Whether new figures alone are written: the first ones, a finished start, and every now and then a newer load.

    Without a newer load only ages change, and they do so in every cycle of an outage.
    """
    if old.lead_time is None or after.lead_time is None or old.lead_time.learned != after.lead_time.learned:
        return True
    if after.load_time is None:
        return False
    return old.load_time is None or after.load_time - old.load_time >= FIGURES_EVERY_S


def _without_figures(status: scaling_policy.ScalingPolicyStatus) -> dict[str, Any]:
    """What is written as soon as it changes; messages of conditions contain figures."""
    plain = status.model_dump(exclude=set(_FIGURES) | {"conditions"})
    return {**plain, "conditions": [(each.type, each.status, each.reason) for each in status.conditions]}


_FIGURES = ("load", "missed", "load_time", "replica_load", "forecast", "lead_time", "coverage90", "coverage99", "skill",
            "chosen_quantile", "expected_cost")  # fmt: skip


def _decided(
    old: scaling_policy.ScalingPolicyStatus, scaler: Scaler, found: Reason | None, at_s: float
) -> dict[str, Any]:
    """What was decided, and what later decisions need of it."""
    figures = found.figures if found else {}
    limit = limit_of(found)
    replicas = scaler.replicas
    # Replicas that the target asks for. Those of a service are the decision's, while it is in force.
    desired = None
    if replicas is None:
        desired = old.desired_replicas if scaler.demand is not None or scaler.problem else None
    elif scaler.demand is None:
        desired = replicas.wanted
    elif scaler.mode in ("ScaleUpOnly", "Auto") and not scaler.conflict:
        desired = _count(figures.get("replicas"))
    # Recommendations that were in force within the longest stabilization, each from when it began.
    kept = [*old.recommendations]
    recommended = _count(figures.get("recommended"))
    if not kept and recommended is not None and scaler.replicas is not None:
        # As the decision took it: the replicas that there were when the observation began.
        kept.append(scaling_policy.PastRecommendation(time=float(int(at_s)), replicas=scaler.replicas.wanted))
    if recommended is not None and (not kept or kept[-1].replicas != recommended):
        kept.append(scaling_policy.PastRecommendation(time=float(int(at_s)), replicas=recommended))
    window_s = max(scaler.behavior.up.stabilization_s, scaler.behavior.down.stabilization_s)
    in_force = [each for each, later in pairwise(kept) if later.time > at_s - window_s]
    made = scaler.changes
    if scaler.demand is not None:
        change = 0 if desired is None or old.desired_replicas is None else desired - old.desired_replicas
        made = ((float(int(at_s)), change),) if change else ()
    # Changes within the longest period of a step.
    known = {(each.time, each.change) for each in old.changes}
    steps = (*scaler.behavior.up.steps, *scaler.behavior.down.steps)
    period_s = max((step.period_s for step in steps), default=0.0)
    changes = sorted(each for each in {*known, *made} if each[0] > at_s - period_s)
    return {
        "current_replicas": replicas.ready if replicas else None,
        "desired_replicas": desired,
        "recommended_replicas": _count(figures.get("replicas")),
        "limited_by": None if limit in NO_LIMITS else limit,
        "recommendations": (*in_force, *kept[-1:])[-MOST_KEPT:],
        "changes": tuple(
            scaling_policy.ReplicaChange(time=since_s, change=change) for since_s, change in changes[-MOST_KEPT:]
        ),
        "last_scale_time": max((since_s for since_s, _ in made), default=old.last_scale_time),
    }


def _forecast(scaler: Scaler) -> scaling_policy.ForecastStatus | None:
    """Forecast for the median of the lead time, counted from now: its leads count from the last sample."""
    forecast, lead_s = scaler.forecast, float(np.median(scaler.lead_time.points_s))
    if forecast is None:
        return None
    ahead_s = lead_s + max(0.0, scaler.observed_at_s - forecast.made_at_s)
    p50, p90, p99 = (round(forecast.quantile(level, ahead_s), DIGITS) for level in (0.5, 0.9, 0.99))
    return scaling_policy.ForecastStatus(
        p50=p50, p90=p90, p99=p99, at_seconds=round(lead_s, 1), model=forecast.model[:64]
    )


def limit_of(found: Reason | None) -> LimitedBy:
    """What limited a decision, by the code of its reason."""
    return _LIMITS.get(found.code, "none") if found else "none"


def _count(figure: float | None) -> int | None:
    """Replicas of a figure; those of an absurd load are as many as a status may hold."""
    return None if figure is None else min(round(figure), scaling_policy.MOST_REPLICAS)


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(float(figure), DIGITS)


def _claims(scaler: Scaler, found: Reason | None, at_s: float) -> Iterator[api_conditions.Claim]:
    metrics = _metrics(scaler, at_s)
    yield metrics
    yield api_conditions.FORECAST_TRUSTED, *_trust(scaler)
    limit = limit_of(found)
    if found is None or limit in NO_LIMITS:
        yield api_conditions.SCALING_LIMITED, "False", Reason("NotLimited", "no limit changes the decision")
    else:
        yield api_conditions.SCALING_LIMITED, "True", found
    if scaler.conflict:
        yield (
            api_conditions.CONFLICT,
            "True",
            Reason("AnotherAutoscaler", f"{scaler.conflict} scales {scaler.target}, too"),
        )
    else:
        yield api_conditions.CONFLICT, "False", Reason("NoConflict", "no other autoscaler scales the target")
    yield api_conditions.READY, *_ready(scaler, found, metrics)


def _metrics(scaler: Scaler, at_s: float) -> api_conditions.Claim:
    code, _, words = scaler.source_problem.partition(": ")
    if scaler.load is None:
        reason = Reason(code, words) if code else Reason("NeverMeasured", "the load was never measured")
        return api_conditions.METRICS_AVAILABLE, "False", reason
    age_s = at_s - scaler.observed_at_s
    if age_s >= scaler.max_age_s:
        more = f"; {words}" if words else ""
        return (
            api_conditions.METRICS_AVAILABLE,
            "False",
            Reason("Stale", f"the last sample of the load is too old{more}"),
        )
    if code:
        return api_conditions.METRICS_AVAILABLE, "False", Reason(code, words)
    return api_conditions.METRICS_AVAILABLE, "True", Reason("Fresh", "the load is measured")


def _trust(scaler: Scaler) -> tuple[api_conditions.ConditionStatus, Reason]:
    skill = scaler.skill
    if scaler.forecast is None:
        return "Unknown", Reason("TooLittleHistory", "too little of the load was measured for a forecast")
    if skill is None or skill.skill is None:
        return "Unknown", Reason("NotScored", "no forecast of this process has come due yet")
    if not skill.is_trusted:
        return "False", Reason("NaiveIsBetter", "no model beats the naive forecast on this load; the naive one is used")
    return "True", Reason("BetterThanNaive", f"model {skill.model} beats the naive forecast")


def _ready(
    scaler: Scaler, found: Reason | None, metrics: api_conditions.Claim
) -> tuple[api_conditions.ConditionStatus, Reason]:
    if scaler.mode == "Off" or found is None:
        return "False", Reason("Off", "it is not evaluated: its mode is Off, or the autoscaler is not enabled")
    if scaler.problem or scaler.replicas is None:
        return "False", found
    if metrics[1] != "True":
        return "False", Reason("MetricsMissing", metrics[2].words)
    if scaler.conflict:
        return "False", Reason("Conflict", f"{scaler.conflict} scales the target, too")
    return "True", Reason("Recommending" if scaler.mode == "Recommend" else "Scaling", found.words)
