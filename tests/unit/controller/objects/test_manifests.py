"""Reading of manifests: valid ones become objects, and every error is reported at its place, all at once."""

import json
from pathlib import Path

import pytest
import yaml

from cluster.errors import ConfigError
from controller.api.core_v1 import POD
from controller.api.gang import KIND as GANG
from controller.api.model_profile import KIND as PROFILE
from controller.api.model_service import KIND as SERVICE
from controller.objects.manifests import read_manifests
from tests.builders.manifests import OURS, gang, gpu_type, having, node, pod, profile, service, written


def mistakes(folder: Path, *objects: object) -> list[str]:
    """The mistakes in a file of these documents, as people read them, without the folder."""
    text = yaml.safe_dump_all(objects, sort_keys=False)
    return mistakes_in(folder, text)


def mistakes_in(folder: Path, text: str, name: str = "f.yaml") -> list[str]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_manifests([str(file)])
    return [str(mistake).removeprefix(f"{folder}/") for mistake in caught.value.mistakes]


def test_every_kind_is_read_in_order_of_names_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    written(tmp_path / "b", [gpu_type("h100"), pod(), gang()])
    written(tmp_path, [node("n2"), node("n1"), gpu_type("a100"), profile(), service()], "z.yml")

    read = read_manifests([str(tmp_path)])

    assert [each.name for each in read.gpu_types] == ["a100", "h100"]
    assert [each.name for each in read.nodes] == ["n1", "n2"]
    assert [each.subject for kind in (POD, GANG, SERVICE, PROFILE) for each in read.by_kind[kind]] == [
        "Pod/default/p1",
        "Gang/default/train",
        "ModelService/default/chat",
        "ModelProfile/m-a100",
    ]


def test_a_list_as_kubectl_prints_it_holds_objects(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("a"), pod()]}))
    bare = {key: value for key, value in node("b").items() if key not in ("kind", "apiVersion")}
    (tmp_path / "m.json").write_text(json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": [bare]}))

    read = read_manifests([str(tmp_path)])

    assert [each.name for each in read.nodes] == ["a", "b"]
    assert [each.name for each in read.pods] == ["default/p1"]


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    file = written(tmp_path, [gpu_type()])

    assert len(read_manifests([str(file), str(tmp_path)]).gpu_types) == 1


def test_objects_of_other_programs_are_passed_over_with_a_note(tmp_path: Path) -> None:
    file = written(tmp_path, [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}] * 2)

    (note,) = read_manifests([str(file)]).notes

    assert (note.about, note.reason.figures) == ("ConfigMap (v1)", {"objects": 2})


def priority_class(name: str, value: object, **fields: object) -> dict[str, object]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            **fields}  # fmt: skip


def test_a_pod_has_the_priority_of_its_class_or_of_the_default_one(tmp_path: Path) -> None:
    classes = [
        priority_class("high", 1000, preemptionPolicy="Never"),
        priority_class("usual", 7, globalDefault=True),
        priority_class("other", 9, globalDefault=True),  # of two defaults the lower one counts
    ]
    pods = [pod("named"), pod("silent"), pod("written"), pod("unknown")]
    pods[0]["spec"]["priorityClassName"] = pods[2]["spec"]["priorityClassName"] = "high"
    pods[2]["spec"]["priority"] = 3
    pods[3]["spec"]["priorityClassName"] = "gone"

    read = read_manifests([str(written(tmp_path, [*pods, *classes]))])

    found = {each.name.partition("/")[2]: (each.object.spec.priority, each.object.spec.preemption_policy)
             for each in read.pods}  # fmt: skip
    assert found == {
        "named": (1000, "Never"),
        "silent": (7, "PreemptLowerPriority"),
        "written": (3, ""),
        "unknown": (None, ""),
    }


def test_pods_of_a_template_have_the_priority_of_its_class(tmp_path: Path) -> None:
    spec = {**pod()["spec"], "priorityClassName": "high"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}

    read = read_manifests([str(written(tmp_path, [node(), job, priority_class("high", 50)]))])

    assert [each.object.spec.priority for each in read.pods] == [50]


