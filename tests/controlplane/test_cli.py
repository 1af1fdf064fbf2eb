"""The command line on a real API server, beside kubectl."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from cli.main import tonnage
from cluster.plans import Reason
from controller.api.kinds import OWN_KINDS
from controller.report.events import UNPLACED, EventSeries, ReportedDecision, event_write
from simulator.controlplane.binaries import Programs
from simulator.controlplane.server import ControlPlane
from tests.builders.crd_cases import FULL
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.manifests import pod
from tests.controlplane.operators import ROOT, until
from tests.controlplane.plain_api import PlainApi
from tests.controlplane.servers import StartServer, example_server, kubectl_with_kinds
from tests.generated.guide import commands

pytestmark = pytest.mark.controlplane

EXAMPLES = ROOT / "examples"
PLACEMENT_GATE = {"schedulingGates": [{"name": "tonnage.dev/placement"}]}


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> ControlPlane:
    """A server of the module's own: nodes are drained here, and plans are made for all that is in it."""
    return example_server(start_server)


@pytest.fixture(scope="module")
def kubectl(server: ControlPlane, programs: Programs) -> Kubectl:
    """As administrator; Tonnage's kinds are installed and the examples are there. No operator runs."""
    return kubectl_with_kinds(server, programs)


@pytest.fixture(scope="module")
def run(server: ControlPlane, kubectl: Kubectl) -> Any:
    """Runs a verb against the server."""

    def run(command: str, stdin: object = None) -> Result:
        words = shlex.split(command)
        given = None if stdin is None else yaml.safe_dump_all(stdin if isinstance(stdin, list) else [stdin])
        return CliRunner().invoke(tonnage, [*words, "--kubeconfig", str(server.kubeconfig)], input=given)

    examples = " ".join(f"-f {EXAMPLES / name}.yaml" for name in ("gpu-types", "profiles", "services"))
    applied = run(f"apply {examples}")
    assert applied.exit_code == 0, applied.output
    return run


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def gang(name: str = "train", members: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name},
        "spec": {"minMembers": members},
    }


def same_as_kubectl(kubectl: Kubectl, run: Any, command: str) -> None:
    """Byte for byte. Ages may turn between two looks, so it is looked again until kubectl twice says the same."""
    for _ in range(10):
        before, ours, after = kubectl("get", *command.split()), run(f"get {command}"), kubectl("get", *command.split())
        if before == after:
            break
    assert said(ours) == before


@pytest.mark.parametrize(
    "command",
    ["gputypes", "gput -o wide", "modelprofiles", "mprof -o wide", "modelservices", "msvc -A -o wide", "gangs",
     "tonnage -A", "modelservices,gputypes", "msvc/chat gput/a100",
     "nodes -o wide", "pods -A", "leases -A", "events -A", "crd", "msvc -o name", "tonnage -o name",
     "msvc chat -o json", "gput -o json", "gput,msvc -A", "nodes -l nvidia.com/gpu.product=NVIDIA-L4",
     "nodes --as=somebody --as-group=system:masters -o name"],
)  # fmt: skip
def test_get_prints_what_kubectl_prints(command: str, kubectl: Kubectl, run: Any) -> None:
    same_as_kubectl(kubectl, run, command)


def test_yaml_says_what_kubectl_says(kubectl: Kubectl, run: Any) -> None:
    ours = said(run("get msvc chat -o yaml"))

    assert yaml.safe_load(ours) == yaml.safe_load(kubectl("get", "msvc", "chat", "-o", "yaml"))


def test_all_means_every_kind_of_tonnage(kubectl: Kubectl, run: Any) -> None:
    assert said(run("get all -o name")) == kubectl("get", "tonnage", "-o", "name")


def test_what_is_not_there_is_told_as_kubectl_tells_it(kubectl: Kubectl, run: Any) -> None:
    missing, partly = run("get msvc nowhere"), run("get msvc chat nowhere -o name")

    assert (missing.exit_code, missing.stderr) == (1, kubectl.refusal("get", "msvc", "nowhere"))
    assert (partly.exit_code, partly.stdout) == (1, "modelservice.tonnage.dev/chat\n")


