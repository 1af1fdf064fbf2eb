"""`tonnage bundle` and `tonnage replay`: what an operator recorded, fetched from where it serves it, and played."""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import tonnage
from cli.verbs.bundle import brain_with
from cluster.actions import Bind
from cluster.plans import Phase, Plan, Reason, Step
from cluster.workloads import ModelService
from controller.cycle import Cycle, run_cycle, stopped
from controller.guard import Limits
from controller.ports import Outcome
from controller.process.main import Recorder, probes_endpoint
from controller.recording.bundle import settings_from
from simulator.world import SimulatedWorld
from tests.builders.fleet import node, pod, world
from tests.builders.mix import of_types, service

FLEET = world([node("a", gpus=2), node("b", gpus=2)], [pod("d/one", 1), pod("d/two", 2)], at_s=1_767_225_600.0)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tonnage, list(arguments))


def decided() -> Cycle:
    """A cycle of today's deciders."""
    settings, _ = settings_from({})
    return run_cycle(SimulatedWorld(FLEET), brain_with(settings, stopped), Limits(), 60.0)


def decided_otherwise() -> Cycle:
    """A cycle of other deciders: one pod is put on the node where the two should go, the other nowhere."""
    phase = Phase("pack", (Step(Bind("d/one", "b", (1,)), Reason("Whim", "why not")),))
    plan = Plan((phase,), cut_short=(Reason("DeadlinePassed", "2 s were over"),))
    return Cycle(FLEET, plan, Outcome(done=tuple(plan.steps())), wanted=plan)


def served(*cycles: Cycle, **settings: Any) -> Iterator[str]:
    recorder = Recorder(settings_from({"identity": "operator-1", **settings})[0])
    for cycle in cycles:
        recorder.put(cycle)
    with probes_endpoint("127.0.0.1", 0, {"/healthz": lambda: None}, recorder) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def address() -> Iterator[str]:
    yield from served(decided())


@pytest.fixture
def other_address() -> Iterator[str]:
    yield from served(decided_otherwise())


@pytest.fixture
def silent_address() -> Iterator[str]:
    yield from served(record={"enabled": False})


def fetched(address: str, folder: Path) -> str:
    file = str(folder / "bundle.tar.gz")
    result = run("bundle", "--from", address, "-o", file)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{file}\n"
    return file


def test_a_bundle_is_fetched_and_holds_what_people_and_programs_read(address: str, tmp_path: Path) -> None:
    with tarfile.open(fetched(address, tmp_path)) as tar:
        files = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]

    readable = {"bundle.json", "cycles.json", "decisions.json", "events.json", "fetched.json", "latest-snapshot.json"}
    assert {name for name in files if not name.startswith("frames/")} == readable
    assert json.loads(files["latest-snapshot.json"])["nodes"]["names"] == ["a", "b"]
    (cycle,) = json.loads(files["decisions.json"])
    assert (cycle["at"], cycle["by"]) == ("2026-01-01T00:00:00Z", "operator-1")
    assert {action["pod"] for action in cycle["done"]} == {"d/one", "d/two"}
    assert json.loads(files["bundle.json"])["settings"]["policy"] == "tonnage"


def test_unreadable_parts_are_noted_on_standard_error_and_in_the_bundle(address: str, tmp_path: Path) -> None:
    file = str(tmp_path / "b.tar.gz")

    result = run("bundle", "--from", address, "-o", file)

    assert "note: left out: Events: neither --context nor --kubeconfig names a cluster" in result.stderr
    with tarfile.open(file) as tar:
        noted = json.load(tar.extractfile("fetched.json"))  # type: ignore[arg-type]
    assert len(noted["left_out"]) == 1


def test_a_bundle_can_go_to_standard_output(address: str, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(run("bundle", "--from", address, "-o", "-").stdout_bytes)

    assert run("replay", str(file)).exit_code == 0


def test_a_replay_that_decides_the_same_is_exit_status_0(address: str, tmp_path: Path) -> None:
    result = run("replay", fetched(address, tmp_path))

    assert (result.exit_code, result.stdout) == (0, "1 cycles replayed: 1 the same, 0 different.\n")


def test_a_replay_that_differs_shows_the_difference_and_exits_with_1(other_address: str, tmp_path: Path) -> None:
    file = fetched(other_address, tmp_path)

    result, as_json = run("replay", file), run("replay", file, "-o", "json")

    assert (result.exit_code, as_json.exit_code) == (1, 1)
    assert "cycle 1: + Bind d/two" in result.stdout
    assert "cycle 1: time cut the recorded plan short: 2 s were over" in result.stdout
    assert result.stdout.endswith("1 cycles replayed: 0 the same, 1 different.\n")
    (cycle,) = json.loads(as_json.stdout)["cycles"]
    assert [step["pod"] for step in cycle["added"]] == ["d/two"]
    assert [both["before"]["devices"] for both in cycle["changed"]] == [[1]]
    assert not cycle["is_same"]


def test_one_cycle_can_be_selected(address: str, tmp_path: Path) -> None:
    file = fetched(address, tmp_path)

    assert "1 cycles replayed" in run("replay", file, "--cycle", "1").stdout
    missing = run("replay", file, "--cycle", "9")
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "--cycle 9: is not in the bundle" in missing.stderr


@pytest.mark.parametrize("content", [None, b"junk"])
def test_what_is_no_bundle_is_wrong_input(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    if content is not None:
        file.write_bytes(content)

    result = run("replay", str(file))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "b.tar.gz" in result.stderr


def test_an_address_that_does_not_answer_has_failed(tmp_path: Path) -> None:
    result = run("bundle", "--from", "http://127.0.0.1:1", "-o", str(tmp_path / "b"))

    assert result.exit_code == 1
    assert "http://127.0.0.1:1/debug/bundle" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_address_is_wrong_usage(tmp_path: Path) -> None:
    result = run("bundle", "--from", "file:///etc/passwd", "-o", str(tmp_path / "b"))

    assert result.exit_code == 2
    assert "should be an operator's http://HOST:PORT" in result.stderr


def test_an_operator_that_records_nothing_serves_nothing(silent_address: str, tmp_path: Path) -> None:
    result = run("bundle", "--from", silent_address, "-o", str(tmp_path / "b"))

    assert result.exit_code == 1
    assert "Not Found" in result.stderr


def test_figures_by_instance_type_are_written_by_its_name(tmp_path: Path) -> None:
    """Whatever field of a service has them: JSON has no keys of several fields."""
    known = [each.name for each in fields(ModelService) if "Mapping[cluster.workloads.InstanceType" in str(each.type)]
    held = replace(service("d/chat"), placement_modes={"A100": "gate"}, **dict.fromkeys(known, of_types({"A100": 3})))
    cycle = replace(decided(), snapshot=replace(FLEET, services=(held,)))

    for address in served(cycle):
        with tarfile.open(fetched(address, tmp_path)) as tar:
            content = tar.extractfile("latest-snapshot.json")
            assert content is not None
            (written,) = json.load(content)["services"]
    assert len(known) >= 3
    assert [written[each] for each in known] == [{"A100": 3}] * len(known)
