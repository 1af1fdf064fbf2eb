"""Ray in the chart: the processes of each mode, their connections, and that they have no rights in the cluster."""

import shutil
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from cli.main import tonnage
from controller.settings import read_settings
from tests.chaos.nodes import SILENT_NODE
from tests.deploy.helm import CHART, HelmRefusedError, Values, rendered
from tests.deploy.pins import pinned

pytestmark = pytest.mark.chart

Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def with_kuberay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart for a cluster that has RayClusters, which cannot be stated when rendering offline."""
    chart = tmp_path_factory.mktemp("kuberay") / "tonnage"
    shutil.copytree(CHART, chart)
    template = chart / "templates" / "ray-kuberay.yaml"
    asked = '(.Capabilities.APIVersions.Has "ray.io/v1")'
    text = template.read_text(encoding="utf-8")
    assert asked in text
    template.write_text(text.replace(asked, "true"), encoding="utf-8")
    return chart


@pytest.fixture(params=["static", "kuberay"])
def objects(request: pytest.FixtureRequest, with_kuberay: Path) -> Objects:
    return rendered({"ray": {"mode": request.param}}, with_kuberay)


def ray_pods(objects: Objects) -> list[dict[str, Any]]:
    """Templates of the pods that Ray runs in, the head's first."""
    if ("RayCluster", "tonnage-ray") in objects:
        spec = objects["RayCluster", "tonnage-ray"]["spec"]
        return [spec["headGroupSpec"]["template"], *(group["template"] for group in spec["workerGroupSpecs"])]
    head = objects["Deployment", "tonnage-ray-head"]
    return [head["spec"]["template"], objects["Deployment", "tonnage-ray-worker"]["spec"]["template"]]


def controller(values: Values | None = None) -> dict[str, Any]:
    found: dict[str, Any] = rendered(values)["Deployment", "tonnage"]["spec"]["template"]["spec"]
    return found


def read_by_operator(objects: Objects, folder: Path) -> Any:
    file = folder / "settings.yaml"
    file.write_text(objects["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"], encoding="utf-8")
    return read_settings(file).ray


@pytest.mark.parametrize(("mode", "told"), [("none", "none"), ("embedded", "embedded"), ("static", "cluster")])
def test_the_operator_is_told_where_background_work_runs(tmp_path: Path, mode: str, told: str) -> None:
    read = read_by_operator(rendered({"ray": {"mode": mode, "cpus": 2}}), tmp_path)

    assert (read.mode, read.cpus) == (told, 2 if mode == "embedded" else 1)


def test_without_ray_nothing_of_it_is_installed() -> None:
    for values in ({}, {"ray": {"mode": "none"}}, {"ray": {"mode": "embedded"}}):
        assert not [name for kind, name in rendered(values) if "ray" in name]


def test_by_default_ray_runs_in_the_operators_pod(tmp_path: Path) -> None:
    assert read_by_operator(rendered(), tmp_path).mode == "embedded"
    without = controller({"ray": {"mode": "none"}})
    assert "shm" not in {volume["name"] for volume in without["volumes"]}


def test_embedded_ray_has_room_for_its_object_store() -> None:
    pod = controller()
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (container,) = pod["containers"]

    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "128Mi"}
    assert "shm" in {mount["name"] for mount in container["volumeMounts"]}


def test_of_rays_containers_only_the_autoscaler_holds_a_right_in_the_cluster(objects: Objects) -> None:
    for pod in ray_pods(objects):
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert "serviceAccountName" not in pod["spec"]
        tokens = {volume["name"] for volume in pod["spec"]["volumes"] if "projected" in volume}
        mounted = {mount["name"] for each in pod["spec"]["containers"] for mount in each["volumeMounts"]}
        assert not tokens & mounted
        assert pod["spec"]["securityContext"]["runAsUser"] == 65532
    if cluster := objects.get(("RayCluster", "tonnage-ray")):
        autoscaler = cluster["spec"]["autoscalerOptions"]
        assert autoscaler["securityContext"]["runAsUser"] != 65532, "what Ray runs may not read its files"
        assert "rights" in {mount["name"] for mount in autoscaler["volumeMounts"]}


def test_workers_come_and_go_with_the_tasks_and_the_autoscaler_changes_nothing_else(with_kuberay: Path) -> None:
    values = {
        "ray": {"mode": "kuberay", "workers": {"replicas": 7}},
        "fullnameOverride": "t",
        "serviceAccount": {"name": "s"},
    }
    objects = rendered(values, with_kuberay)
    spec = objects["RayCluster", "t-ray"]["spec"]
    (workers,) = spec["workerGroupSpecs"]
    fence = objects["ValidatingAdmissionPolicy", "t-own-ray-counts"]["spec"]["matchConditions"]

    assert spec["enableInTreeAutoscaling"]
    assert [workers[f"{bound}eplicas"] for bound in ("r", "minR", "maxR")] == [0, 0, 7]
    assert '"system:serviceaccount:tonnage-system:t-ray"' in fence[0]["expression"]


