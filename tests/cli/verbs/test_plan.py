"""`tonnage plan`: the plan on standard output, words on standard error, and an exit status that means something."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.main import tonnage
from tests.builders.manifests import Object, gang, gpu_type, having, node, pod, profile, service, written

EXAMPLES = Path(__file__).parents[3] / "examples"
A100 = {"nvidia.com/gpu.product": "A100"}
CPU_OF_POD = "spec.containers.0.resources.requests.cpu"


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(tonnage, ["plan", *arguments], input=stdin)


def planned(folder: Path, *objects: Object) -> Any:
    result = run("-f", str(written(folder, objects)), "-o", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_pod_is_placed_and_one_that_does_not_fit_is_not(tmp_path: Path) -> None:
    plan = planned(tmp_path, gpu_type(), node("n1", gpus=2), pod("fits", 2), pod("wide", 4))

    assert [(p["pod"], p["node"], p["devices"]) for p in plan["placements"]] == [("default/fits", "n1", [0, 1])]
    assert [(u["workload"], u["reason"]["code"]) for u in plan["unplaced"]] == [("Pod/default/wide", "NoNodeFits")]


def test_a_gang_whose_running_member_makes_room_for_a_more_important_pod_stops_no_planning(tmp_path: Path) -> None:
    in_train = {"tonnage.dev/gang": "train"}
    launcher = having(
        pod("launcher", on="n1", labels=in_train, phase="Running", schedulerName="tonnage"), CPU_OF_POD, "16"
    )
    urgent = having(pod("urgent", 8, priority=100), CPU_OF_POD, "16")
    objects = gpu_type(), node(cpu="16"), gang("train", 2), launcher, pod("worker", 8, labels=in_train), urgent

    plan = planned(tmp_path, *objects)

    assert [each["pod"] for each in plan["evictions"]] == ["default/launcher"]
    assert [each["pod"] for each in plan["placements"]] == ["default/urgent"]


def test_gangs_that_cannot_fit_keep_no_pod_behind_them_waiting(tmp_path: Path) -> None:
    """1,000 nodes with 7 free GPUs each; 20 gangs need 8 on one node, and are served first."""
    fleet: list[Object] = [gpu_type()]
    for n in range(1000):
        fleet.append(having(node(f"n{n}"), "metadata.labels", {"kubernetes.io/hostname": f"n{n}"} | A100))
        fleet.append(pod(f"runs-{n}", 1, on=f"n{n}", phase="Running", priority=100))
    for n in range(20):
        fleet.append(gang(f"g{n}", 8, topology={"within": "kubernetes.io/hostname"}))
        fleet += [pod(f"g{n}-{m}", 1, labels={"tonnage.dev/gang": f"g{n}"}, priority=10) for m in range(8)]
    fleet += [pod(f"single-{n}", 1) for n in range(100)]

    plan = planned(tmp_path, *fleet)

    assert len(plan["placements"]) == 100
    assert {each["reason"]["code"] for each in plan["unplaced"]} == {"GangHeldBack"}


def test_where_few_pods_may_be_stopped_some_urgent_pods_start_and_none_is_stopped_for_nothing(tmp_path: Path) -> None:
    """32 running pods, of which a plan stops ten at most: one urgent pod of eight GPUs starts, where eight are stopped.

    Names are in no order of nodes.
    """
    fleet = [gpu_type(), *(node(f"n{n}") for n in range(4))]
    fleet += [pod(f"low-{n * 7 % 32}", 1, on=f"n{n // 8}", phase="Running", schedulerName="tonnage") for n in range(32)]
    fleet += [pod(f"urgent-{n}", 8, priority=100) for n in range(2)]

    plan = planned(tmp_path, *fleet)

    (start,) = plan["placements"]
    assert {each["node"] for each in plan["evictions"]} == {start["node"]}
    assert len(plan["evictions"]) == 8
    assert all(start["pod"] in each["reason"]["words"] for each in plan["evictions"])


def test_pods_of_others_are_left_to_kube_scheduler_and_the_plan_says_so(tmp_path: Path) -> None:
    others = pod("theirs", 8, on="n1", phase="Running")

    plan = planned(tmp_path, gpu_type(), node(), others, pod("urgent", 8, priority=100))

    assert plan["evictions"] == plan["placements"] == plan["unplaced"] == []
    (released,) = plan["released"]
    assert (released["pod"], released["node"]) == ("default/urgent", "n1")
    assert released["reason"]["code"] == "LeftToKubeScheduler"


@pytest.mark.parametrize(
    "annotation",
    [
        {"tonnage.dev/do-not-disrupt": "true"},
        {"karpenter.sh/do-not-disrupt": "true"},
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    ],
)
def test_a_pod_that_asks_not_to_be_disrupted_is_stopped_for_nobody(tmp_path: Path, annotation: dict[str, str]) -> None:
    for scheduler in ("tonnage", "default-scheduler"):
        stays = pod("stays", 8, on="n1", phase="Running", annotations=annotation, schedulerName=scheduler)

        plan = planned(tmp_path, gpu_type(), node(), stays, pod("urgent", 8, priority=100))

        assert plan["evictions"] == plan["placements"] == plan["released"] == []
        (waits,) = plan["unplaced"]
        assert "ask to stay" in waits["reason"]["words"]


def test_a_disruption_budget_of_the_same_files_is_heeded_and_named(tmp_path: Path) -> None:
    budget: Object = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }  # fmt: skip
    web = pod("web", 8, on="n1", phase="Running", labels={"app": "web"}, schedulerName="tonnage")

    plan = planned(tmp_path, gpu_type(), node(), web, budget, pod("urgent", 8, priority=100))

    assert plan["evictions"] == plan["placements"] == []
    assert "default/web" in plan["unplaced"][0]["reason"]["words"]


def test_no_pod_is_stopped_for_one_whose_preemption_policy_forbids_it(tmp_path: Path) -> None:
    busy = pod("low", 8, on="n1", phase="Running")

    plan = planned(tmp_path, gpu_type(), node(), busy, pod("patient", 8, priority=100, preemptionPolicy="Never"))

    assert plan["evictions"] == plan["placements"] == []
    assert [each["workload"] for each in plan["unplaced"]] == ["Pod/default/patient"]


def test_a_service_gets_its_instances_its_routing_and_their_places(tmp_path: Path) -> None:
    exact = service(headroom=0.0, gpuTypes=["a100"])

    plan = planned(tmp_path, gpu_type(price=4.0), profile(), exact, node(gpus=8))

    (served,) = plan["services"]
    # 6 requests/s: 3/8 + 1.5/4 + 0.75/2 + 0.75/1 = 1.875 instances busy, so 2 at 4 $/h.
    assert served["instances"] == {"a100": 2}
    assert (plan["cost_per_hour"], plan["bound"], plan["gap"]) == (8.0, 8.0, 0.0)
    assert {"input_tokens": 100, "output_tokens": 10, "shares": {"a100": 1.0}} in served["routing"]
    assert [p["pod"] for p in plan["placements"]] == ["default/chat-a100-0", "default/chat-a100-1"]


def test_services_alone_ask_what_to_rent(tmp_path: Path) -> None:
    plan = planned(tmp_path, gpu_type(), profile(), service(headroom=0.0))

    assert plan["services"][0]["instances"] == {"a100": 2}
    assert plan["unplaced"] == []


def test_a_service_without_a_profile_is_refused_with_the_reason(tmp_path: Path) -> None:
    (served,) = planned(tmp_path, gpu_type(), profile(), service(model="unheard-of"))["services"]

    assert served["refusal"]["code"] == "NoProfile"
    assert served["instances"] == {}


def test_the_json_is_byte_for_byte_the_same_for_the_same_input() -> None:
    first, second = run("-f", str(EXAMPLES), "-o", "json"), run("-f", str(EXAMPLES), "-o", "json")

    assert first.exit_code == 0, first.stderr
    assert first.stdout_bytes == second.stdout_bytes


def test_the_json_carries_what_it_promises() -> None:
    plan = json.loads(run("-f", str(EXAMPLES), "-o", "json").stdout)

    assert plan["record"] == 1
    assert 0 < plan["bound"] <= plan["cost_per_hour"]
    assert plan["placements"]
    assert all(each["reason"]["words"] for each in plan["unplaced"])
    for each in plan["services"]:
        shares = [sum(route["shares"].values()) for route in each["routing"]]
        assert shares == pytest.approx([1.0] * len(shares), abs=1e-5)
        assert (each["refusal"] is None) == bool(each["instances"])


def test_the_document_has_seconds_only_on_request() -> None:
    assert '"seconds"' not in run("-f", str(EXAMPLES), "-o", "json").stdout
    assert '"seconds"' in run("-f", str(EXAMPLES), "-o", "json", "--timings").stdout


def test_the_table_has_seconds_only_on_request() -> None:
    assert "SECONDS" not in run("-f", str(EXAMPLES)).stdout
    assert "SECONDS" in run("-f", str(EXAMPLES), "--timings").stdout.splitlines()[0]


def test_a_plan_that_work_cut_short_says_so_and_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.inputs.planning.TIME_SLACK", 1e6)  # work alone cuts it, on a busy machine too
    result = run("-f", str(EXAMPLES), "-o", "json", "--deadline", "0.1")

    cut = {each["name"]: each for each in json.loads(result.stdout)["services"] if each["cut_short"]}
    (name,) = cut
    assert cut[name]["cut_short"] == "work"
    assert cut[name]["gap"] > 0
    gap = f"{100 * cut[name]['gap']:.1f} %"
    assert f"note: {name}: cut short (gap {gap}); --deadline 0.2 allows more work" in result.stderr


def test_a_difference_shows_the_gap_where_there_is_one() -> None:
    short, whole = (run("-f", str(EXAMPLES), "-o", "diff", "--deadline", given).stdout for given in ("0.1", "10"))

    (line,) = (line for line in short.splitlines() if "gap" in line)
    assert line.startswith("~ ModelService/")
    assert "per hour (gap " in line
    assert "gap" not in whole


def test_yaml_has_the_same_content_as_json() -> None:
    as_json, as_yaml = (run("-f", str(EXAMPLES), "-o", output).stdout for output in ("json", "yaml"))

    assert yaml.safe_load(as_yaml) == json.loads(as_json)


def test_the_table_names_every_pod_and_sums_up() -> None:
    result = run("-f", str(EXAMPLES))

    assert result.exit_code == 0, result.stderr
    assert "default/pretrain-3" in result.stdout
    assert "Pod/default/too-wide" in result.stdout
    assert "\x1b" not in result.stdout  # no colours outside a terminal
    assert "per hour" in result.stdout.splitlines()[-1]


def test_a_reason_that_all_pods_share_is_said_once_and_refusals_stand_apart() -> None:
    lines = run("-f", str(EXAMPLES)).stdout.splitlines()

    assert [line for line in lines if "least cost" in line] == ["all for the same reason: least cost under tonnage"]
    assert "default/search   no demand was measured; the running instances stay" in lines
    (row,) = (line for line in lines if line.startswith("default/search    ") and "no profile" not in line)
    assert row.split() == ["default/search", "-", "-", "-", "-", "-"]


def test_standard_input_is_read_as_kubectl_writes_it(tmp_path: Path) -> None:
    fleet = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n1"), pod("p1", 1)]})

    result = run("-f", "-", "-f", str(written(tmp_path, [gpu_type()])), "-o", "json", stdin=fleet)

    assert json.loads(result.stdout)["placements"][0]["pod"] == "default/p1"


def test_notes_go_to_standard_error(tmp_path: Path) -> None:
    result = run("-f", str(written(tmp_path, [node("n1", product="K80")])), "-o", "json")

    assert result.stderr.startswith("note: Node/n1: GPUs that match no GPUType")
    assert json.loads(result.stdout)["notes"][0]["reason"]["code"] == "GpuTypeUnknown"


def test_a_sandbox_is_said_to_be_ignored_only_where_it_asks_for_gpus(tmp_path: Path) -> None:
    """Isolation concerns the pod that its controller makes; the document lists it all the same."""
    container: Object = {"name": "agent", "resources": {"requests": {"memory": "512Mi"}}}
    sandbox: Object = {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "coder"},
        "spec": {"podTemplate": {"spec": {"containers": [container]}}},
    }
    about = "Sandbox (agents.x-k8s.io/v1beta1)"

    said = run("-f", str(written(tmp_path, [gpu_type(), sandbox])), "-o", "json")
    container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    of_gpus = run("-f", str(written(tmp_path, [gpu_type(), sandbox])), "--fail-on-unplaced")

    assert (said.stderr, [each["about"] for each in json.loads(said.stdout)["notes"]]) == ("", [about])
    assert "Sandbox/coder   asks for nvidia.com/gpu: 1; placement does not know" in of_gpus.stdout
    assert "1 workloads not placed" in of_gpus.stdout
    assert of_gpus.exit_code == 1


def test_bad_input_is_exit_status_2_and_nothing_on_standard_output(tmp_path: Path) -> None:
    wrong = having(gpu_type(), "spec.pricePerHour.onDemand", -1)

    result = run("-f", str(written(tmp_path, [wrong, wrong])), "-o", "json")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "GPUType/a100, spec.pricePerHour.onDemand: should be greater than 0, not -1" in result.stderr
    assert result.stderr.endswith("2 errors in the input; nothing was done\n")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fleet.yaml"]


def test_an_unknown_policy_is_wrong_input_that_names_the_known_ones(tmp_path: Path) -> None:
    result = run("-f", str(written(tmp_path, [node()])), "--policy", "luck")

    assert result.exit_code == 2
    assert "bestfit" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [[], ["-f", "x", "-o", "xml"], ["-f", "x", "--deadline", "0"], ["-f", "x", "--deadline", "nan"], ["-f", "x", "y"]],
)
def test_wrong_use_is_exit_status_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_what_has_no_place_fails_only_who_asks_for_it(tmp_path: Path) -> None:
    file = str(written(tmp_path, [node(gpus=1), pod("wide", 4)]))

    assert run("-f", file).exit_code == 0
    assert run("-f", file, "--fail-on-unplaced").exit_code == 1


@pytest.mark.parametrize("policy", ["tonnage", "tonnage-learning", "fgd", "bestfit"])
def test_a_fleet_whose_gpus_have_no_type_is_planned_all_the_same(tmp_path: Path, policy: str) -> None:
    file = written(tmp_path, [node("n1", gpus=2), node("n2", gpus=0), pod("a", 1), pod("b")])

    result = run("-f", str(file), "-o", "json", "--policy", policy)

    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["placements"]) == 2


def test_a_fleet_that_is_as_planned_is_left_alone(tmp_path: Path) -> None:
    fleet = [gpu_type(), profile(), service(headroom=0.0), node(gpus=8)]
    first = planned(tmp_path, *fleet)
    instances = [
        pod(
            place["pod"].partition("/")[2],
            1,
            on=place["node"],
            labels={"tonnage.dev/service": "chat"},
            annotations={
                "tonnage.dev/gpu-types": "a100",
                "tonnage.dev/devices": ",".join(map(str, place["devices"])),
            },
        )
        for place in first["placements"]
    ]

    second = planned(tmp_path, *fleet, *instances)

    assert len(instances) == 2
    assert [second[part] for part in ("scale", "evictions", "moves", "placements", "unplaced")] == [[]] * 5
    assert second["services"] == first["services"]


def test_files_are_planned_with_an_operators_settings_unless_others_are_named(tmp_path: Path) -> None:
    config = tmp_path / "operator.yaml"
    config.write_text("resync_s: 20\npolicy: bestfit\n", encoding="utf-8")
    objects = (gpu_type(), node("n1", gpus=2), pod("p", 1))
    manifest = str(written(tmp_path, objects))

    default = json.loads(run("-f", manifest, "-o", "json").stdout)
    other = json.loads(run("-f", manifest, "-o", "json", "--config", str(config)).stdout)
    named = json.loads(run("-f", manifest, "-o", "json", "--config", str(config), "--policy", "fgd").stdout)

    words = [plan["placements"][0]["reason"]["words"] for plan in (default, other, named)]
    assert words == [f"least cost under {policy}, 1 × a100 at 4.00 $/h" for policy in ("tonnage", "bestfit", "fgd")]


def test_settings_that_no_operator_takes_are_named_before_anything_is_planned(tmp_path: Path) -> None:
    config = tmp_path / "operator.yaml"
    config.write_text("resync_s: -1\nno_such_setting: 1\n", encoding="utf-8")

    result = run("-f", str(EXAMPLES), "--config", str(config))

    assert result.exit_code == 2
    assert "resync_s" in result.stderr
    assert "no_such_setting" in result.stderr


def test_a_quota_of_nothing_keeps_a_service_out_and_costs_no_other_one_its_stock(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "c"}]}}
    bound = having(service("bound", template=template, headroom=0.0), "metadata.namespace", "poor")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "poor"},
             "spec": {"hard": {"requests.nvidia.com/gpu": "0"}}}  # fmt: skip

    made = planned(
        tmp_path, gpu_type(), profile(), node(gpus=2), bound, quota, service(template=template, headroom=0.0)
    )

    refused = {each["name"]: each["refusal"] for each in made["services"]}
    assert refused["default/chat"] is None
    assert "requests.nvidia.com/gpu of ResourceQuota poor/q (of 0)" in refused["poor/bound"]["words"]
    assert {each["pod"].partition("/")[0] for each in made["placements"]} == {"default"}


def test_a_team_at_its_limit_keeps_its_service_out_and_costs_no_other_one_its_stock(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "c"}]}}
    bound = having(service("bound", template=template, headroom=0.0), "metadata.namespace", "poor")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "poor", "labels": {"team": "poor"}}}
    spec = {"namespaces": {"team": "poor"}, "borrowing": {"gpus": {"a100": 0}}}
    team = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "Team", "metadata": {"name": "poor"}, "spec": spec}

    made = planned(tmp_path, gpu_type(), profile(), node(gpus=2), space, team, bound,
                   service(template=template, headroom=0.0))  # fmt: skip

    refused = {each["name"]: each["refusal"] for each in made["services"]}
    assert refused["default/chat"] is None
    assert "a100 of Team poor (of 0)" in refused["poor/bound"]["words"]
    assert {each["pod"].partition("/")[0] for each in made["placements"]} == {"default"}
