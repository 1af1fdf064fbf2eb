"""Node agent in the chart: its rights on a node, its connections, and that it accepts the settings it is given."""

import json
import socket
import ssl
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from controller.loops.server_tls import ServerTls
from nodeagent.__main__ import main
from nodeagent.settings import AgentSettings, ControllerAddress, ProbeSettings, read_settings
from power.leases.messages import AUDIENCE
from tests.deploy.helm import CHART, NAMESPACE, HelmRefusedError, Values, rendered

pytestmark = pytest.mark.chart

Objects = dict[tuple[str, str], dict[str, Any]]
NODES: Values = {"nodeSelector": {"pool": "gpus"}}
REDFISH: Values = {"backend": "redfish", "redfish": {"host": "{node}.bmc", "loginSecret": "bmc"}, **NODES}
BACKENDS: dict[str, Values] = {
    "nvml": {},
    "amdsmi": {"backend": "amdsmi", **NODES},
    "redfish": REDFISH,
    "pretend": {"backend": "pretend", **NODES},
    "none": {"backend": "none", **NODES},
}


def with_agent(agent: Values | None = None, **values: Any) -> Objects:
    return rendered({"agent": {"enabled": True, **(agent or {})}, **values})


def pod(objects: Objects, release: str = "tonnage") -> dict[str, Any]:
    found: dict[str, Any] = objects["DaemonSet", f"{release}-agent"]["spec"]["template"]["spec"]
    return found


def container(objects: Objects) -> dict[str, Any]:
    (found,) = pod(objects)["containers"]
    return dict(found)


def read(objects: Objects, folder: Path) -> AgentSettings:
    file = folder / "agent.yaml"
    file.write_text(objects["ConfigMap", "tonnage-agent"]["data"]["agent.yaml"], encoding="utf-8")
    return read_settings(file, "n1")


def test_nothing_of_it_is_installed_unless_it_is_asked_for() -> None:
    names = {name for _, name in rendered()}

    assert not [name for name in names if "agent" in name or "power-tls" in name or name.endswith("-power")]


@pytest.mark.parametrize(
    ("backend", "rights"),
    [
        ("nvml", {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}),
        ("amdsmi", {"privileged": True}),
        ("redfish", {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}),
        ("pretend", {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}),
        ("none", {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}),
    ],
)
def test_it_has_the_rights_that_its_back_end_needs_and_no_others(backend: str, rights: dict[str, Any]) -> None:
    assert container(with_agent(BACKENDS[backend]))["securityContext"] == {"readOnlyRootFilesystem": True, **rights}


def test_health_lets_it_see_the_hosts_processes_and_counters_and_only_the_kernels_log_needs_all_rights(
    tmp_path: Path,
) -> None:
    plain, logs = (with_agent({"health": {"enabled": True, "kernelLog": kernel_log}}) for kernel_log in (False, True))
    mounts = {mount["name"]: mount for mount in container(plain)["volumeMounts"]}

    assert pod(plain)["hostPID"] is True
    assert [name for name, mount in mounts.items() if not mount.get("readOnly")] == ["record", "pods"]
    assert "privileged" not in container(plain)["securityContext"]
    assert read(plain, tmp_path).health.enabled
    assert container(logs)["securityContext"]["privileged"] is True
    assert read(logs, tmp_path).health.kernel_log == Path("/dev/kmsg")


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_of_the_cluster_or_the_host_but_its_record_is_within_its_reach(backend: str) -> None:
    objects = with_agent(BACKENDS[backend])
    spec = pod(objects)
    mounts = {mount["name"]: mount for mount in container(objects)["volumeMounts"]}

    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "tonnage-agent"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    paths = [volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume]
    assert paths == [{"path": "/var/lib/tonnage", "type": "DirectoryOrCreate"}]
    assert [name for name, mount in mounts.items() if not mount.get("readOnly")] == ["record"]
    assert not {(kind, name) for kind, name in objects if kind.endswith(("Role", "Binding")) and "agent" in name}