def test_a_second_kind_is_taken_for_a_name_as_by_kubectl(kubectl: Kubectl, run: Any) -> None:
    result = run("get nodes pods")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == kubectl.refusal("get", "nodes", "pods")


def test_an_unknown_kind_fails_and_names_those_there_are(run: Any) -> None:
    result = run("get modelservicez")

    assert result.exit_code == 1
    assert "doesn't have a resource type" in result.stderr
    assert "modelservices" in result.stderr


def test_a_server_that_is_not_there_is_told_within_its_time(server: ControlPlane, tmp_path: Path) -> None:
    config = yaml.safe_load(server.kubeconfig.read_text(encoding="utf-8"))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    nobody = tmp_path / "nobody"
    nobody.write_text(yaml.safe_dump(config), encoding="utf-8")

    result = CliRunner().invoke(tonnage, ["get", "nodes", "--kubeconfig", str(nobody), "--request-timeout", "2s"])

    assert result.exit_code == 1
    assert "Unable to connect to the server" in result.stderr


def test_who_may_not_is_told_by_name(run: Any) -> None:
    result = run("get nodes --as somebody")

    assert result.exit_code == 1
    assert "Error from server (Forbidden)" in result.stderr
    assert 'User "somebody"' in result.stderr


def test_who_may_not_see_the_cluster_is_told_where_the_last_decision_stands(run: Any) -> None:
    result = run("explain Pod/ns/p --as somebody")

    assert result.exit_code == 1
    assert "Error from server (Forbidden)" in result.stderr
    assert "tonnage describe pod p -n ns has the last decision" in result.stderr


def test_an_unknown_kind_in_a_folder_keeps_nothing_else_from_being_applied(run: Any) -> None:
    odd = {"apiVersion": "example.com/v1", "kind": "Odd", "metadata": {"name": "o"}}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside-odd", "namespace": "default"}}

    result = run("apply -f -", [odd, other])

    assert result.exit_code == 1
    assert 'no matches for kind "Odd"' in result.stderr
    assert run("get configmap beside-odd -n default").exit_code == 0


