"""Image: its content, its user, and its build steps as far as they run without a container."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cluster.version import VERSION
from tests.deploy.dockerfile import FILE, ROOT, Bench, copied_from_the_context, steps
from tests.deploy.pins import TOOLS, TOOLS_EXTRAS, needed, pinned


def last(word: str) -> str:
    return [step.rest for step in steps() if step.word == word][-1]


def test_the_base_is_one_pinned_tag_for_both_stages() -> None:
    bases = [step.rest.split()[0] for step in steps() if step.word == "FROM"]

    assert set(bases) == {"${BASE}"}
    assert re.fullmatch(r"BASE=python:3\.11\.\d+-slim-\w+", last("ARG"))


def test_it_runs_as_a_user_without_a_name_or_rights() -> None:
    assert last("USER") == "65532:65532"


def test_it_holds_every_package_of_ours_but_the_benchmarks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}

    assert packages - {"benchmarks"} <= set(copied_from_the_context())


def test_only_what_is_copied_is_sent_to_the_builder() -> None:
    ignored = (FILE.parent / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()

    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied_from_the_context())


def test_every_dependency_is_pinned_to_a_version_that_is_asked_for() -> None:
    pins = pinned()

    missing = [str(each) for each in needed() if not each.specifier.contains(pins.get(each.name.lower(), "0"))]
    assert not missing, "run `make constraints`"


def test_tools_of_developers_are_pinned_beside_what_the_image_holds() -> None:
    """A release of a linter or a solver on the morning of a landing must not decide it."""
    pins = {**pinned(), **pinned(TOOLS)}

    missing = [
        str(each) for each in needed(TOOLS_EXTRAS) if not each.specifier.contains(pins.get(each.name.lower(), "0"))
    ]
    assert not missing, "run `make constraints`"
    both = pinned().keys() & pinned(TOOLS).keys()
    assert {name: pinned()[name] for name in both} == {name: pinned(TOOLS)[name] for name in both}


@pytest.mark.slow
def test_its_steps_run_and_end_in_a_command_that_answers(tmp_path: Path) -> None:
    one = next(f"{name}=={version}" for name, version in pinned().items() if name == "mdurl")
    probe = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(tmp_path / "probe"), one],
        capture_output=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip("no package index can be reached")
    bench = Bench(tmp_path)

    for step in steps():
        bench.take(step)

    assert bench.outputs["tonnage version"].startswith(f"tonnage {VERSION} ")
