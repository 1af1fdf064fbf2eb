"""Doctor: faults of an installation, each with its remedy."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api.crds import crd
from controller.api.kinds import OWN_KINDS
from controller.api.rbac import Permission, needed
from controller.api.structs import Pod, PodMeta, PodSpec
from controller.kube.request import NOT_INSTALLED
from controller.queries.cluster_facts import skew_s
from controller.queries.doctor import InstallationFacts, examine
from controller.queries.doctor_scaling import CheckResult, ScalingFacts
from controller.queries.installation import Installation
from tests.builders.fleet import node, world

NOW_S = 1_800_000_000.0


def instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def stored(kind: Any) -> dict[str, Any]:
    return {**crd(kind), "status": {"conditions": [{"type": "Established", "status": "True"}]}}


def lease(renewed_s_ago: float = 1.0, holder: str = "one") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": instant(NOW_S - renewed_s_ago)}
    return {"spec": spec}


def installed(ready: int = 2, pools: list[Any] | None = None) -> Installation:
    template = {"spec": {"serviceAccountName": "tonnage"}}
    metadata = {"namespace": "tonnage-system", "name": "tonnage"}
    deployment = {
        "metadata": metadata,
        "spec": {"replicas": 2, "template": template},
        "status": {"readyReplicas": ready},
    }
    return Installation(deployment, settings={"pools": pools} if pools else {})


WELL = InstallationFacts(
    server_version="v1.36.3",
    skew_s=0.0,
    crds={crd(kind)["metadata"]["name"]: stored(kind) for kind in OWN_KINDS},
    installation=installed(),
    allowed=dict.fromkeys(needed(frozenset({"gate"}), ("tonnage-system", "tonnage")), True),
    allowed_to="it",
    lease=lease(),
    metrics={"tonnage-system/tonnage-0": ""},
    snapshot=world([node("a", gpus=8)]),
    dra_slices=0,
)


def found(facts: InstallationFacts, check: str) -> list[CheckResult]:
    return [finding for finding in examine(facts, NOW_S) if finding.check == check]


def verdict(facts: InstallationFacts, check: str) -> str:
    (finding,) = found(facts, check)
    assert finding.remedy or finding.verdict == "ok"
    return finding.verdict


def test_where_all_is_well_nothing_is_to_be_done() -> None:
    assert {(f.verdict, f.remedy) for f in examine(WELL, NOW_S)} == {("ok", "")}


@pytest.mark.parametrize(("version", "expected"), [("v1.29.4", "failure"), ("v1.30.0-eks-1", "ok"), ("1.36+", "ok")])
def test_a_server_that_is_too_old_is_refused(version: str, expected: str) -> None:
    assert verdict(replace(WELL, server_version=version), "server") == expected


@pytest.mark.parametrize(("skew", "expected"), [(1.9, "ok"), (-3.0, "warning"), (12.0, "failure"), (None, "unknown")])
def test_clocks_that_differ_are_told(skew: float | None, expected: str) -> None:
    assert verdict(replace(WELL, skew_s=skew), "clock") == expected


def test_a_date_header_that_is_cut_to_seconds_is_no_skew() -> None:
    assert skew_s("Fri, 15 Jan 2027 08:00:00 GMT", NOW_S + 0.9) == 0.0
    assert skew_s("Fri, 15 Jan 2027 08:00:00 GMT", NOW_S + 5.0) == 4.0
    assert skew_s("Fri, 15 Jan 2027 08:00:00 GMT", NOW_S - 5.0) == -5.0
    assert skew_s("soon", NOW_S) is None
    assert skew_s(None, NOW_S) is None


def test_a_kind_that_is_missing_or_of_another_release_is_named() -> None:
    names = sorted(WELL.crds)
    other = {**WELL.crds[names[1]], "spec": {**WELL.crds[names[1]]["spec"], "versions": []}}

    findings = found(replace(WELL, crds={names[1]: other, **{n: WELL.crds[n] for n in names[2:]}}), "crds")

    assert sorted(f.verdict for f in findings if f.verdict != "ok") == ["failure", "warning"]


def managed(stored: dict[str, Any], *managers: str, is_of_release: bool) -> dict[str, Any]:
    fields = [{"manager": each, "fieldsV1": {"f:spec": {"f:versions": {}}}} for each in managers]
    server = {"manager": "kube-apiserver", "subresource": "status", "fieldsV1": {"f:status": {}}}
    annotations = {"meta.helm.sh/release-name": "tonnage"} if is_of_release else {}
    metadata = {**stored["metadata"], "annotations": annotations, "managedFields": [*fields, server]}
    return {**stored, "metadata": metadata}


@pytest.mark.parametrize(
    ("managers", "is_of_release", "words"),
    [
        (("helm", "kubectl-edit"), True, "was written by helm, kubectl-edit"),
        (("helm",), True, "is from this release"),
        (("kubectl", "kubectl-edit"), False, "is from this release"),  # without Helm there is no conflict with it
    ],
)
def test_a_definition_that_others_wrote_beside_helm_is_named_before_an_upgrade_ends_half_way(
    managers: tuple[str, ...], words: str, *, is_of_release: bool
) -> None:
    name = min(WELL.crds)
    touched = managed(WELL.crds[name], *managers, is_of_release=is_of_release)

    findings = found(replace(WELL, crds={**WELL.crds, name: touched}), "crds")

    (finding,) = [each for each in findings if each.words.startswith(f"{name} ")]
    assert words in finding.words
    assert ("--force-conflicts" in finding.remedy) == (finding.verdict == "warning")


def test_missing_kinds_are_one_finding_with_one_remedy() -> None:
    unread = dict.fromkeys(("nodes", "waiting"), NOT_INSTALLED)
    found = [f for f in examine(replace(WELL, crds={}, unread=unread), NOW_S) if f.verdict != "ok"]

    assert [(f.check, f.verdict) for f in found] == [("crds", "failure"), ("nodes", "unknown"), ("waiting", "unknown")]
    assert [bool(f.remedy) for f in found] == [True, False, False]
    assert "tonnage crds | kubectl apply" in found[0].remedy


def test_what_the_operator_may_not_do_is_named_with_the_role_that_grants_it() -> None:
    allowed = {each: str(each[1]) != "patch pods" for each in WELL.allowed}

    (finding,) = found(replace(WELL, allowed=allowed), "rbac")

    assert (finding.verdict, "place-gate" in finding.remedy) == ("failure", True)


def test_what_the_chart_can_leave_out_is_a_warning() -> None:
    allowed = {each: each[0] != "evict" for each in WELL.allowed}

    assert verdict(replace(WELL, allowed=allowed), "rbac") == "warning"


@pytest.mark.parametrize(
    ("held", "expected"),
    [(None, "failure"), (lease(holder=""), "failure"), (lease(renewed_s_ago=16.0), "failure"), (lease(14.0), "ok")],
)
def test_a_lease_that_nobody_renews_is_a_failure(held: Any, expected: str) -> None:
    assert verdict(replace(WELL, lease=held), "lease") == expected


@pytest.mark.parametrize(("ready", "expected"), [(0, "failure"), (1, "warning"), (2, "ok")])
def test_replicas_that_are_not_ready_are_counted(ready: int, expected: str) -> None:
    assert verdict(replace(WELL, installation=installed(ready)), "operator") == expected


def test_devices_without_a_type_and_types_without_devices_are_told() -> None:
    now = world([node("a", gpus=8, gpu_type="A100")], prices={"A100": 1.0, "H100": 1.0})
    unknown = replace(now, nodes=replace(now.nodes, gpu_type=now.nodes.gpu_type * 0 - 1))

    assert verdict(replace(WELL, snapshot=now), "nodes") == "warning"
    assert "failure" in {f.verdict for f in found(replace(WELL, snapshot=unknown), "nodes")}
    assert verdict(replace(WELL, snapshot=world([node("a")])), "nodes") == "failure"


@pytest.mark.parametrize(("slices", "helps"), [(0, "device plugin"), (None, "device plugin"), (3, "`placer: dra`")])
def test_where_no_node_offers_gpus_the_remedy_is_the_one_of_how_they_are_published(
    slices: int | None, helps: str
) -> None:
    (finding,) = found(replace(WELL, snapshot=world([node("a")]), dra_slices=slices), "nodes")

    assert (finding.verdict, helps in finding.remedy) == ("failure", True)


def waiting(scheduler: str) -> dict[str, Pod]:
    return {"ns/p": Pod(PodMeta("p", "ns"), PodSpec(scheduler_name=scheduler))}


def test_pods_that_nobody_could_let_go_are_a_failure() -> None:
    waits = replace(WELL, pods=waiting("tonnage"))
    bound = replace(waits, installation=installed(pools=[{"placer": "bind"}]))

    assert verdict(waits, "waiting") == "failure"  # the only pool is placed by gate
    assert verdict(bound, "waiting") == "ok"
    assert verdict(replace(bound, lease=None), "waiting") == "failure"
    assert verdict(replace(WELL, pods=waiting("default-scheduler")), "waiting") == "ok"


def test_devices_by_claim_need_the_api_and_a_driver() -> None:
    claims = installed(pools=[{"placer": "dra"}])

    assert verdict(replace(WELL, dra_slices=None), "dra") == "ok"
    assert verdict(replace(WELL, dra_slices=None, installation=claims), "dra") == "failure"
    assert verdict(replace(WELL, dra_slices=0, installation=claims), "dra") == "failure"
    assert verdict(replace(WELL, dra_slices=3, installation=claims), "dra") == "ok"


def test_what_may_not_be_read_is_unknown_and_hides_nothing_else() -> None:
    facts = replace(WELL, crds={}, unread={"crds": "forbidden"})

    assert verdict(facts, "crds") == "unknown"
    assert verdict(facts, "lease") == "ok"


def scaled(mode: str = "Auto", source: dict[str, Any] | None = None, **conditions: tuple[str, str]) -> dict[str, Any]:
    """ScalingPolicy team-a/chat with these conditions."""
    written = [
        {"type": kind, "status": status, "reason": reason, "message": "why"}
        for kind, (status, reason) in ({"Accepted": ("True", "Valid")} | conditions).items()
    ]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    sources = [source or {"prometheus": {"preset": "vllm"}}]
    return {
        "metadata": {"namespace": "team-a", "name": "chat"},
        "spec": {"target": target, "mode": mode, "demand": {"sources": sources}},
        "status": {"conditions": written},
    }


def scaling(*policies: dict[str, Any], **facts: Any) -> InstallationFacts:
    known = {"policies": policies, "has_prometheus": True, "account": "it", **facts}
    return replace(WELL, scaling=ScalingFacts(**known))


PATCH = Permission("patch", "apps", "deployments/scale", "team-a")


@pytest.mark.parametrize(
    ("facts", "expected", "said", "helps"),
    [
        (scaling(scaled(MetricsAvailable=("True", "Fresh"))), "ok", "1 ScalingPolicies are measured", ""),
        (scaling(), "ok", "no ScalingPolicy", ""),
        (scaling(scaled(mode="Off"), is_enabled=False), "ok", "no ScalingPolicy", ""),
        (scaling(scaled(), is_enabled=False), "failure", "disable the autoscaler", "settings.autoscaler.enabled"),
        (scaling(scaled(), has_prometheus=False), "failure", "no Prometheus to ask", "autoscaler.prometheus.url"),
        (scaling(scaled(source={"push": {}}), has_prometheus=False), "ok", "are measured", ""),
        (
            scaling(scaled(MetricsAvailable=("False", "PrometheusUnreachable"))),
            "failure",
            "team-a/chat: PrometheusUnreachable: why",
            "NetworkPolicies",
        ),
        (scaling(scaled(MetricsAvailable=("False", "QueryEmpty"))), "warning", "QueryEmpty", "are the pods scraped"),
        (scaling(scaled(MetricsAvailable=("False", "Later"))), "warning", "Later: why", "tonnage scaling explain"),
        (scaling(scaled(ConcurrencyTuned=("False", "NotFollowed"))), "warning", "NotFollowed", "concurrency.limit"),
        (scaling(scaled(ConcurrencyTuned=("False", "Breach"))), "ok", "are measured", ""),
        (scaling(scaled(Conflict=("True", "AnotherAutoscaler"))), "warning", "team-a/chat: why", "keep one"),
        (scaling({**scaled(), "status": {}}), "warning", "no status was reported", "does a replica lead?"),
        (
            scaling(scaled(), allowed={("team-a/chat", PATCH): False}),
            "failure",
            "it may not patch deployments.apps/scale in team-a, which team-a/chat needs",
            "autoscaler.targets",
        ),
        (scaling(scaled(), unknown_targets={"team-a/chat": "Web in a.b/v1"}), "warning", "no Web in", "spec.target"),
    ],
)  # fmt: skip
def test_policies_that_cannot_be_evaluated_are_named_with_what_helps(
    facts: InstallationFacts, expected: str, said: str, helps: str
) -> None:
    (finding,) = found(facts, "scaling")

    assert finding.verdict == expected
    assert said in finding.words
    assert helps in finding.remedy
    assert bool(finding.remedy) == (expected != "ok")


def test_policies_with_one_cause_are_one_finding() -> None:
    names = ("a", "b", "c", "d", "e")
    unreachable = scaled(MetricsAvailable=("False", "PrometheusUnreachable"))
    facts = scaling(*({**unreachable, "metadata": {"namespace": "t", "name": name}} for name in names))

    (finding,) = found(facts, "scaling")

    assert finding.words.startswith("t/a, t/b, t/c and 2 more: PrometheusUnreachable")


def test_a_prometheus_that_is_missing_is_told_once_also_where_the_operator_has_stated_it() -> None:
    stated = scaled(MetricsAvailable=("False", "NoPrometheus"))

    (finding,) = found(scaling(stated, has_prometheus=False), "scaling")

    assert finding.words == "team-a/chat: NoPrometheus: why"