@contextmanager
def watching(*command: str) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(  # noqa: S603
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_watch_shows_changes_in_the_same_columns_until_ctrl_c(
    server: ControlPlane, kubectl: Kubectl, run: Any
) -> None:
    said(run("apply -f -", gang("watched")))
    ours = (sys.executable, "-m", "cli.main", "get", "gangs", "-w", "--kubeconfig", str(server.kubeconfig))

    with watching(*ours) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        said(run("apply -f -", gang("watched", members=3)))
        lines.append(process.stdout.readline())
        kubectl("delete", "gang", "watched")
        lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        status = process.wait(30)

    assert [line.split()[:2] for line in lines] == [
        ["NAME", "MIN"],
        ["watched", "2"],
        ["watched", "3"],
        ["watched", "3"],
    ]
    assert {line.index(word) for line, word in zip(lines, ("MIN", "2", "3", "3"), strict=True)} == {
        lines[0].index("MIN")
    }
    assert status == 130


AGES = re.compile(r"(?<= )(\d+[smhd])+ *")


def without_ages(text: str) -> str:
    """Two watches may look at one object a second apart; a column of ages is 6 wide as long as the test takes."""
    return AGES.sub("<age> ", text)


@pytest.mark.parametrize(
    "how",
    ["-w", "-w -o wide", "-w -A", "-w -o name"],
)  # fmt: skip
def test_a_watch_prints_what_kubectl_prints_column_for_column(
    how: str, server: ControlPlane, kubectl: Kubectl, run: Any
) -> None:
    """Rows that come later may be wider than all before: then columns grow, and they never shrink again."""
    words = ("get", "gangs", *how.split())
    said(run("apply -f -", [gang("first"), gang("a-second")]))
    ours = (sys.executable, "-m", "cli.main", *words, "--kubeconfig", str(server.kubeconfig))
    theirs = (str(kubectl.program), "--kubeconfig", str(server.kubeconfig), *words)

    with watching(*ours) as our_process, watching(*theirs) as their_process:
        printed = [lines_until(process, "first") for process in (our_process, their_process)]  # so both are watching
        said(run("apply -f -", gang("first", members=3)))
        said(run("apply -f -", gang("a-much-longer-name-than-those-before", members=123456)))
        kubectl("delete", "gang", "a-second")
        said(run("apply -f -", gang("last", members=7)))
        for lines, process in zip(printed, (our_process, their_process), strict=True):
            lines += lines_until(process, "last")
    kubectl("delete", "gang", "first", "a-much-longer-name-than-those-before", "last")

    assert [without_ages(line) for line in printed[0]] == [without_ages(line) for line in printed[1]]
    assert len(printed[0]) >= 5


def lines_until(process: "subprocess.Popen[str]", word: str) -> list[str]:
    """What it prints up to the line with this word."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or word not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], f"it ended before {word!r}: {lines}"
    return lines


def test_a_watch_of_events_shows_each_as_it_comes_in_columns_that_stay(
    server: ControlPlane, kubectl: Kubectl, run: Any
) -> None:
    kubectl("create", "-f", "-", stdin=pod("told", gpus=1, **PLACEMENT_GATE))
    uid = kubectl.get("pod", "told")["metadata"]["uid"]

    def tell(code: str, words: str, at_s: float) -> None:
        about = ReportedDecision("Pod", "default/told", "Placing", Reason(code, words), is_warning=True, event=UNPLACED)
        written = event_write(EventSeries(about, uid, began_at_s=at_s, last_at_s=at_s), epoch=1, instance="test")
        kubectl("create", "-f", "-", stdin=dict(written.body or {}))

    tell("NoGpuFree", "before the watch", 1.8e9)
    ours = (sys.executable, "-m", "cli.main", "events", "--for", "pod/told", "-w")
    with watching(*ours, "--kubeconfig", str(server.kubeconfig)) as process:
        lines = lines_until(process, "before the watch")
        kubectl("create", "-f", "-", stdin=pod("other", **PLACEMENT_GATE))  # of another object: not shown
        tell("GangWaits", "while it watches", 1.8e9 + 60)
        lines += lines_until(process, "while it watches")
        process.send_signal(signal.SIGINT)
        status = process.wait(30)
    kubectl("delete", "pod", "told", "other")

    assert len(lines) == 3
    assert lines[0].split()[:2] == ["LAST", "SEEN"]
    assert {line.index("Pod/told") for line in lines[1:]} == {lines[0].index("OBJECT")}
    assert {line.index("Warning") for line in lines[1:]} == {lines[0].index("TYPE")}
    assert status == 130


def test_a_dry_run_shows_the_difference_and_the_new_plan_and_writes_nothing(kubectl: Kubectl, run: Any) -> None:
    before = kubectl.get("msvc", "chat")
    busier = yaml.safe_load((EXAMPLES / "services.yaml").read_text(encoding="utf-8").split("---")[0])
    busier["spec"]["demand"]["requestsPerSecond"] = 60

    for way in ("server", "client"):
        result = said(run(f"apply -f - --dry-run={way}", busier))
        assert "-    requestsPerSecond: 30" in result
        assert "+    requestsPerSecond: 60" in result
        assert "~ ModelService/default/chat: " in result

    assert kubectl.get("msvc", "chat") == before


def test_diff_ends_with_1_where_something_differs_and_with_2_where_it_could_not_look(run: Any) -> None:
    applied = yaml.safe_load((EXAMPLES / "services.yaml").read_text(encoding="utf-8").split("---")[0])
    busier = {**applied, "spec": {**applied["spec"], "priority": 7}}
    unknown = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "Not A Name"}}

    same, other, refused = (run("diff -f -", each) for each in (applied, busier, unknown))

    assert (same.exit_code, same.stdout) == (0, "")
    assert other.exit_code == 1
    assert "+  priority: 7" in other.stdout
    assert refused.exit_code == 2


def test_applying_twice_changes_nothing(kubectl: Kubectl, run: Any) -> None:
    words = [said(run("apply -f -", gang("again"))) for _ in range(2)] + [said(run("apply -f -", gang("again", 5)))]

    assert [text.split()[-1] for text in words] == ["created", "unchanged", "configured"]
    kubectl("delete", "gang", "again")


def test_a_conflict_names_the_owner_the_field_and_what_helps(kubectl: Kubectl, run: Any) -> None:
    kubectl("apply", "--server-side", "--field-manager", "night-shift", "-f", "-", stdin=gang("contended", 4))

    refused, forced = run("apply -f -", gang("contended")), run("apply -f - --force-conflicts", gang("contended"))

    assert refused.exit_code == 1
    assert '.spec.minMembers: "night-shift"' in refused.stderr
    assert "--force-conflicts" in refused.stderr
    assert forced.exit_code == 0
    assert kubectl.get("gang", "contended")["spec"]["minMembers"] == 2
    kubectl("delete", "gang", "contended")


def test_mistakes_in_a_manifest_stop_everything_before_anything_is_sent(kubectl: Kubectl, run: Any) -> None:
    wrong = {**gang("wrong"), "spec": {"minMember": 2}}

    result = run("apply -f -", [gang("right"), wrong])

    assert result.exit_code == 2
    assert "minMembers" in result.stderr
    assert "right" not in kubectl("get", "gangs", "-o", "name")


def test_a_plan_of_the_cluster_shows_what_would_be_bound_and_at_what_cost(kubectl: Kubectl, run: Any) -> None:
    waiting = pod("waiting", gpus=2, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4"}, **PLACEMENT_GATE)
    kubectl("create", "-f", "-", stdin=waiting)

    shown, plan = said(run("plan")), json.loads(said(run("plan -o json")))
    why = json.loads(said(run("explain pod/waiting -o json")))

    bound = next(each for each in plan["changes"]["pods"] if each["pod"] == "default/waiting")
    assert bound["node_after"].startswith("l4-")
    assert f"+ Pod/default/waiting → {bound['node_after']}" in shown
    assert plan["changes"]["cost_per_hour_after"] == plan["cost_per_hour"]
    assert why["node_after"] == bound["node_after"]
    kubectl("delete", "pod", "waiting")


def test_a_plan_of_the_cluster_keeps_to_the_pools_of_the_operators_settings(kubectl: Kubectl, run: Any) -> None:
    """As the chart stores them; a pod that no pool is placed for waits in the plan as it waits for the operator."""
    labels = {"app.kubernetes.io/name": "tonnage", "app.kubernetes.io/component": "controller"}
    settings = yaml.safe_dump({"pools": [{"placer": "bind", "selector": {}}]})
    stored = {
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "labels": labels},
        "data": {"settings.yaml": settings},
    }
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", **stored})
    kubectl("create", "-f", "-", stdin=pod("gated", gpus=1, **PLACEMENT_GATE))

    plan = json.loads(said(run("plan -o json")))
    kubectl("delete", "configmap", "settings")
    without = json.loads(said(run("plan -o json")))
    kubectl("delete", "pod", "gated")

    (why,) = [each["reason"] for each in plan["unplaced"] if each["workload"] == "Pod/default/gated"]
    assert "another placement mode" in why["words"]
    assert not [each for each in without["unplaced"] if each["workload"] == "Pod/default/gated"]


def test_describe_tells_what_was_decided_and_why_a_pod_waits(kubectl: Kubectl, run: Any) -> None:
    stuck = pod("stuck", gpus=64, **PLACEMENT_GATE)
    stuck["metadata"]["labels"] = {"tonnage.dev/service": "chat"}
    kubectl("create", "-f", "-", stdin=stuck)
    uid = kubectl.get("pod", "stuck")["metadata"]["uid"]
    why = Reason("NoGpuFree", "no node has 64 GPUs")
    told = ReportedDecision("Pod", "default/stuck", "Placing", why, is_warning=True, event=UNPLACED)
    event = event_write(EventSeries(told, uid, began_at_s=1.8e9, last_at_s=1.8e9), epoch=1, instance="test")
    kubectl("create", "-f", "-", stdin=dict(event.body or {}))

    page, events = said(run("describe msvc chat")), said(run("events --warnings"))

    assert "stuck   NoGpuFree: no node has 64 GPUs" in page
    assert "Demand:     30 requests per second" in page
    assert "FailedScheduling   Pod/stuck   NoGpuFree: no node has 64 GPUs" in events
    assert "no node has 64 GPUs" in said(run("events --for pod/stuck -o json"))
    kubectl("delete", "pod", "stuck")


EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x9b31m txt\rover"
FIRST_NODE = "h100-1"
MINE = "gang", "modelservice", "scalingpolicy"
"""Kinds that whoever has `edit` in a namespace writes."""
BY_VERB: dict[str, tuple[str, ...]] = {
    "get": ("pods", "events", *(f"{kind} -A" for kind in MINE), *(f"{kind} evil -o yaml" for kind in ("pod", *MINE)),
            "pod evil -o json", "pod evil -o wide"),
    "describe": ("pod evil", "pod evil-types", *(f"{kind} evil" for kind in MINE), "node NODE"),
    "explain": ("pod/evil", "pod/evil-types", "ModelService/default/evil"), "events": ("", "--for pod/evil"),
    "plan": ("", "-o json"), "advise": ("",), "whatif": ("",), "doctor": ("",), "diff": ("-f FILE",),
    "apply": ("--dry-run=server -f FILE",), "top": ("gpus", "nodes"),
    "drain": ("NODE --dry-run=client",),
    "bundle": ("-o -",),
    "gputypes": ("--from-cluster",), "scaling explain": ("default/evil",),
    "power explain": ("row",),
    "health explain": ("none",), "health advise": ("",), "health release": ("NODE --dry-run=client",),
}  # fmt: skip
"""Arguments of each verb that shows what is in a cluster."""
OF_FILES = {"background serve", "completion", "controlplane down", "controlplane status", "controlplane up", "crds",
            "examples", "operator run", "operator settings", "replay", "run", "simulate day", "simulate placement",
            "simulate power", "scaling backtest", "version", "power headroom", "health heatmap",
            "health replay", "health timeline", "profile estimate", "profile import", "profile measure",
            "profile refine", "sandboxd", "usage"}  # fmt: skip
"""Verbs that read no cluster, but files of the user's own, or the user's own program."""


def verbs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from verbs(found, (*path, name))


def test_every_verb_is_tried_with_what_tenants_write_or_reads_no_cluster() -> None:
    assert sorted([*BY_VERB, *OF_FILES]) == sorted(verbs(tonnage))


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all texts."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, str):
        yield path
    for key, each in inside:
        yield from leaves(each, (*path, key))


def with_evil(obj: Any, path: tuple[str | int, ...]) -> Any:
    changed = at = deepcopy(obj)
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = EVIL
    return changed


@pytest.fixture(scope="module")
def poisoned(kubectl: Kubectl, server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a tenant with `edit` may write, in objects of each kind and in events about them; returns a file of it."""
    asked = {"tonnage.dev/devices": EVIL, "tonnage.dev/movable": EVIL, "tonnage.dev/gang": EVIL}
    evil = pod("evil", gpus=1, annotations={"note": EVIL, **asked}, **PLACEMENT_GATE)
    evil["spec"]["containers"][0] |= {"env": [{"name": "E", "value": EVIL}], "command": [EVIL]}
    types = pod("evil-types", gpus=1, annotations={"tonnage.dev/gpu-types": EVIL}, **PLACEMENT_GATE)
    made, count = [evil, types], 0
    with closing(PlainApi(server.kubeconfig)) as api:
        for kind in (kind for kind in OWN_KINDS if kind.name.lower() in MINE):
            path = f"/apis/{kind.api_version}/namespaces/default/{kind.plural}"
            metadata = {"name": "evil", "namespace": "default", "annotations": {"note": EVIL}}
            obj: Any = {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "metadata": metadata,
                "spec": FULL[kind.name]["spec"],
            }
            for leaf in leaves(obj["spec"], ("spec",)):
                changed = with_evil(obj, leaf)
                if api.send("POST", path, changed, query={"dryRun": "All"}).is_ok:
                    obj, count = changed, count + 1
            made.append(obj)
    assert count >= 5, "the free texts of the templates are among them"
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": made})
    for number, name in enumerate(("Pod", "ModelService", "Gang", "ScalingPolicy")):
        about = {"kind": name, "name": "evil", "namespace": "default"}
        about |= {"uid": kubectl.get(name.lower(), "evil")["metadata"]["uid"]}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"evil.{number}", "namespace": "default"},
                 "involvedObject": about, "reason": EVIL, "message": EVIL, "type": "Warning",
                 "source": {"component": EVIL, "host": EVIL}}  # fmt: skip
        kubectl("create", "-f", "-", stdin=event)
    file = tmp_path_factory.mktemp("evil") / "evil.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "command", [f"{verb} {given}".strip() for verb, several in BY_VERB.items() for given in several]
)
def test_a_terminal_gets_no_control_character_that_a_tenant_wrote(
    command: str, poisoned: Path, server: ControlPlane
) -> None:
    words = shlex.split(command.replace("FILE", str(poisoned)).replace("NODE", FIRST_NODE))
    words = [sys.executable, "-m", "cli.main", *words, "--kubeconfig", str(server.kubeconfig)]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)  # noqa: S603

    text = (shown.stdout + shown.stderr).decode()
    assert text
    assert "Usage:" not in text, text
    assert not [each for each in text.replace("\n", "").replace("\t", "") if not each.isprintable()]