def test_a_class_without_a_number_is_a_mistake(tmp_path: Path) -> None:
    (said,) = mistakes(tmp_path, priority_class("odd", "much"))

    assert "PriorityClass/odd, value: is 'much'" in said


def test_an_object_without_a_name_gets_one_from_its_place(tmp_path: Path) -> None:
    """kubectl create has the API server name it; a plan of the same files names it alike each time."""
    unnamed = having(pod(), "metadata", {"generateName": "train-"})
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "x" * 80}, "spec": {
        "template": {"spec": pod()["spec"]}}}  # fmt: skip

    read = read_manifests([str(written(tmp_path, [node(), unnamed, unnamed, job]))])

    assert [each.name for each in read.pods] == [
        "default/train-00001",
        "default/train-00002",
        f"default/{'x' * 58}00001-0",
    ]


def test_a_workload_of_which_no_pod_is_planned_is_left_out_with_what_it_asks_for(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"habana.ai/gaudi": 8}}}]}}
    cron = {"apiVersion": "example.com/v1", "kind": "Nightly", "metadata": {"name": "nightly", "namespace": "ml"},
            "spec": {"jobTemplate": {"spec": {"template": template}}}}  # fmt: skip
    held = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"suspend": True, "template": template}}  # fmt: skip
    plain = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {}}

    without_nodes = read_manifests([str(written(tmp_path, [cron, held, plain]))])
    with_nodes = read_manifests([str(written(tmp_path, [node(), cron, held, plain]))])

    assert [(e.kind, e.pod, e.code) for e in with_nodes.unread] == [
        ("Nightly", "ml/nightly", "KindNotRead"),
        ("Job", "j", "Suspended"),
    ]
    assert "asks for habana.ai/gaudi: 8" in with_nodes.unread[0].words
    assert [each.code for each in without_nodes.unread] == ["KindNotRead", "NoNodes"]


def test_kinds_that_decide_where_pods_go_are_kept_as_they_are_written(tmp_path: Path) -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {"x": None}}

    read = read_manifests([str(written(tmp_path, [claim]))])

    assert [(each.name, each.content["spec"]) for each in read.beside("PersistentVolumeClaim")] == [
        ("default/data", {})
    ]
    assert read.notes == ()


