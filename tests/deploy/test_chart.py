"""What the chart installs, what it lets Tonnage do, and which values it refuses."""

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from cli.main import tonnage
from cluster.version import VERSION
from controller.api.foreign_kinds import FOREIGN_KINDS
from controller.api.kinds import OWN_KINDS
from controller.api.labels import MANAGED_LABEL
from controller.api.rbac import DEMAND, features, needed
from controller.loops.autoscaler.forecasting import MOST_SAVED
from controller.placers import MODES
from controller.settings import read_settings
from deploy.chart_files import DEPLOY
from tests.deploy.helm import CHART, NAMESPACE, HelmRefusedError, Values, lint_findings, rendered

pytestmark = pytest.mark.chart

WATCHED: Values = {
    "monitoring": {name: {"mode": "always"} for name in ("serviceMonitor", "prometheusRule", "dashboards")}
}
PLANNED = tuple(kind.plural for kind in OWN_KINDS if kind.is_planned_from)

READ = {
    (group, resource, verb)
    for group, resources in {
        "": ("namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "resourcequotas"),
        "storage.k8s.io": ("csinodes", "storageclasses"),
        "apps": ("deployments",),
        "policy": ("poddisruptionbudgets",),
        "kueue.x-k8s.io": ("admissionchecks", "resourceflavors", "workloads"),
        "tonnage.dev": PLANNED,
    }.items()
    for resource in resources
    for verb in ("list", "watch")
} | {(kind.group, kind.plural, verb) for kind in FOREIGN_KINDS for verb in ("list", "watch")}
REPORT = {
    *(("kueue.x-k8s.io", f"{resource}/status", "patch") for resource in ("admissionchecks", "workloads")),
    *(("tonnage.dev", f"{resource}/status", "patch") for resource in PLANNED),
    *(("events.k8s.io", "events", verb) for verb in ("create", "patch")),
}
GATE = {("", "pods", "patch")}
BIND = {("", "pods/binding", "create")}
DRA = {
    ("resource.k8s.io", resource, verb)
    for resource in ("deviceclasses", "resourceclaims", "resourceslices")
    for verb in ("list", "watch")
} | {
    ("resource.k8s.io", resource, "patch")
    for resource in ("resourceclaims", "resourceclaims/binding", "resourceclaims/status")
}
EVICT = {("", "pods/eviction", "create")}
SERVE = {("apps", "deployments", verb) for verb in ("create", "patch")}
SERVE_DRA = {("resource.k8s.io", "resourceclaimtemplates", verb) for verb in ("create", "patch")}
ROUTES = {
    (f"{group}.networking.k8s.io", resource, verb)
    for group, resource in (("gateway", "httproutes"), ("inference", "inferencepools"))
    for verb in ("create", "deletecollection", "patch")
}
LEAD = {("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")}


AUTOSCALE = {("autoscaling", "horizontalpodautoscalers", verb) for verb in ("list", "watch")} | {
    (group, f"{resource}/scale", verb)
    for group, resource in (
        ("apps", "deployments"),
        ("apps", "statefulsets"),
        ("leaderworkerset.x-k8s.io", "leaderworkersets"),
    )
    for verb in ("get", "patch")
}


def settings(*placers: str, preempt: bool = True, autoscales: bool = False) -> Values:
    pools = [{"placer": each, "selector": {"pool": each}} for each in placers]
    return {"pools": pools, "preempt": preempt, "autoscaler": {"enabled": autoscales}}


NOTHING_MORE: Values = {"evictions": False, "deployments": False, "settings": settings("gate", preempt=False)}

EVERY_SOURCE: Values = {
    "prometheus": {"url": "https://prometheus.monitoring:9091", "caSecret": "ca", "tokenSecret": "token"},
    "customMetrics": True,
    "configMaps": True,
    "push": {"enabled": True, "port": 9999, "tlsSecret": "push-tls"},
    "externalMetrics": {"enabled": True, "port": 9998},
}

Right = tuple[str, str, str]


def rights(values: Values, kind: str) -> set[Right]:
    """API group, resource and verb that roles of this kind grant, only where they are bound to the account."""
    objects = rendered(values)
    bound = {
        found["roleRef"]["name"]
        for (each, _), found in objects.items()
        if each == f"{kind}Binding" and found["subjects"] == [account()]
    }
    return {
        (group, resource, verb)
        for (each, name), role in objects.items()
        if each == kind and name in bound
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def account() -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": "tonnage", "namespace": NAMESPACE}


@pytest.mark.parametrize(
    ("values", "granted"),
    [
        ({}, READ | REPORT | GATE | EVICT | SERVE | AUTOSCALE),
        (NOTHING_MORE, READ | REPORT | GATE),
        ({**NOTHING_MORE, "settings": settings("bind", preempt=False)}, READ | REPORT | BIND),
        ({**NOTHING_MORE, "settings": settings("bind", "gate", preempt=False)}, READ | REPORT | GATE | BIND),
        ({**NOTHING_MORE, "settings": settings("dra", preempt=False)}, READ | REPORT | GATE | BIND | DRA),
        ({**NOTHING_MORE, "evictions": True}, READ | REPORT | GATE | EVICT),
        (
            {**NOTHING_MORE, "deployments": True, "settings": settings("dra", preempt=False)},
            READ | REPORT | GATE | BIND | DRA | SERVE | SERVE_DRA,
        ),
        ({**NOTHING_MORE, "deployments": True}, READ | REPORT | GATE | SERVE),
        ({**NOTHING_MORE, "routes": True}, READ | REPORT | GATE | ROUTES),
    ],
    ids=["default", "least", "bind", "both", "dra", "evictions", "dra-deployments", "deployments", "routes"],
)
def test_the_account_may_do_in_the_cluster_what_was_asked_for_and_nothing_more(
    values: Values, granted: set[Right]
) -> None:
    assert rights(values, "ClusterRole") == granted


def test_where_watts_are_leased_it_may_see_power_domains_and_write_their_status() -> None:
    more = rights({"agent": {"enabled": True}}, "ClusterRole") - rights({}, "ClusterRole")

    assert more == {
        ("tonnage.dev", "powerdomains", "list"),
        ("tonnage.dev", "powerdomains", "watch"),
        ("tonnage.dev", "powerdomains/status", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
    }
    wanted = needed(frozenset({"gate"}), (NAMESPACE, "tonnage"), ("power",))
    asked = {(each.group, each.resource, each.verb) for feature, each in wanted if feature == "power"}
    assert asked == more


def test_where_health_is_analysed_it_may_taint_nodes_and_write_incidents() -> None:
    watts = rights({"agent": {"enabled": True}}, "ClusterRole")
    more = rights({"agent": {"enabled": True, "health": {"enabled": True}}}, "ClusterRole") - watts

    wanted = needed(frozenset({"gate"}), (NAMESPACE, "tonnage"), ("power", "health"))
    assert {(each.group, each.resource, each.verb) for feature, each in wanted if feature == "health"} == more
    assert {("", "nodes", "patch"), ("tonnage.dev", "faultincidents", "create")} <= more


def test_where_tool_calls_are_isolated_it_may_see_sandbox_policies_and_write_their_status(tmp_path: Path) -> None:
    leasing = {"agent": {"enabled": True}}
    isolating = {"agent": {"enabled": True, "sandboxes": {"enabled": True}}}
    more = rights(isolating, "ClusterRole") - rights(leasing, "ClusterRole")

    assert more == {
        ("tonnage.dev", "sandboxpolicies", "list"),
        ("tonnage.dev", "sandboxpolicies", "watch"),
        ("tonnage.dev", "sandboxpolicies/status", "patch"),
    }
    wanted = needed(frozenset({"gate"}), (NAMESPACE, "tonnage"), ("power", "isolation"))
    asked = {(each.group, each.resource, each.verb) for feature, each in wanted if feature == "isolation"}
    assert asked == more
    file = tmp_path / "settings.yaml"
    file.write_text(rendered(isolating)["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"], encoding="utf-8")
    assert read_settings(file).isolation.enabled


def test_targets_of_scaling_policies_are_those_of_the_values() -> None:
    targets = [{"group": "serving.example.com", "resources": ["models"]}]
    granted = rights({"autoscaler": {"targets": targets}}, "ClusterRole") - rights({}, "ClusterRole")

    assert granted == {("serving.example.com", "models/scale", verb) for verb in ("get", "patch")}


def test_without_targets_only_services_are_scaled() -> None:
    granted = rights({"autoscaler": {"targets": []}}, "ClusterRole")

    assert not {resource for _, resource, _ in granted if resource.endswith("/scale")}


def test_every_role_is_granted_by_some_values() -> None:
    everything: Values = {
        "agent": {"enabled": True, "health": {"enabled": True}, "sandboxes": {"enabled": True}},
        "settings": settings("gate", "bind", "dra", autoscales=True),
        "autoscaler": EVERY_SOURCE,
        "routes": True,
    }

    bound = {
        found["roleRef"]["name"].removeprefix("tonnage-")
        for (kind, _), found in rendered(everything).items()
        if kind == "ClusterRoleBinding" and found["subjects"] == [account()]
    }

    assert bound == features().keys()


def test_sources_and_endpoints_of_demand_have_the_rights_that_they_need() -> None:
    more = rights({"autoscaler": EVERY_SOURCE}, "ClusterRole") - rights({}, "ClusterRole")

    assert more == {
        ("custom.metrics.k8s.io", "*", "get"),
        ("", "configmaps", "create"),
        ("", "configmaps", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    wanted = needed(frozenset({"gate"}), (NAMESPACE, "tonnage"), tuple(DEMAND))
    assert {(each.group, each.resource, each.verb) for feature, each in wanted if feature in DEMAND} == more


def test_the_operator_is_told_where_demand_comes_from(tmp_path: Path) -> None:
    objects = rendered({"autoscaler": EVERY_SOURCE})
    file = tmp_path / "settings.yaml"
    file.write_text(objects["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"], encoding="utf-8")
    autoscaler = read_settings(file).autoscaler
    pod = objects["Deployment", "tonnage"]["spec"]["template"]["spec"]
    mounted = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}

    assert autoscaler.prometheus.url == "https://prometheus.monitoring:9091"
    assert autoscaler.config_maps
    assert (autoscaler.custom_metrics, autoscaler.push.port, autoscaler.external_metrics.port) == (True, 9999, 9998)
    assert autoscaler.push.tls is not None
    files = [autoscaler.prometheus.ca_file, autoscaler.prometheus.token_file, autoscaler.push.tls.certificate]
    files += [autoscaler.external_metrics.tls.certificate]
    assert all(str(Path(each).parent) in mounted for each in files)
    egress = objects["NetworkPolicy", "tonnage"]["spec"]["egress"]
    assert [{"port": 9091, "protocol": "TCP"}] in [each["ports"] for each in egress]


def test_the_api_server_trusts_the_certificate_of_the_external_metrics() -> None:
    objects = rendered({"autoscaler": EVERY_SOURCE})
    service = objects["Service", "tonnage-external-metrics"]
    registered = objects["APIService", "v1beta1.external.metrics.k8s.io"]["spec"]

    assert registered["service"] == {"name": service["metadata"]["name"], "namespace": NAMESPACE, "port": 443}
    assert registered["caBundle"] == objects["Secret", "tonnage-external-metrics"]["data"]["ca.crt"]


def test_a_certificate_of_ones_own_needs_its_authority() -> None:
    own = {"enabled": True, "tlsSecret": "mine"}

    with pytest.raises(HelmRefusedError, match="caBundle"):
        rendered({"autoscaler": {"externalMetrics": own}})
    objects = rendered({"autoscaler": {"externalMetrics": {**own, "caBundle": "UEVN"}}})
    assert objects["APIService", "v1beta1.external.metrics.k8s.io"]["spec"]["caBundle"] == "UEVN"
    assert ("Secret", "tonnage-external-metrics") not in objects


@pytest.mark.parametrize("endpoint", ["push", "external_metrics"])
def test_an_endpoint_is_enabled_by_the_values_and_not_by_the_settings_alone(endpoint: str) -> None:
    with pytest.raises(HelmRefusedError, match="autoscaler"):
        rendered({"settings": {"autoscaler": {endpoint: {"enabled": True}}}})


@pytest.mark.parametrize("own", ["", "mine"])
def test_where_watts_are_leased_the_operator_has_their_port_and_a_certificate(own: str, tmp_path: Path) -> None:
    tls = {"secret": own, "caConfigMap": own}
    values: Values = {"agent": {"enabled": True, "port": 9999, "tls": tls}}
    objects, pod = rendered(values), deployment(values)["spec"]["template"]["spec"]
    file = tmp_path / "settings.yaml"
    file.write_text(objects["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"], encoding="utf-8")
    power = read_settings(file).power

    assert (power.enabled, power.port) == (True, 9999)
    assert power.agents == f"system:serviceaccount:{NAMESPACE}:tonnage-agent"
    assert {"name": "power", "containerPort": 9999} in pod["containers"][0]["ports"]
    mounted = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    for path in (power.tls.certificate, power.tls.key):
        assert secrets[mounted[str(Path(path).parent)]].strip() == (own or "tonnage-power-tls")


@pytest.mark.parametrize("placers", [("gate",), ("bind",), ("gate", "bind"), ("dra",)])
def test_the_doctor_asks_for_every_right_that_is_granted_and_for_no_other(placers: tuple[str, ...]) -> None:
    values: Values = {"settings": settings(*placers, autoscales=True), "autoscaler": {"targets": []}}

    asked = {(each.group, each.resource, each.verb) for _, each in needed(frozenset(placers), (NAMESPACE, "tonnage"))}

    assert asked == rights(values, "ClusterRole") | rights(values, "Role")


def test_the_lease_and_saved_fits_are_its_own_in_its_namespace_alone() -> None:
    fits = {("", "configmaps", verb) for verb in ("get", "create", "patch")}
    assert rights({}, "Role") == LEAD | fits
    assert rights({"settings": settings("gate", autoscales=False)}, "Role") == LEAD
    rules = [rule for rule in rendered({})["Role", "tonnage-lead"]["rules"] if rule["resources"] == ["configmaps"]]
    assert [rule["verbs"] for rule in rules if "resourceNames" not in rule] == [["create"]]
    assert {name for rule in rules for name in rule.get("resourceNames", [])} == {
        f"tonnage-load-fits-{number}" for number in range(MOST_SAVED)
    }


@pytest.mark.parametrize("values", [{}, {"settings": settings("gate", "bind", "dra")}], ids=["default", "everything"])
def test_no_right_is_a_wildcard_and_none_reaches_secrets_or_nodes(values: Values) -> None:
    everything = rights(values, "ClusterRole") | rights(values, "Role")

    assert not any("*" in right for right in everything)
    assert not any(resource.startswith(("secrets", "serviceaccounts")) for _, resource, _ in everything)
    assert not any(resource.startswith("configmaps") for _, resource, _ in rights(values, "ClusterRole"))
    assert {verb for _, resource, verb in everything if resource == "nodes"} == {"list", "watch"}


def test_without_rbac_no_right_is_granted() -> None:
    kinds = {kind for kind, _ in rendered({"rbac": {"create": False}})}

    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def test_the_fence_is_of_the_releases_own_account_and_lease() -> None:
    values: Values = {"fullnameOverride": "placer", "serviceAccount": {"name": "writer"}}
    objects = rendered(values)

    policy = objects["ValidatingAdmissionPolicy", "placer-fence"]["spec"]
    binding = objects["ValidatingAdmissionPolicyBinding", "placer-fence"]["spec"]
    (condition,) = policy["matchConditions"]
    assert condition["expression"] == f'request.userInfo.username == "system:serviceaccount:{NAMESPACE}:writer"'
    assert (binding["policyName"], binding["paramRef"]["name"], binding["paramRef"]["namespace"]) == (
        "placer-fence", "placer", NAMESPACE
    )  # fmt: skip
    fenced = {(group, resource) for rule in policy["matchConstraints"]["resourceRules"]
              for group in rule["apiGroups"] for resource in rule["resources"]}  # fmt: skip
    every_placer: Values = {"settings": {"pools": [{"placer": name, "selector": {"pool": name}} for name in MODES]}}
    for values in ({}, every_placer):
        written = {(g, r) for g, r, verb in rights(values, "ClusterRole") if verb in ("create", "patch")}
        # What is said of our own kinds, and to Kueue's queues, is said again. The last is no resource: only a right
        # beside that of the status.
        own = {(g, r) for g, r in written if g in ("tonnage.dev", "kueue.x-k8s.io") and r.endswith("/status")}
        # The policy covers scale subresources of all resources.
        scales = {each for each in written if each[1].endswith("/scale")}
        assert {("*", "*/scale")} <= fenced
        assert written - own - scales - {("resource.k8s.io", "resourceclaims/binding")} <= fenced


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("marks", "!="),
        *((f"own-{what}", "==") for what in ("pods", "writes", "instances", "namespaces", "deployments")),
    ],
)
def test_the_policies_on_pods_are_of_the_releases_own_account(name: str, operator: str) -> None:
    objects = rendered({"fullnameOverride": "placer", "serviceAccount": {"name": "writer"}})

    policy = objects["ValidatingAdmissionPolicy", f"placer-{name}"]["spec"]
    binding = objects["ValidatingAdmissionPolicyBinding", f"placer-{name}"]["spec"]
    whom = policy["matchConditions"][0]["expression"]
    assert whom == f'request.userInfo.username {operator} "system:serviceaccount:{NAMESPACE}:writer"'
    assert binding.pop("matchResources", None) is None or name in ("own-instances", "own-namespaces")
    # A parameter that is missing would refuse the writes of everybody, before the conditions on the account are read.
    assert "paramRef" not in binding
    assert binding == {"policyName": f"placer-{name}", "validationActions": ["Deny"]}


def test_it_works_in_labelled_namespaces_alone_or_by_one_value_in_all() -> None:
    policy = "ValidatingAdmissionPolicyBinding", "tonnage-own-namespaces"

    def settings_of(objects: Any) -> Any:
        return yaml.safe_load(objects["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"])["managed_namespaces"]

    labelled, everywhere = rendered(), rendered({"managedNamespaces": "all"})

    selector = labelled[policy]["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert selector == [{"key": MANAGED_LABEL, "operator": "NotIn", "values": ["true"]}]
    assert policy not in everywhere
    assert (settings_of(labelled), settings_of(everywhere)) == ("labelled", "all")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_operator_awaits_the_fence_where_there_is_one(enabled: bool) -> None:
    objects = rendered({"fence": {"enabled": enabled}})

    assert yaml.safe_load(objects["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"])["fenced"] is enabled
    policies = {name for kind, name in objects if kind == "ValidatingAdmissionPolicy"}
    assert policies == (
        {f"tonnage-{name}" for name in ("fence", "marks")}
        | {f"tonnage-own-{name}" for name in ("deployments", "instances", "namespaces", "pods", "writes")}
        if enabled
        else set()
    )


def deployment(values: Values | None = None) -> dict[str, Any]:
    found: dict[str, Any] = rendered(values)["Deployment", "tonnage"]
    return found


def test_the_pod_passes_the_restricted_pod_security_standard() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(set(volume) <= {"name", "configMap", "emptyDir"} for volume in pod["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


def test_a_disruption_never_takes_all_replicas() -> None:
    objects = rendered()
    budget = objects["PodDisruptionBudget", "tonnage"]["spec"]

    assert objects["Deployment", "tonnage"]["spec"]["replicas"] == 2
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == objects["Deployment", "tonnage"]["spec"]["selector"]


def test_a_single_replica_has_no_budget_that_would_block_every_drain() -> None:
    assert ("PodDisruptionBudget", "tonnage") not in rendered({"replicas": 1})


def test_replicas_spread_over_nodes_and_zones() -> None:
    spread = deployment()["spec"]["template"]["spec"]["topologySpreadConstraints"]

    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


def test_a_spread_of_ones_own_replaces_the_charts_and_counts_the_controllers_pods() -> None:
    own = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    selected = {**own, "labelSelector": {"matchLabels": {"a": "b"}}}
    spec = deployment({"topologySpreadConstraints": [own, selected]})["spec"]

    assert spec["template"]["spec"]["topologySpreadConstraints"] == [
        {**own, "labelSelector": spec["selector"]},
        selected,
    ]


def test_volumes_of_ones_own_are_added_to_those_of_the_chart() -> None:
    volume, mount = {"name": "ca", "configMap": {"name": "ca"}}, {"name": "ca", "mountPath": "/ca", "readOnly": True}
    before = deployment()["spec"]["template"]["spec"]
    after = deployment({"extraVolumes": [volume], "extraVolumeMounts": [mount]})["spec"]["template"]["spec"]

    assert after["volumes"] == [*before["volumes"], volume]
    assert after["containers"][0]["volumeMounts"] == [*before["containers"][0]["volumeMounts"], mount]


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"ray": {"mode": "none"}}, "1Gi"),
        ({}, "2Gi"),
        ({"resources": {"limits": {"memory": "3Gi"}}}, "3Gi"),
    ],
    ids=["no-ray", "embedded", "own"],
)
def test_the_memory_of_the_controller_follows_where_ray_runs(values: Values, limit: str) -> None:
    assert deployment(values)["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] == limit


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_the_log_level_is_a_setting_that_the_operator_reads(level: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    values = {"settings": {"log_level": level}}
    file.write_text(rendered(values)["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"], encoding="utf-8")

    assert read_settings(file).log_level == level


def test_selectors_find_the_pods_that_are_made() -> None:
    objects = rendered(WATCHED)
    labels = objects["Deployment", "tonnage"]["spec"]["template"]["metadata"]["labels"].items()

    assert objects["Service", "tonnage-metrics"]["spec"]["selector"].items() <= labels
    assert objects["NetworkPolicy", "tonnage"]["spec"]["podSelector"]["matchLabels"].items() <= labels
    service = objects["Service", "tonnage-metrics"]["metadata"]["labels"].items()
    assert objects["ServiceMonitor", "tonnage"]["spec"]["selector"]["matchLabels"].items() <= service


def test_metrics_are_for_the_releases_own_namespace_and_those_that_are_labelled() -> None:
    """They name every service with its cost and demand, to any tenant who may run a pod."""
    (rule,) = (
        each for each in rendered()["NetworkPolicy", "tonnage"]["spec"]["ingress"] if each["ports"][0]["port"] == 8080
    )

    assert rule["from"] == [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"metrics": "enabled"}}}]