def test_usage_adds_up_to_the_fleet(run: Any) -> None:
    by_type = json.loads(said(run("top gpus -o json")))
    by_node = json.loads(said(run("top nodes -o json")))

    assert by_type["total"]["gpus"] == by_node["total"]["gpus"] == 120
    assert by_type["total"]["cost_per_hour"] == pytest.approx(by_node["total"]["cost_per_hour"])


def test_advice_and_scenarios_of_the_cluster_are_those_of_its_dump(kubectl: Kubectl, run: Any, tmp_path: Path) -> None:
    kinds = ",".join(["nodes", "pods", *(kind.definition for kind in OWN_KINDS if kind.is_planned_from)])
    (tmp_path / "dump.json").write_text(kubectl("get", kinds, "-A", "-o", "json"), encoding="utf-8")

    for verb in ("advise", "whatif"):
        filed = CliRunner().invoke(tonnage, [verb, "-f", str(tmp_path / "dump.json"), "-o", "json"])
        assert without_times(json.loads(said(run(f"{verb} -o json")))) == without_times(json.loads(said(filed)))


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "date"}


def test_a_node_is_drained_as_budgets_allow_and_a_dry_run_leaves_it(kubectl: Kubectl, run: Any) -> None:
    spec = pod("served", nodeName="l4-2", terminationGracePeriodSeconds=0)["spec"]
    template = {"metadata": {"labels": {"app": "served"}}, "spec": spec}
    replicas = {"selector": {"matchLabels": {"app": "served"}}, "replicas": 1, "template": template}
    named = {"metadata": {"name": "served"}}
    kubectl("create", "-f", "-", stdin={"apiVersion": "apps/v1", "kind": "ReplicaSet", **named, "spec": replicas})
    budget = {"selector": {"matchLabels": {"app": "served"}}, "minAvailable": 1}
    disruptions = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **named, "spec": budget}
    kubectl("create", "-f", "-", stdin=disruptions)
    kubectl.wait("condition=Ready", f"pod/{_only_pod(kubectl)}")
    until(lambda: kubectl.get("pdb", "served")["status"]["currentHealthy"] == 1, "the budget counts it")

    looked = run("drain l4-2 --dry-run=client")
    assert "leaves" in said(looked)
    assert not kubectl.get("node", "l4-2")["spec"].get("unschedulable")
    refused = run("drain l4-2 --timeout 1s")
    assert refused.exit_code == 1
    assert "disruption budget" in refused.stderr
    assert kubectl.get("node", "l4-2")["spec"]["unschedulable"]

    kubectl("delete", "pdb", "served")
    kubectl("scale", "rs/served", "--replicas=0")
    until(lambda: not kubectl.get("pods", "-l", "app=served")["items"], "the pods are gone")
    assert "node/l4-2 drained" in said(run("drain l4-2 --timeout 30s"))
    kubectl("uncordon", "l4-2")