@pytest.mark.parametrize(
    ("backend", "rights"),
    [
        ("nvml", ["SYS_ADMIN", "SYS_PTRACE", "SYS_RESOURCE"]),
        ("none", ["SYS_ADMIN", "SYS_PTRACE", "SYS_RESOURCE"]),
    ],
)
def test_isolation_has_the_host_s_cgroups_and_pids_where_it_is_asked_for(
    backend: str, rights: list[str], tmp_path: Path
) -> None:
    objects = with_agent({**BACKENDS[backend], "sandboxes": {"enabled": True, "memoryShare": 0.5}})
    mounts = {mount["mountPath"]: mount for mount in container(objects)["volumeMounts"]}
    settings = read(objects, tmp_path).sandboxes

    assert pod(objects)["hostPID"] is True
    assert container(objects)["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": rights}
    assert settings is not None
    assert settings.memory_share == 0.5
    assert mounts[str(settings.cgroups)]["name"] == "cgroup"
    assert mounts[str(settings.sockets)]["name"] == "sandboxes"
    assert str(settings.record.parent) in mounts
    assert read(with_agent(BACKENDS[backend]), tmp_path).sandboxes is None


def test_its_capability_counts_with_the_driver() -> None:
    """In a user namespace it would not; and NVIDIA's runtime brings NVML and every device, and no more."""
    objects = with_agent()
    environment = {each["name"]: each.get("value") for each in container(objects)["env"]}

    assert pod(objects)["hostUsers"] is True
    assert pod(objects)["securityContext"]["runAsUser"] == 0
    assert pod(objects)["runtimeClassName"] == "nvidia"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


def test_it_runs_on_every_gpu_node_whatever_its_taints() -> None:
    spec = pod(with_agent())

    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["priorityClassName"] == "system-node-critical"


def test_nodes_of_ones_own_replace_the_label_of_the_gpu_operator() -> None:
    assert pod(with_agent(NODES))["nodeSelector"] == {"pool": "gpus"}


def test_it_runs_a_command_that_there_is() -> None:
    (program,), (verb, *arguments) = (container(with_agent())[name] for name in ("command", "args"))
    scripts = (CHART.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    command = main.get_command(click.Context(main), verb)

    assert f'{program} = "tonnage.__main__:agent"' in scripts
    assert command is not None
    assert command.make_context(verb, arguments).params["config"] == Path("/etc/tonnage/agent.yaml")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_agent_reads_what_the_chart_writes(backend: str, tmp_path: Path) -> None:
    told = {"period": 0.8, "floorShare": 0.4, "onStop": "restore", "asDcgm": True, "port": 9500, "metricsPort": 9501}
    objects = with_agent({**BACKENDS[backend], **told})
    settings = read(objects, tmp_path)
    mounts = {mount["mountPath"]: mount["name"] for mount in container(objects)["volumeMounts"]}

    assert (settings.backend, settings.period, settings.floor_share) == (backend, 0.8, 0.4)
    assert (settings.on_stop, settings.as_dcgm, settings.metrics_port) == ("restore", True, 9501)
    assert (settings.controller.host, settings.controller.port) == (f"tonnage-power.{NAMESPACE}.svc", 9500)
    assert {mounts[str(path.parent)] for path in (settings.controller.ca, settings.controller.token)} == {"power"}
    assert mounts[str(settings.record.parent)] == "record"


def test_defaults_of_the_chart_are_those_of_the_agent(tmp_path: Path) -> None:
    ours, plain = read(with_agent(), tmp_path), AgentSettings(node="n1")

    same = ("backend", "meter", "period", "floor_share", "on_stop", "as_dcgm", "metrics_port", "record", "manages")
    assert {name: getattr(ours, name) for name in same} == {name: getattr(plain, name) for name in same}
    assert ours.controller.port == plain.controller.port
    about = read(with_agent(REDFISH), tmp_path).redfish
    assert about is not None
    assert (about.look_s, about.rest_s, about.settles_s, about.port) == (5.0, 10.0, 40.0, 443)
    probing = {"health": {"enabled": True, "probes": {"enabled": True}}}
    assert read(with_agent(probing), tmp_path).health.probes == ProbeSettings(enabled=True)


@pytest.mark.parametrize("uuids", [["GPU-1", "GPU-2"], []])
def test_devices_that_may_be_limited_are_named_and_an_empty_list_names_none(uuids: list[str], tmp_path: Path) -> None:
    assert read(with_agent({"manages": uuids}), tmp_path).manages == uuids


def test_a_bmc_is_reached_with_its_login_and_authority(tmp_path: Path) -> None:
    redfish = {**REDFISH["redfish"], "caSecret": "bmc-ca", "cidrs": ["10.7.0.0/16"]}
    objects = with_agent({**REDFISH, "redfish": redfish})
    about = read(objects, tmp_path).redfish
    mounts = {mount["mountPath"]: mount["name"] for mount in container(objects)["volumeMounts"]}
    secrets = {
        volume["name"]: volume["secret"]["secretName"] for volume in pod(objects)["volumes"] if "secret" in volume
    }
    egress = objects["NetworkPolicy", "tonnage-agent"]["spec"]["egress"]

    assert about is not None
    assert about.ca_file is not None
    assert about.host == "{node}.bmc"
    assert secrets[mounts[str(about.login)]] == "bmc"
    assert secrets[mounts[str(about.ca_file.parent)]] == "bmc-ca"
    assert {"ports": [{"port": 443, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "10.7.0.0/16"}}]} in egress


