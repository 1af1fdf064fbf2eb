"""`tonnage explain`: what bears on one object."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import tonnage
from tests.builders.manifests import Object, gang, gpu_type, node, pod, profile, service, written


def run(folder: Path, target: str, *objects: Object, output: str = "json") -> Result:
    file = str(written(folder, objects))
    return CliRunner().invoke(tonnage, ["explain", target, "-f", file, "-o", output])


def explained(folder: Path, target: str, *objects: Object) -> Any:
    result = run(folder, target, *objects)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_pod_shows_the_parts_of_its_score_and_of_the_runners_up(tmp_path: Path) -> None:
    why = explained(tmp_path, "Pod/p1", gpu_type(), node("a", gpus=2), node("b", gpus=8), pod("p1", 2))

    assert why["node_after"] in ("a", "b")
    assert why["candidates"][0]["node"] == why["node_after"]
    assert {candidate["node"] for candidate in why["candidates"]} == {"a", "b"}
    assert all(candidate["terms"] for candidate in why["candidates"])


def test_a_pod_without_a_place_shows_what_was_short_where(tmp_path: Path) -> None:
    why = explained(tmp_path, "pod/default/p1", gpu_type(), node("a", gpus=2), node("b", gpus=0), pod("p1", 4))

    assert why["node_after"] is None
    assert why["shortage"]["figures"] == {"gpus": 2.0, "nodes": 2.0}


def test_a_service_shows_its_reasons_and_its_routing(tmp_path: Path) -> None:
    why = explained(tmp_path, "modelservice/chat", gpu_type(), profile(), service(), node())

    assert why["reasons"]
    assert len(why["routing"]) == 4


def test_a_gang_that_is_held_back_shows_what_one_member_lacks(tmp_path: Path) -> None:
    members = [pod(f"t{n}", 4, labels={"tonnage.dev/gang": "train"}) for n in range(2)]

    why = explained(tmp_path, "Gang/train", gpu_type(), node(gpus=4), gang(min_members=2), *members)

    assert [member["node"] for member in why["members"]] == [None, None]
    assert why["reason"]["code"] == "GangHeldBack"


def test_a_node_shows_what_runs_what_starts_and_what_stays_free(tmp_path: Path) -> None:
    running = pod("old", 1, on="n1", annotations={"tonnage.dev/devices": "3"})

    why = explained(tmp_path, "Node/n1", gpu_type(), node(gpus=4), running, pod("new", 2))

    assert [(p["pod"], p["plan"]) for p in why["pods"]] == [("default/new", "starts"), ("default/old", "runs")]
    assert sorted(why["free"]["gpu_milli"]) == [0, 0, 0, 1000]


@pytest.mark.parametrize("target", ["Pod/p1", "Gang/train", "ModelService/chat", "Node/n1"])
def test_the_table_is_readable_text(tmp_path: Path, target: str) -> None:
    member = pod("p1", 1, labels={"tonnage.dev/gang": "train"})

    result = run(
        tmp_path, target, gpu_type(), profile(), service(), node(), gang(min_members=1), member, output="table"
    )

    assert result.exit_code == 0, result.stderr
    assert target.partition("/")[2] in result.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("Pod/p2", "Pod/default/p2: there is no such object; did you mean default/p1?"),
        ("Pods/p1", "Pods/p1: should be KIND/NAME; did you mean Pod?"),
        ("p1", "p1: should be KIND/NAME; known: Gang, ModelService, Node, Pod"),
        ("Node/n2", "Node/n2: there is no such object; known: n1"),
    ],
)
def test_an_object_that_is_not_there_is_wrong_use(tmp_path: Path, target: str, said: str) -> None:
    result = run(tmp_path, target, node(gpus=0), pod("p1"))

    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in result.stderr


def test_an_instance_that_only_the_plan_has_is_never_suggested(tmp_path: Path) -> None:
    result = run(tmp_path, "Pod/chat-a100-7", gpu_type(), profile(), service(), node(), pod("train-0"))

    assert result.exit_code == 2
    assert "there is no such object" in result.stderr
    assert "default/chat" not in result.stderr.partition("such object")[2]


def test_an_instance_that_is_not_needed_any_more_says_so(tmp_path: Path) -> None:
    def instance(number: int) -> Object:
        labels, types = {"tonnage.dev/service": "chat"}, {"tonnage.dev/gpu-types": "a100"}
        return pod(f"chat-{number}", 1, on="n1", labels=labels, annotations=types)

    instances = [instance(number) for number in range(3)]  # two are enough, see test_plan.py

    why = explained(tmp_path, "Pod/chat-2", gpu_type(), profile(), service(headroom=0.0), node(), *instances)

    assert (why["node_before"], why["node_after"]) == ("n1", None)
    assert why["reason"]["code"] == "CheapestMix"