def _only_pod(kubectl: Kubectl) -> str:
    until(lambda: kubectl.get("pods", "-l", "app=served")["items"], "the ReplicaSet makes its pod")
    return str(kubectl.get("pods", "-l", "app=served")["items"][0]["metadata"]["name"])


def test_a_drain_goes_on_as_soon_as_a_budget_gives_way(server: ControlPlane, kubectl: Kubectl, run: Any) -> None:
    """Nobody has to call it again."""
    patient = pod("patient", nodeName="l4-2", terminationGracePeriodSeconds=0)
    patient["metadata"]["labels"] = {"app": "patient"}
    kubectl("create", "-f", "-", stdin=patient)
    budget = {"selector": {"matchLabels": {"app": "patient"}}, "minAvailable": 1}
    disruptions = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "patient"}}
    kubectl("create", "-f", "-", stdin={**disruptions, "spec": budget})
    until(lambda: kubectl.get("pdb", "patient")["status"]["currentHealthy"] == 1, "the budget counts it")
    ours = (sys.executable, "-m", "cli.main", "drain", "l4-2", "--force", "--timeout", "90s")

    with watching(*ours, "--kubeconfig", str(server.kubeconfig)) as process:
        lines_until(process, "disruption budget")
        held = kubectl.get("pod", "patient")
        kubectl("patch", "pdb", "patient", "--type=merge", "-p", '{"spec":{"minAvailable":0}}')
        shown = lines_until(process, "drained")
        status = process.wait(30)
    kubectl("delete", "pdb", "patient")
    kubectl("uncordon", "l4-2")

    assert "deletionTimestamp" not in held["metadata"], "what the budget forbids is not done"
    assert any("pod/default/patient evicted" in line for line in shown)
    assert status == 0
    assert kubectl.refusal("get", "pod", "patient")