def test_the_meter_of_a_node_is_read_through_its_bmc_whatever_limits_its_devices(tmp_path: Path) -> None:
    redfish = {**REDFISH["redfish"], "chassis": "DGX"}
    objects = with_agent({"meter": True, "redfish": redfish})
    settings = read(objects, tmp_path)
    mounts = {mount["mountPath"] for mount in container(objects)["volumeMounts"]}

    assert (settings.backend, settings.meter) == ("nvml", True)
    assert settings.redfish is not None
    assert settings.redfish.chassis == "DGX"
    assert str(settings.redfish.login) in mounts
    assert {"ports": [{"port": 443, "protocol": "TCP"}]} in objects["NetworkPolicy", "tonnage-agent"]["spec"]["egress"]


def test_agents_find_every_replica_ready_or_not_and_the_leader_among_them() -> None:
    objects = with_agent()
    service = objects["Service", "tonnage-power"]["spec"]
    labels = objects["Deployment", "tonnage"]["spec"]["template"]["metadata"]["labels"]

    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"].items() <= labels.items()
    assert [port["port"] for port in service["ports"]] == [9464]


def test_agents_and_operator_may_speak_with_each_other_and_nobody_else_joins_in() -> None:
    objects = with_agent()
    agents, operator = (objects["NetworkPolicy", name]["spec"] for name in ("tonnage-agent", "tonnage"))
    labels = objects["DaemonSet", "tonnage-agent"]["spec"]["template"]["metadata"]["labels"]
    on_power = [{"port": 9464, "protocol": "TCP"}]
    (to_operator,) = [rule for rule in agents["egress"] if rule["ports"] == on_power]
    (from_agents,) = [rule for rule in operator["ingress"] if rule["ports"] == on_power]

    assert set(agents["policyTypes"]) == {"Ingress", "Egress"}
    assert agents["podSelector"]["matchLabels"].items() <= labels.items()
    assert to_operator["to"] == [{"podSelector": operator["podSelector"]}]
    assert from_agents["from"] == [{"podSelector": agents["podSelector"]}]
    assert [rule["ports"] for rule in agents["ingress"]] == [[{"port": 9465, "protocol": "TCP"}]]
    assert {port["port"] for rule in agents["egress"] for port in rule["ports"]} == {9464, 53}


