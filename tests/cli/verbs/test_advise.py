"""`tonnage advise`: a dump of a cluster in, dollars out."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import tonnage
from cluster.errors import ConfigError
from controller.objects.catalogue import read_catalogue
from tests.builders.manifests import Object, having, node, pod
from tests.rigs.fake_api_server import ANSWERS, api_server, kubeconfig

PRODUCT = "NVIDIA-A100-SXM4-80GB"


def dump(*objects: Object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def fleet() -> str:
    return dump(node("busy", 4, PRODUCT), node("idle", 4, PRODUCT), pod("p", 4, on="busy"))


def advised(text: str, *words: str) -> Result:
    return CliRunner().invoke(tonnage, ["advise", "-f", "-", *words], input=text)


def test_an_idle_node_of_a_dump_has_a_price_with_date_and_source() -> None:
    """The catalogue has $3.43 for each of the four devices: 13.72 $/h."""
    result = advised(fleet())

    assert result.exit_code == 0, result.stderr
    assert "$13.72/h  1 node with 4 GPUs without a pod that uses one" in result.stdout
    assert "2025-06, which is long ago (--prices FILE renews)." in result.stdout


def test_the_cluster_itself_is_advised_on_as_its_dump_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for plural, objects in {
        "nodes": [node("busy", 4, PRODUCT), node("idle", 4, PRODUCT)],
        "pods": [pod("p", 4, on="busy")],
    }.items():
        items = [{key: each[key] for key in ("metadata", "spec", "status") if key in each} for each in objects]
        monkeypatch.setitem(ANSWERS, f"/api/v1/{plural}", {"kind": "List", "apiVersion": "v1", "items": items})
    config = tmp_path / "config"
    with api_server() as url:
        config.write_text(json.dumps(kubeconfig(url)), encoding="utf-8")
        live = CliRunner().invoke(tonnage, ["advise", "--kubeconfig", str(config)])

    assert live.exit_code == 0, live.stderr
    assert "$13.72/h  1 node with 4 GPUs without a pod that uses one" in live.stdout


def test_a_dump_without_nodes_is_wrong_input_and_no_fleet_that_costs_nothing() -> None:
    result = advised(dump(pod("p", 4)))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "manifests: hold no node; kubectl get nodes,pods -A -o json prints a dump" in result.stderr


def test_prices_are_replaced_by_those_of_a_file(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    content = "{date: 2026-11, source: our contract, types: [{name: a, products: [%s], memory: 80Gi, pricePerHour: 2}]}"
    prices.write_text(content % PRODUCT, encoding="utf-8")

    record = json.loads(advised(fleet(), "--prices", str(prices), "-o", "json").stdout)

    assert record["prices"].startswith("our contract; 2026-11")
    assert [(each["topic"], each["dollars_per_hour"]) for each in record["advice"]] == [("idle", 8.0)]


def test_a_catalogue_of_another_form_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("types: {}", encoding="utf-8")

    with pytest.raises(ConfigError, match="is no catalogue"):
        read_catalogue(tmp_path / "prices.yaml")


def test_the_page_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    page = tmp_path / "advice.html"

    assert advised(fleet(), "--report", str(page)).exit_code == 0
    html = page.read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert html.rstrip().endswith("</html>")
    assert "http" not in html
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_a_dump_of_a_cluster_that_runs_tonnage_needs_no_objects_of_its_kinds() -> None:
    """`kubectl get nodes,pods` leaves out the Gangs and ModelServices that its pods refer to."""
    member = having(pod("train-0", 4, on="busy"), "metadata.labels", {"tonnage.dev/gang": "train"})
    instance = having(pod("chat-0", 4, on="idle"), "metadata.labels", {"tonnage.dev/service": "chat"})

    result = advised(dump(node("busy", 4, PRODUCT), node("idle", 4, PRODUCT), member, instance))

    assert result.exit_code == 0, result.stderr
    assert "100 % are allocated" in result.stdout
    assert "Gang that the dump leaves out" in result.stderr
    assert "ModelService that the dump leaves out" in result.stderr


def test_pods_of_a_deployment_count_as_movable_and_those_of_a_job_do_not() -> None:
    def spread(kind: str) -> str:
        owner = [{"apiVersion": "v1", "kind": kind, "name": "x", "uid": "1", "controller": True}]
        pods = [having(pod(f"p{n}", 1, on=f"n{n}"), "metadata.ownerReferences", owner) for n in range(2)]
        return dump(node("n0", 4, PRODUCT), node("n1", 4, PRODUCT), *pods)

    assert "1 node would be free if 1 pod ran elsewhere" in advised(spread("ReplicaSet")).stdout
    assert "would be free" not in advised(spread("Job")).stdout


def test_watts_are_told_where_the_catalogue_knows_them() -> None:
    """Eight A100 SXM at 400 W, four of them idle."""
    assert "Power limits of 8 GPUs add up to 3.2 kW (data sheets); 1.6 kW" in advised(fleet()).stdout
    record = json.loads(advised(fleet(), "-o", "json").stdout)
    assert record["power_limits"] == {"gpus": 8, "all_w": 3200.0, "idle_w": 1600.0}


def test_devices_that_are_paid_for_and_not_offered_are_advice() -> None:
    """A plugin that offers none of 4, and a node whose driver is missing, with 2 by its label: 6 at $3.43."""
    broken = having(node("broken", 4, PRODUCT), "status.capacity", {"nvidia.com/gpu": "4"})
    broken["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    bare = node("bare", 0)
    bare["metadata"]["labels"] = {"nvidia.com/gpu.product": PRODUCT, "nvidia.com/gpu.count": "2"}

    result = advised(dump(node("busy", 4, PRODUCT), pod("p", 4, on="busy"), broken, bare))

    assert "$20.58/h  6 GPUs of 2 nodes are there and not offered to pods" in result.stdout
    assert "broken" in result.stdout


def test_what_pods_use_is_read_from_a_saved_answer(tmp_path: Path) -> None:
    """The pod holds four devices at the catalogue's price, is 90 days old, and uses 1 %."""
    saved = tmp_path / "used.json"
    result = [{"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "namespace": "default", "pod": "p"}, "value": [1, "1"]}]
    saved.write_text(json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}))
    old = having(pod("p", 4, on="busy", phase="Running"), "metadata.creationTimestamp", "2026-01-01T00:00:00Z")

    record = json.loads(advised(dump(node("busy", 4, PRODUCT), old), "--prometheus", str(saved), "-o", "json").stdout)

    assert [(each["topic"], each["about"]) for each in record["advice"]] == [("unused", ["default/p"])]
    assert record["split"]["unused"] == record["fleet"]["cost_per_hour"]
    assert advised(fleet(), "--prometheus", str(tmp_path / "none")).exit_code == 2


def test_each_advice_names_commands_that_can_be_undone() -> None:
    record = json.loads(advised(fleet(), "-o", "json").stdout)

    assert record["advice"][0]["steps"] == [{"do": "kubectl cordon idle", "undo": "kubectl uncordon idle"}]