def test_a_drain_sees_pods_through_until_they_are_gone(kubectl: Kubectl, run: Any) -> None:
    kubectl("create", "-f", "-", stdin=pod("lonely", nodeName="l4-3", terminationGracePeriodSeconds=0))

    held, drained = run("drain l4-3"), run("drain l4-3 --force --timeout 30s")

    assert held.exit_code == 1
    assert "--force deletes it for good" in held.stdout
    assert "pod/default/lonely evicted" in said(drained)
    assert kubectl.refusal("get", "pod", "lonely")
    kubectl("uncordon", "l4-3")


def test_the_doctor_finds_what_is_missing_and_says_what_to_do(kubectl: Kubectl, run: Any) -> None:
    kubectl("label", "node", "l4-4", "nvidia.com/gpu.product=unheard-of", "--overwrite")

    result = run("doctor -o json")
    findings = json.loads(result.stdout)["findings"]
    by_check = {check: [f for f in findings if f["check"] == check] for check in {f["check"] for f in findings}}

    assert result.exit_code == 1  # nobody leads
    assert {f["verdict"] for f in by_check["crds"]} == {"ok"}
    assert by_check["lease"][0]["verdict"] == "failure"
    assert "l4-4" in by_check["nodes"][0]["words"]
    assert all(f["remedy"] for f in findings if f["verdict"] != "ok")
    kubectl("label", "node", "l4-4", "nvidia.com/gpu.product=NVIDIA-L4", "--overwrite")


