"""Checks of ScalingPolicies for `tonnage doctor`: rights on their targets, sources of demand, and conflicts. Pure.

The doctor cannot query Prometheus itself: it runs elsewhere, without the operator's credentials. It reads what the
operator states in the policies' conditions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.api.conditions import CONCURRENCY_TUNED, CONFLICT, METRICS_AVAILABLE
from controller.api.rbac import Permission

Verdict = Literal["ok", "warning", "failure", "unknown"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    check: str
    """Name of the check: `crds`, `rbac`, `lease`, ..."""
    verdict: Verdict
    words: str
    remedy: str = ""
    """What to do; empty when nothing is wrong."""


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


Object = dict[str, Any]
CHECK = "scaling"


@dataclass(frozen=True, slots=True, eq=False)
class ScalingFacts:
    """ScalingPolicies of a cluster, and what the operator may do for them."""

    policies: tuple[Object, ...] = ()
    """Objects as the API server has them."""
    is_enabled: bool = True
    """Whether the operator's settings enable the autoscaler."""
    has_prometheus: bool = False
    """Whether they name a Prometheus."""
    account: str = ""
    """Account whose permissions were checked."""
    allowed: Mapping[tuple[str, Permission], bool] = field(default_factory=dict)
    """Whether it has a permission on a target, by (policy, permission)."""
    unknown_targets: Mapping[str, str] = field(default_factory=dict)
    """Kind that the API server does not serve, by policy."""


_ADDRESS = "set autoscaler.prometheus.url in the chart's values"
_SETTINGS = "allow it in settings.autoscaler of the chart, or use a preset of the operator's own Prometheus"
_METRICS = {
    "PrometheusUnreachable": "check autoscaler.prometheus (url, caSecret, tokenSecret), "
    "and the NetworkPolicies between it and the operator",
    "NoPrometheus": _ADDRESS,
    "QueryEmpty": "run the query in Prometheus: are the pods scraped, with the label namespace, "
    "and do the policy's labels fit?",
    "QueryAmbiguous": "aggregate the policy's query, as by sum()",
    "QueryRefused": "run the query in Prometheus: its answer names the error",
    "PartialAnswer": "look at Prometheus' own stores and remote reads: its answer lacked some",
    "AnswerTooLarge": "aggregate the policy's query, or raise settings.autoscaler.prometheus.most_bytes",
    "AnswerMalformed": "check that autoscaler.prometheus.url is the address of a Prometheus API",
    "ServerNotAllowed": _SETTINGS,
    "QueriesNotAllowed": _SETTINGS,
    "CustomMetricsNotAllowed": "set autoscaler.customMetrics in the chart's values",
    "CustomMetricsUnreachable": "look at the APIService v1beta2.custom.metrics.k8s.io: is its adapter available?",
    "MetricNotFound": "kubectl get --raw /apis/custom.metrics.k8s.io/v1beta2 lists the metrics that there are",
    "LabelsInvalid": "correct prometheus.labels of the policy (docs/demand-sources.md lists those of each preset)",
    "NeverMeasured": "push a sample, or look at the operator's log for the policy's source",
    "Stale": "look at the source: its last sample is older than maxAge; nothing is scaled down meanwhile",
    "NotMeasured": "tune by a source whose preset measures latency without the queue (docs/autoscaler.md)",
    "NotFollowed": "let what admits requests follow status.concurrency.limit, or set spec.concurrency.start to it",
}
"""Remedies by the reason of a condition."""
_OWN = ("PrometheusUnreachable", "NoPrometheus", "AnswerMalformed")
"""Reasons that are the operator's own fault, which concerns all policies."""
_ANY = "tonnage scaling explain shows all conditions of the policy"


def scaling_findings(facts: ScalingFacts) -> Iterator[CheckResult]:
    """Findings about all policies that are not off; one for each cause, with the policies that it concerns."""
    active = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}": each
        for each in facts.policies
        if each["spec"].get("mode", "Recommend") != "Off"
    }
    if not active:
        yield CheckResult(CHECK, "ok", "no ScalingPolicy is to be evaluated")
        return
    if not facts.is_enabled:
        words = f"{few(list(active))}: the operator's settings disable the autoscaler"
        yield CheckResult(CHECK, "failure", words, "set settings.autoscaler.enabled to true in the chart's values")
        return
    found = []
    for (policy, permission), may in facts.allowed.items():
        if not may:
            words = f"{facts.account} may not {permission}, which {policy} needs"
            remedy = "add its resource to autoscaler.targets of the chart's values"
            found.append(CheckResult(CHECK, "failure", words, remedy))
    for policy, kind in facts.unknown_targets.items():
        words = f"{policy}: the API server has no {kind}"
        found.append(CheckResult(CHECK, "warning", words, "correct spec.target, or install the kind"))
    found += _states(facts, active)
    yield from found
    if not found:
        yield CheckResult(CHECK, "ok", f"{len(active)} ScalingPolicies are measured, and their targets may be scaled")


def _states(facts: ScalingFacts, active: Mapping[str, Object]) -> Iterator[CheckResult]:
    """What the conditions of the policies state, by cause."""
    if not facts.has_prometheus:
        stated = _by_reason(active, METRICS_AVAILABLE).get("NoPrometheus", {})
        lacking = []
        for name, policy in active.items():
            asked = [source.get("prometheus") for source in policy["spec"]["demand"]["sources"]]
            if name not in stated and any(each is not None and not each.get("server") for each in asked):
                lacking.append(name)
        if lacking:
            yield CheckResult(CHECK, "failure", f"{few(lacking)}: the operator has no Prometheus to ask", _ADDRESS)
    unseen = [name for name, policy in active.items() if not _conditions(policy)]
    if unseen:
        remedy = "look at the operator's log: it has not evaluated them; does a replica lead?"
        yield CheckResult(CHECK, "warning", f"{few(unseen)}: no status was reported", remedy)
    for kind in (METRICS_AVAILABLE, CONCURRENCY_TUNED):
        for cause, named in _by_reason(active, kind).items():
            if kind == CONCURRENCY_TUNED and cause not in _METRICS:
                continue  # what the load does, such as a breach of its bound, is no fault of the installation
            remedy = _METRICS.get(cause, _ANY)
            words = next(iter(named.values()))
            verdict: Verdict = "failure" if cause in _OWN else "warning"
            yield CheckResult(CHECK, verdict, f"{few(list(named))}: {cause}: {words}", remedy)
    for name, policy in active.items():
        conflict = _conditions(policy).get(CONFLICT, {})
        if conflict.get("status") == "True":
            remedy = "keep one of the two, or let the HPA follow tonnage_desired_replicas (docs/demand-sources.md)"
            yield CheckResult(CHECK, "warning", f"{name}: {conflict['message']}", remedy)


def _by_reason(active: Mapping[str, Object], kind: str) -> dict[str, dict[str, str]]:
    """Messages by reason and policy, of the policies of which a condition is not true."""
    found: dict[str, dict[str, str]] = {}
    for name, policy in active.items():
        condition = _conditions(policy).get(kind)
        if condition is not None and condition["status"] == "False":
            found.setdefault(condition["reason"], {})[name] = condition["message"]
    return found


def _conditions(policy: Object) -> dict[str, Object]:
    written: Iterable[Object] = (policy.get("status") or {}).get("conditions") or ()
    return {each["type"]: each for each in written}