def test_probes_and_services_name_ports_that_the_container_has() -> None:
    objects = rendered({"ports": {"metrics": 9100, "health": 9101}})
    (container,) = objects["Deployment", "tonnage"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    assert ports == {"metrics": 9100, "health": 9101}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    assert objects["NetworkPolicy", "tonnage"]["spec"]["ingress"][0]["ports"][0]["port"] == 9100


def test_changed_settings_start_new_pods() -> None:
    def checksum(values: Values) -> str:
        annotations = deployment(values)["spec"]["template"]["metadata"]["annotations"]
        found: str = annotations["checksum/settings"]
        return found

    assert checksum({"settings": {"interval_s": 5}}) != checksum({})


def test_the_operator_reads_what_the_chart_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TONNAGE_")]:
        monkeypatch.delenv(name)
    values = {
        "settings": {**settings("bind", "gate"), "gang_deadline_s": 60.0},
        "ports": {"metrics": 9100, "health": 9101},
    }
    file = tmp_path / "settings.yaml"
    file.write_text(rendered(values)["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"], encoding="utf-8")

    read = read_settings(file)

    assert [(pool.placer, pool.selector) for pool in read.pools] == [
        ("bind", {"pool": "bind"}),
        ("gate", {"pool": "gate"}),
    ]
    assert (read.gang_deadline_s, read.metrics_port, read.probe_port) == (60.0, 9100, 9101)
    assert (read.lease.namespace, read.lease.name) == (NAMESPACE, "tonnage")


def test_the_container_runs_a_command_that_there_is() -> None:
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    verb, *arguments = container["args"]
    group = tonnage.get_command(click.Context(tonnage), verb)
    assert isinstance(group, click.Group)
    name, command, rest = group.resolve_command(click.Context(group), arguments)

    assert command is not None
    assert command.make_context(name, rest).params["config"] == Path("/etc/tonnage/settings.yaml")


def test_the_lease_that_the_operator_holds_is_the_one_that_it_may_write() -> None:
    objects = rendered({"fullnameOverride": "other"})
    held = yaml.safe_load(objects["ConfigMap", "other-settings"]["data"]["settings.yaml"])["lease"]
    named = [rule["resourceNames"] for rule in objects["Role", "other-lead"]["rules"] if "resourceNames" in rule]

    assert named == [[held["name"]], [f"{held['name']}-load-fits-{number}" for number in range(MOST_SAVED)]]
    assert objects["Role", "other-lead"]["metadata"]["namespace"] == held["namespace"]


def test_services_of_the_cluster_cannot_be_read_as_settings() -> None:
    """Kubernetes sets TONNAGE_METRICS_PORT=tcp://... for a service called tonnage-metrics, if one lets it."""
    assert deployment()["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_preemption_without_the_right_to_evict_is_refused() -> None:
    with pytest.raises(HelmRefusedError, match="preempt"):
        rendered({"evictions": False})


@pytest.mark.parametrize(
    ("image", "runs"),
    [
        ({}, "tonnage:0.1.0"),
        ({"tag": "0.1.1"}, "tonnage:0.1.1"),
        ({"tag": "0.1.1", "digest": f"sha256:{'a' * 64}"}, f"tonnage@sha256:{'a' * 64}"),
    ],
)
def test_a_digest_is_what_runs_whatever_the_tag(image: Values, runs: str) -> None:
    (container,) = deployment({"image": image})["spec"]["template"]["spec"]["containers"]

    assert container["image"] == runs


def test_what_needs_the_prometheus_operator_is_left_out_where_it_is_not() -> None:
    assert not {kind for kind, _ in rendered()} & {"ServiceMonitor", "PrometheusRule"}
    assert ("ConfigMap", "tonnage-dashboards") not in rendered()


def test_rules_and_dashboards_reach_the_cluster_unchanged() -> None:
    objects = rendered(WATCHED)
    rules = yaml.safe_load((DEPLOY / "alerts" / "tonnage.rules.yaml").read_text(encoding="utf-8"))
    boards = objects["ConfigMap", "tonnage-dashboards"]

    assert objects["PrometheusRule", "tonnage"]["spec"] == rules
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    for path in (DEPLOY / "dashboards").glob("*.json"):
        assert json.loads(boards["data"][f"tonnage-{path.name}"]) == json.loads(path.read_text(encoding="utf-8"))


def test_a_runbook_is_named_at_the_address_where_people_read_it() -> None:
    page = "https://runbooks.example.com/tonnage"
    given = {"monitoring": {"prometheusRule": {"mode": "always", "runbookUrl": page}}}

    groups = rendered(given)["PrometheusRule", "tonnage"]["spec"]["groups"]

    alerts = [rule for group in groups for rule in group["rules"]]
    assert all(rule["annotations"]["runbook_url"] == f"{page}#{rule['alert'].lower()}" for rule in alerts)


def test_the_kinds_are_installed_and_kept_when_the_release_goes() -> None:
    found = {name: each for (kind, name), each in rendered().items() if kind == "CustomResourceDefinition"}

    for path in (DEPLOY / "crds").glob("*.yaml"):
        crd = yaml.safe_load(path.read_text(encoding="utf-8"))
        installed = found.pop(crd["metadata"]["name"])
        assert installed["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert installed == crd
    assert not found


def test_the_kinds_can_be_left_out() -> None:
    assert "CustomResourceDefinition" not in {kind for kind, _ in rendered({"crds": {"enabled": False}})}


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"settings": {"pools": [{"placer": "luck"}]}}, "placer"),
        ({"settings": {"pools": []}}, "pools"),
        ({"settings": {"gang_deadline_s": -1}}, "gang_deadline_s"),
        ({"settings": {"probe_port": 1}}, "probe_port"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
        ({"monitoring": {"serviceMonitor": {"mode": "yes"}}}, "mode"),
        ({"ports": {"metrics": 0}}, "metrics"),
        ({"podLabels": {"tier": 3}}, "tier"),
        ({"crds": {"keeep": False}}, "keeep"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(values: Values, place: str) -> None:
    with pytest.raises(HelmRefusedError, match=place):
        rendered(values)


def test_two_releases_do_not_share_names() -> None:
    objects = rendered({"fullnameOverride": "other"})

    own = {name for kind, name in objects if kind != "CustomResourceDefinition"}
    assert all(name.startswith("other") for name in own)


def test_helm_lint_finds_nothing() -> None:
    assert lint_findings() == []


def test_the_chart_has_the_version_of_the_program() -> None:

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