def test_agents_that_probe_each_other_may_connect_to_each_other_and_only_then(tmp_path: Path) -> None:
    probing = {"enabled": True, "probes": {"enabled": True, "port": 9500, "interface": "net1"}}
    plain, objects = with_agent({"health": {"enabled": True}}), with_agent({"health": probing})
    policy = objects["NetworkPolicy", "tonnage-agent"]["spec"]
    rule = {"ports": [{"port": 9500, "protocol": "TCP"}]}
    peers = [{"podSelector": policy["podSelector"]}]

    assert {**rule, "from": peers} in policy["ingress"]
    assert {**rule, "to": peers} in policy["egress"]
    assert {port["containerPort"] for port in container(objects)["ports"]} == {9465, 9500}
    about = read(objects, tmp_path).health.probes
    assert (about.enabled, about.port, about.interface) == (True, 9500, "net1")
    assert not read(plain, tmp_path).health.probes.enabled
    ports = [
        port["port"] for rule in plain["NetworkPolicy", "tonnage-agent"]["spec"]["ingress"] for port in rule["ports"]
    ]
    assert ports == [9465]


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://{address}:9401/metrics", 9401),
        ("http://exporter.gpu.svc:9400", 9400),
        ("http://exporter.gpu.svc/a:1/metrics", 80),
        ("http://[fd00::9400]:9402/metrics?kind=gpu", 9402),
    ],
)
def test_a_dcgm_exporter_that_is_named_may_be_reached_and_the_nodes_address_is_told_for_it(
    url: str, port: int, tmp_path: Path
) -> None:
    objects = with_agent({"health": {"enabled": True, "dcgmUrl": url}})
    plain = with_agent({"health": {"enabled": True}})
    rule = {"ports": [{"port": port, "protocol": "TCP"}]}
    told = {each["name"]: each for each in container(objects)["env"]}

    assert read(objects, tmp_path).health.dcgm_url == url
    assert rule in objects["NetworkPolicy", "tonnage-agent"]["spec"]["egress"]
    assert ("NODE_ADDRESS" in told) == ("{address}" in url)
    assert read(plain, tmp_path).health.dcgm_url is None
    assert rule not in plain["NetworkPolicy", "tonnage-agent"]["spec"]["egress"]


def test_nccls_ras_service_that_is_named_may_be_reached(tmp_path: Path) -> None:
    objects = with_agent({"health": {"enabled": True, "ras": "{address}:28028"}})
    plain = with_agent({"health": {"enabled": True}})
    rule = {"ports": [{"port": 28028, "protocol": "TCP"}]}

    assert read(objects, tmp_path).health.ras == "{address}:28028"
    assert rule in objects["NetworkPolicy", "tonnage-agent"]["spec"]["egress"]
    assert "NODE_ADDRESS" in {each["name"] for each in container(objects)["env"]}
    assert read(plain, tmp_path).health.ras is None
    assert rule not in plain["NetworkPolicy", "tonnage-agent"]["spec"]["egress"]


def identity(objects: Objects) -> list[dict[str, Any]]:
    """What tells agents and controller who the other is, as the agents' pods mount it."""
    (found,) = [volume["projected"] for volume in pod(objects)["volumes"] if volume["name"] == "power"]
    assert found["defaultMode"] == 0o400
    return list(found["sources"])


def test_an_agent_has_a_token_for_the_controller_alone_and_its_authority_but_no_key() -> None:
    objects = with_agent()
    token, authority = identity(objects)

    assert token["serviceAccountToken"] == {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
    assert authority["configMap"] == {"name": "tonnage-power-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert not [volume for volume in pod(objects)["volumes"] if "secret" in volume]
    assert objects["ServiceAccount", "tonnage-agent"]["automountServiceAccountToken"] is False
    bound = [objects[key] for key in objects if key[0] in ("RoleBinding", "ClusterRoleBinding")]
    assert "tonnage-agent" not in {each["name"] for binding in bound for each in binding["subjects"]}


def test_the_certificate_is_for_the_name_that_agents_call_and_believed_by_its_authority(tmp_path: Path) -> None:
    objects = with_agent()
    data = {name: b64decode(text) for name, text in objects["Secret", "tonnage-power-tls"]["data"].items()}
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(data[name])
    (tmp_path / "ca.crt").write_text(objects["ConfigMap", "tonnage-power-ca"]["data"]["ca.crt"], encoding="ascii")
    serves = ServerTls(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), lambda: 0.0, "power.tls").context
    trusts = ControllerAddress(ca=tmp_path / "ca.crt").context()
    trusts.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as other:
        serving = other.submit(serves.wrap_socket, ours, server_side=True)
        host = read(objects, tmp_path).controller.host
        with trusts.wrap_socket(theirs, server_hostname=host) as connected:
            shown = connected.version()
        serving.result(10).close()

    assert shown == "TLSv1.3"
    assert set(data) == {"tls.crt", "tls.key"}


def test_a_certificate_of_ones_own_is_used_and_none_is_made() -> None:
    objects = with_agent({"tls": {"secret": "mine", "caConfigMap": "bundle"}})

    assert identity(objects)[1]["configMap"]["name"] == "bundle"
    assert "Secret" not in {kind for kind, _ in objects}


def test_settings_that_change_start_new_agents_a_few_at_a_time() -> None:
    def checksum(agent: Values) -> str:
        found: str = with_agent(agent)["DaemonSet", "tonnage-agent"]["spec"]["template"]["metadata"]["annotations"][
            "checksum/settings"
        ]
        return found

    strategy = with_agent()["DaemonSet", "tonnage-agent"]["spec"]["updateStrategy"]
    assert checksum({"onStop": "restore"}) != checksum({})
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}