def test_pods_of_ray_pass_the_restricted_pod_security_standard(objects: Objects) -> None:
    for pod in ray_pods(objects):
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        cluster = objects.get(("RayCluster", "tonnage-ray"), {"spec": {"autoscalerOptions": None}})
        autoscaler = cluster["spec"]["autoscalerOptions"]
        for container in (*pod["spec"]["containers"], *filter(None, [autoscaler])):
            own = {key: value for key, value in container["securityContext"].items() if key != "runAsUser"}
            assert own == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_ray_speaks_with_itself_and_with_nobody_else_but_the_controller(objects: Objects) -> None:
    policy = objects["NetworkPolicy", "tonnage-ray"]["spec"]
    among, from_controller = policy["ingress"]
    mine = {"matchLabels": policy["podSelector"]["matchLabels"]}

    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert among == {"from": [{"podSelector": mine}]}
    assert [port["port"] for port in from_controller["ports"]] == [6390]
    labels = objects["Deployment", "tonnage"]["spec"]["template"]["metadata"]["labels"].items()
    assert from_controller["from"][0]["podSelector"]["matchLabels"].items() <= labels
    assert policy["egress"][0] == {"to": [{"podSelector": mine}]}
    assert {port["port"] for port in policy["egress"][1]["ports"]} == {53}
    assert len(policy["egress"]) == 2
    if of_head := objects.get(("NetworkPolicy", "tonnage-ray-autoscaler")):
        assert of_head["spec"]["podSelector"]["matchLabels"]["tonnage.dev/ray-node"] == "head"
        assert of_head["spec"]["egress"] == objects["NetworkPolicy", "tonnage"]["spec"]["egress"][-1:]
    for pod in ray_pods(objects):
        assert mine["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_the_controller_may_reach_the_driver(objects: Objects, tmp_path: Path) -> None:
    head = ray_pods(objects)[0]
    service = objects["Service", "tonnage-ray-driver"]["spec"]
    (rule,) = [
        rule for rule in objects["NetworkPolicy", "tonnage"]["spec"]["egress"] if rule["ports"][0]["port"] == 6390
    ]

    assert read_by_operator(objects, tmp_path).address == "tonnage-ray-driver.tonnage-system.svc:6390"
    assert service["ports"][0]["port"] == 6390
    assert service["selector"].items() <= head["metadata"]["labels"].items()
    assert rule["to"][0]["podSelector"]["matchLabels"].items() <= head["metadata"]["labels"].items()


def test_the_controller_holds_the_drivers_token_and_not_the_clusters(objects: Objects, tmp_path: Path) -> None:
    pod = objects["Deployment", "tonnage"]["spec"]["template"]["spec"]
    (volume,) = [volume for volume in pod["volumes"] if "secret" in volume]
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == volume["name"]]

    assert volume["secret"]["items"] == [{"key": "driver-token", "path": "driver-token"}]
    assert read_by_operator(objects, tmp_path).token_file == f"{mount['mountPath']}/driver-token"
    assert set(objects["Secret", "tonnage-ray"]["data"]) == {"ray-token", "driver-token"}


def test_a_secret_of_ones_own_is_used_and_none_is_made() -> None:
    objects = rendered({"ray": {"mode": "static", "tokenSecret": "mine"}})

    assert "Secret" not in {kind for kind, _ in objects}
    for pod in (*ray_pods(objects), objects["Deployment", "tonnage"]["spec"]["template"]):
        assert [v["secret"]["secretName"] for v in pod["spec"]["volumes"] if "secret" in v] == ["mine"]


def test_the_driver_runs_a_command_that_there_is(objects: Objects) -> None:
    (driver,) = [each for each in ray_pods(objects)[0]["spec"]["containers"] if each["name"] == "driver"]
    verb, *arguments = driver["args"]
    group = tonnage.get_command(click.Context(tonnage), verb)
    assert isinstance(group, click.Group)
    name, command, rest = group.resolve_command(click.Context(group), arguments)

    assert command is not None
    assert command.make_context(name, rest).params["listen"] == "0.0.0.0:6390"


def test_every_ray_container_wants_the_token_and_gives_silent_nodes_up_soon(objects: Objects) -> None:
    for pod in ray_pods(objects):
        for container in pod["spec"]["containers"]:
            told = {each["name"]: each.get("value") for each in container["env"]}
            assert told["RAY_AUTH_MODE"] == "token"
            assert str(told["RAY_AUTH_TOKEN_PATH"]).endswith("/ray-token")
            assert SILENT_NODE.items() <= told.items()


def test_the_head_runs_no_tasks(objects: Objects) -> None:
    if ("RayCluster", "tonnage-ray") in objects:
        start = objects["RayCluster", "tonnage-ray"]["spec"]["headGroupSpec"]["rayStartParams"]
        assert start["num-cpus"] == "0"
    else:
        assert "--num-cpus=0" in ray_pods(objects)[0]["spec"]["containers"][0]["command"]


def test_kuberay_is_told_the_version_that_the_image_holds(with_kuberay: Path) -> None:
    objects = rendered({"ray": {"mode": "kuberay"}}, with_kuberay)

    assert objects["RayCluster", "tonnage-ray"]["spec"]["rayVersion"] == pinned()["ray"]


def test_kuberay_is_refused_where_it_is_not() -> None:
    with pytest.raises(HelmRefusedError, match="KubeRay"):
        rendered({"ray": {"mode": "kuberay"}})


@pytest.mark.parametrize(
    ("ray", "place"),
    [({"mode": "serve"}, "mode"), ({"cpus": 0}, "cpus"), ({"workers": {"replicas": 0}}, "replicas")],
)
def test_a_wrong_value_is_refused_with_its_place(ray: Values, place: str) -> None:
    with pytest.raises(HelmRefusedError, match=place):
        rendered({"ray": ray})


def test_the_settings_that_the_chart_decides_are_its_own(tmp_path: Path) -> None:
    values = {"ray": {"mode": "static"}, "settings": {"ray": {"mode": "none", "address": "elsewhere:1"}}}
    settings = yaml.safe_load(rendered(values)["ConfigMap", "tonnage-settings"]["data"]["settings.yaml"])

    assert settings["ray"]["mode"] == "cluster"
    assert settings["ray"]["address"].startswith("tonnage-ray-driver.")