def test_all_mistakes_in_all_files_are_named_at_once(tmp_path: Path) -> None:
    first = written(tmp_path, [having(gpu_type(), "spec.memory", "80 GB")], "a.yaml")
    second = written(tmp_path, [gang(), having(gang("g2"), "spec.minMembers", 0)], "b.yaml")

    with pytest.raises(ConfigError) as caught:
        read_manifests([str(first), str(second), str(tmp_path / "none")])

    assert [mistake.place.removeprefix(f"{tmp_path}/") for mistake in caught.value.mistakes] == [
        "none",
        "a.yaml, document 1 (line 9), GPUType/a100, spec.memory",
        "b.yaml, document 2 (line 13), Gang/default/g2, spec.minMembers",
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            having(profile(), "spec.throughput.0.requestsPerSecond.0.1", float("nan")),
            "spec.throughput[0].requestsPerSecond[0][1]: should be a finite number, not nan",
        ),
        (
            having(profile(), "spec.throughput.0.requestsPerSecond.1.0", -2),
            "spec.throughput[0].requestsPerSecond[1][0]: should be greater than or equal to 0, not -2",
        ),
        (
            having(profile(), "spec.throughput.0.requestsPerSecond.1.0", None),
            "spec.throughput[0].requestsPerSecond[1][0]: should be a valid number, not null",
        ),
        (
            having(profile(), "spec.throughput.0.requestsPerSecond", [[0, 0], [0, 0]]),
            "spec.throughput[0].requestsPerSecond: is zero in every bucket",
        ),
        (
            having(profile(), "spec.throughput.0.requestsPerSecond", [[8, 4]]),
            "spec.throughput[0].requestsPerSecond: has 1 row(s), inputTokens has 2 edge(s)",
        ),
        (
            having(profile(), "spec.throughput.0.requestsPerSecond.1", [1]),
            "spec.throughput[0].requestsPerSecond[1]: has 1 number(s), outputTokens has 2 edge(s)",
        ),
        (
            having(profile(), "spec.grid.inputTokens", [1000, 100]),
            "spec.grid.inputTokens[1]: is 100 after 1000; edges rise strictly",
        ),
        (
            having(profile(), "spec.throughput", profile()["spec"]["throughput"] * 2),
            "spec.throughput[1].slo.tpot: occurs twice in this profile",
        ),
        (
            having(profile(), "spec.throughput.0.slo.tpot", 40),
            "spec.throughput[0].slo.tpot: should be a duration with its unit, like 40ms or 30s, not 40",
        ),
        (
            having(service(), "spec.demand.histogram", [[0.5, 0.25], [0.125, 0.5]]),
            "spec.demand.histogram: adds up to 1.375",
        ),
        (
            having(service(), "spec.demand.requestsPerSecond", float("inf")),
            "spec.demand.requestsPerSecond: should be a finite number, not inf",
        ),
        (having(service(), "spec.headroom", 1.0), "spec.headroom: should be less than 1, not 1.0"),
        (having(service(), "spec.split", "equal"), "spec.split: should be 'sliced' or 'continuous', not 'equal'"),
        (
            having(service(), "spec.gpuTypes", ["a100", "a100"]),
            "spec.gpuTypes[1]: names a100 a second time",
        ),
        (having(service(), "spec.sloo", {}), "spec.sloo: there is no such field; did you mean slo?"),
        (
            having(service(), "spec.demand.request_rate", 3),
            "spec.demand.request_rate: there is no such field; known: batch, histogram, inputTokens",
        ),
        (having(gang(), "spec.minMembers", "8"), "spec.minMembers: should be a valid integer, not '8'"),
        (having(gang(), "spec.topology", {"within": "a b"}), "spec.topology.within: 'a b' is not allowed"),
        (
            having(gpu_type(), "metadata.name", "A100"),
            "metadata.name: 'A100' is not allowed; names consist of lower-case",
        ),
        (having(gpu_type(), "metadata.namespace", "x"), "metadata.namespace: a GPUType has no namespace"),
        (having(gpu_type(), "spec.pricePerHour", {}), "spec.pricePerHour: should have either onDemand or owned"),
        (having(gpu_type(), "spec.pricePerHour.onDemand", 0), "should be greater than 0, not 0"),
        (having(gpu_type(), "spec.nodeLabel.values", [True]), "values[0]: should be text, not true; put it in quotes"),
        (having(pod(), "spec.containers", []), "spec.containers: "),
        (
            having(pod(), "spec.containers.0.resources.requests.cpu", "1,5"),
            "spec.containers[0].resources.requests.cpu: should be a quantity like 500m, 1.5 or 16Gi, not '1,5'",
        ),
    ],
)
def test_what_is_wrong_in_an_object_is_said_at_its_field(tmp_path: Path, wrong: dict[str, object], said: str) -> None:
    (found,) = mistakes(tmp_path, wrong)

    assert found.startswith("f.yaml, document 1 (line ")
    assert said in found


def test_two_objects_of_one_name_are_a_mistake_that_names_both_places(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, gpu_type(), gang(), gpu_type())

    assert found.startswith("f.yaml, document 3 (line ")
    assert "GPUType/a100, metadata.name: occurs a second time, first in " in found
    assert found.endswith("f.yaml, document 1 (line 1); keep one of them")


def test_a_pod_may_have_the_name_of_a_pod_in_another_namespace(tmp_path: Path) -> None:
    file = written(tmp_path, [pod(), having(pod(), "metadata.namespace", "other")])

    assert [each.name for each in read_manifests([str(file)]).pods] == ["default/p1", "other/p1"]