def test_the_doctor_sees_what_one_may_not(run: Any) -> None:
    result = run("doctor --as somebody")

    assert result.exit_code == 1
    assert "may not list nodes" in result.stdout


def test_kubectl_finds_it_as_a_plugin_and_completes_its_words(
    server: ControlPlane, kubectl: Kubectl, run: Any, tmp_path: Path
) -> None:
    for name, start in (("kubectl-tonnage", "main"), ("kubectl_complete-tonnage", "complete")):
        script = tmp_path / name
        code = f"import sys\nfrom cli.main import {start}\n{start}()\n"
        script.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
        script.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "KUBECONFIG": str(server.kubeconfig),
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }

    def plugin(*words: str) -> str:
        command = [str(kubectl.program), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603

    assert plugin("tonnage", "get", "gput", "-o", "name") == kubectl("get", "gput", "-o", "name")
    assert "Usage: kubectl tonnage get" in plugin("tonnage", "get", "--help")
    assert plugin("__complete", "tonnage", "get", "gputypes", "a1").splitlines()[:2] == ["a100", "a10g"]


@pytest.mark.parametrize("command", commands((ROOT / "docs" / "cli.md").read_text(encoding="utf-8")))
def test_a_command_of_the_page_works(command: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it prints may change with every better plan, so it is not compared."""
    monkeypatch.chdir(ROOT)

    result = run(command)

    assert result.exit_code == (1 if command == "doctor" else 0), result.output  # nobody leads here
    assert result.stdout