@pytest.mark.parametrize(("backend", "at_least_s"), [("nvml", 20 + 5), ("redfish", 150 + 5)])
def test_an_agent_that_is_stopped_has_the_time_to_give_limits_back(backend: str, at_least_s: int) -> None:
    """What it may take for it (nodeagent.agent.RESTORE_S, OUT_OF_BAND_RESTORE_S), and its end."""
    assert pod(with_agent(BACKENDS[backend]))["terminationGracePeriodSeconds"] >= at_least_s


def test_probes_ask_on_the_port_that_it_serves() -> None:
    found = container(with_agent({"metricsPort": 9501}))

    assert found["ports"] == [{"name": "metrics", "containerPort": 9501}]
    for probe in ("startupProbe", "livenessProbe"):
        assert found[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert found["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}


def test_agents_are_scraped_under_the_names_of_their_nodes() -> None:
    objects = with_agent(monitoring={"serviceMonitor": {"mode": "always"}})
    monitor = objects["PodMonitor", "tonnage-agent"]["spec"]
    labels = objects["DaemonSet", "tonnage-agent"]["spec"]["template"]["metadata"]["labels"]

    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    assert endpoint["relabelings"][0]["targetLabel"] == "node"


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        ({"backend": "luck"}, "backend"),
        ({"period": 0}, "period"),
        ({"period": 2}, "period"),
        ({"floorShare": 2}, "floorShare"),
        ({"manages": "GPU-1"}, "manages"),
        ({"manages": [""]}, "manages"),
        ({"onStop": "lift"}, "onStop"),
        ({"recordPath": "var"}, "recordPath"),
        ({"maxUnavailable": "all"}, "maxUnavailable"),
        ({"health": {"dcgmUrl": "https://localhost:9400/metrics"}}, "dcgmUrl"),
        ({"port": 0}, "port"),
        ({"backend": "redfish", **NODES}, "redfish.host"),
        ({"meter": True}, "agent.meter needs agent.redfish.host"),
        ({"backend": "amdsmi"}, "nodeSelector"),
        ({"tls": {"secret": "one"}}, "caConfigMap"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(agent: Values, place: str) -> None:
    with pytest.raises(HelmRefusedError, match=place):
        with_agent(agent)


def test_two_releases_do_not_share_names() -> None:
    objects = with_agent(fullnameOverride="other", monitoring={"serviceMonitor": {"mode": "always"}})

    assert all(name.startswith("other") for kind, name in objects if kind != "CustomResourceDefinition")
    settings = yaml.safe_load(objects["ConfigMap", "other-agent"]["data"]["agent.yaml"])
    assert settings["controller"]["host"] == f"other-power.{NAMESPACE}.svc"


def test_an_image_of_its_own_runs_where_the_charts_lacks_a_library() -> None:
    image = {"repository": "tonnage-rocm", "tag": "", "digest": ""}

    assert container(with_agent({**BACKENDS["amdsmi"], "image": image}))["image"] == "tonnage-rocm:0.1.0"
    assert container(with_agent())["image"] == container_of_operator()["image"]


def container_of_operator() -> dict[str, Any]:
    (found,) = rendered()["Deployment", "tonnage"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_the_schema_names_every_value_of_the_agent_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["agent"]
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]["agent"]

    assert schema["properties"].keys() == values.keys()