@pytest.mark.parametrize(
    ("version", "kind", "said"),
    [
        (OURS, "ModelServce", "kind: there is no kind ModelServce; did you mean ModelService?"),
        ("tonnage.dev/v1", "Gang", f"apiVersion: is tonnage.dev/v1; write {OURS}"),
        ("v1", "gang", f"apiVersion: gang is not of v1; write apiVersion: {OURS}, kind: Gang"),
        ("v1", "Pods", "kind: there is no kind Pods; did you mean Pod?"),
        ("core/v1", "GPUType", f"apiVersion: GPUType is not of core/v1; write apiVersion: {OURS}, kind: GPUType"),
    ],
)
def test_a_misspelt_kind_is_not_passed_over(tmp_path: Path, version: str, kind: str, said: str) -> None:
    (found,) = mistakes(tmp_path, {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}})

    assert found.endswith(said)


def test_a_key_that_stands_twice_is_a_mistake(tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  name: b\n"

    assert mistakes_in(tmp_path, text) == [
        "f.yaml, document 1 (line 5): the key 'name' appears twice, first in line 4; keep one of them"
    ]
    assert "the key 'a' appears twice" in mistakes_in(tmp_path, '{"a": 1, "a": 2}', "f.json")[0]


def test_text_that_is_no_yaml_is_said_with_its_line(tmp_path: Path) -> None:
    (found,) = mistakes_in(tmp_path, "# a comment\na: [1, 2\nb: 3\n")

    assert found.startswith("f.yaml, document 1, line 3")
    assert "is not YAML" in found


def test_an_alias_that_contains_itself_is_a_mistake(tmp_path: Path) -> None:
    (found,) = mistakes_in(tmp_path, "a: &a\n  b: *a\n")

    assert "contains itself" in found


@pytest.mark.parametrize("text", ["- 1\n", "just text\n", "3\n"])
def test_a_document_that_is_no_object_is_a_mistake(tmp_path: Path, text: str) -> None:
    (found,) = mistakes_in(tmp_path, text)

    assert "not an object" in found


def test_empty_documents_are_passed_over_but_counted(tmp_path: Path) -> None:
    (found,) = mistakes_in(tmp_path, "---\n# nothing\n---\nkind: Gang\n")

    assert found.startswith("f.yaml, document 2 (line 4), apiVersion: is missing")


@pytest.mark.parametrize("nothing", ["", "---\n", "# nothing\n"])
def test_a_file_without_objects_beside_others_is_noted(tmp_path: Path, nothing: str) -> None:
    (tmp_path / "empty.yaml").write_text(nothing, encoding="utf-8")
    (tmp_path / "f.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n", encoding="utf-8")

    notes = read_manifests([str(tmp_path)]).notes

    assert [(note.about, note.reason.words) for note in notes] == [(str(tmp_path / "empty.yaml"), "holds no objects")]


def test_nothing_at_all_is_a_mistake(tmp_path: Path) -> None:
    assert mistakes_in(tmp_path, "# nothing\n") == [
        "manifests: there is nothing to read; name files or folders that hold objects"
    ]


def test_plain_words_stay_words(tmp_path: Path) -> None:
    """In YAML 1.1 `no` is false, `1:30` is 90, `010` is 8 and a date is a date; labels mean none of these."""
    labels = "{country: no, ratio: 1:30, code: 010, day: 2024-01-01, exponent: 1e3x, empty: ''}"
    file = tmp_path / "f.yaml"
    file.write_text(f"apiVersion: v1\nkind: Node\nmetadata: {{name: n, labels: {labels}}}\n", encoding="utf-8")

    (read,) = read_manifests([str(file)]).nodes

    assert read.object.metadata.labels == {
        "country": "no",
        "ratio": "1:30",
        "code": "010",
        "day": "2024-01-01",
        "exponent": "1e3x",
        "empty": "",
    }


def test_null_means_left_out_as_the_api_server_sees_it(tmp_path: Path) -> None:
    wanted = having(gpu_type(), "spec.inventory", None)
    file = written(tmp_path, [having(wanted, "metadata.labels", None)])

    assert read_manifests([str(file)]).gpu_types[0].object.spec.inventory is None
