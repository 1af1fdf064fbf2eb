"""Release: the workflow names what exists, versions agree with the tag, and the files are valid."""

import re
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cluster.version import VERSION
from deploy import release_files
from deploy.release_files import NoHelmError
from tests.deploy.pins import CHECKSUM, HASHED, IMAGE_EXTRAS, TOOLS_EXTRAS, pinned

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
COMMANDS = "\n".join(
    step.get("run", "") for job in WORKFLOW["jobs"].values() for step in job["steps"]
)  # fmt: skip


def steps_of(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = WORKFLOW["jobs"][job]["steps"]
    return found


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_named_by_digest_and_targets_exist(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]

    assert workflow["permissions"] == {"contents": "read"}
    uses = [step["uses"] for step in steps if "uses" in step]
    assert [each for each in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []
    assert set(re.findall(r"^make ([\w-]+)", "\n".join(step.get("run", "") for step in steps), re.MULTILINE)) <= TARGETS


def test_every_dependency_has_a_bound_on_both_sides() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needs = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    needs += [each for group in project["project"]["optional-dependencies"].values() for each in group]

    assert [each for each in needs if "==" not in each.partition(";")[0] and not (">=" in each and "<" in each)] == []


def test_the_pythons_that_are_tested_are_those_that_are_named() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if "Python :: 3." in each]

    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_every_target_and_command_of_the_workflow_exists() -> None:
    subcommands = re.findall(r"-m deploy\.release_files (\w+)", COMMANDS)
    targets = re.findall(r"^make ([\w-]+)", COMMANDS, re.MULTILINE)

    assert set(targets) >= {"check", "test", "release"}
    assert set(targets) <= TARGETS
    assert set(subcommands) == {"check", "krew"}
    assert set(subcommands) <= set(release_files.main.commands)


def test_every_file_that_the_workflow_builds_from_exists() -> None:
    (build,) = (step["with"] for step in steps_of("image") if "build-push" in step.get("uses", ""))
    (upload,) = (step["with"]["path"] for step in steps_of("build") if "upload" in step.get("uses", ""))

    assert (ROOT / build["file"]).is_file()
    assert all((ROOT / path).is_file() for path in re.findall(r"\bdeploy/[\w./-]+", COMMANDS))
    assert f"release_files build {upload}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_jobs_wait_for_jobs_that_exist_and_nothing_is_published_unchecked() -> None:
    jobs = WORKFLOW["jobs"]
    needs = {name: {job["needs"]} if isinstance(job.get("needs"), str) else set(job.get("needs", ())) for name, job in jobs.items()}  # fmt: skip # noqa: E501

    def before(name: str) -> set[str]:
        return needs[name].union(*(before(each) for each in needs[name]))

    assert set().union(*needs.values()) <= set(jobs)
    assert all("check" in before(name) for name in jobs if name != "check")


def test_the_image_is_built_for_both_architectures_on_a_base_pinned_by_digest_with_an_sbom() -> None:
    (build,) = (step["with"] for step in steps_of("image") if "build-push" in step.get("uses", ""))
    base = WORKFLOW["env"]["BASE"]

    assert build["platforms"] == "linux/amd64,linux/arm64"
    assert build["sbom"] is True
    assert build["build-args"] == "BASE=${{ steps.base.outputs.reference }}"
    assert f"ARG BASE={base}\n" in (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    assert "$BASE@$digest" in COMMANDS


def test_only_a_tag_of_the_version_is_released() -> None:
    run = CliRunner().invoke(release_files.main, ["check", f"v{VERSION}"])
    other = CliRunner().invoke(release_files.main, ["check", "v99.0.0"])

    assert run.exit_code == 0, run.output
    assert other.exit_code == 1
    assert all(
        place in other.output
        for place in (
            "pyproject.toml",
            "deploy/client/pyproject.toml",
            "cluster/version.py",
            "chart tonnage",
            "chart crds",
        )
    )


def test_every_pinned_package_has_checksums() -> None:
    parts = re.split(r"^(?=[a-z0-9-]+==)", HASHED.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]

    assert pinned(HASHED) == pinned(), "run `make constraints`"
    assert [each for each in parts if not CHECKSUM.search(each)] == []


def test_what_pins_names_the_extras_and_the_python_of_the_image() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nconstraints:")[2].partition("\n.PHONY")[0]

    assert {f"--extra {each}" for each in (*IMAGE_EXTRAS, *TOOLS_EXTRAS)} <= set(re.findall(r"--extra \w+", recipe))
    assert "--python-version 3.11 " in recipe
    assert "FROM ${BASE}" in (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")


def test_the_krew_manifest_names_each_archive_with_its_checksum(tmp_path: Path) -> None:
    """The rules are those of krew's validator: names, version, and what each platform must have."""
    for platform in release_files.PLATFORMS:
        (tmp_path / release_files.archive_name(platform)).write_bytes(platform.encode())

    run = CliRunner().invoke(release_files.main, ["krew", str(tmp_path), "--repository", "owner/tonnage"])

    assert run.exit_code == 0, run.output
    made = yaml.safe_load((tmp_path / "tonnage.yaml").read_text(encoding="utf-8"))
    assert (made["apiVersion"], made["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert made["metadata"]["name"] == "tonnage"
    assert made["spec"]["version"] == f"v{VERSION}"
    assert len(made["spec"]["shortDescription"]) <= 50
    assert not made["spec"]["shortDescription"].endswith(".")
    platforms = made["spec"]["platforms"]
    assert [each["selector"]["matchLabels"] for each in platforms] == [
        {"os": "linux", "arch": "amd64"},
        {"os": "linux", "arch": "arm64"},
    ]
    for each in platforms:
        assert each["uri"].startswith(f"https://github.com/owner/tonnage/releases/download/v{VERSION}/kubectl-tonnage-")
        assert re.fullmatch(r"[0-9a-f]{64}", each["sha256"])
        assert each["bin"] == "kubectl-tonnage"
    assert platforms[0]["sha256"] != platforms[1]["sha256"]


def test_a_krew_manifest_without_an_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / release_files.archive_name("linux-amd64")).write_bytes(b"x")

    run = CliRunner().invoke(release_files.main, ["krew", str(tmp_path), "--repository", "owner/tonnage"])

    assert run.exit_code == 1
    assert "kubectl-tonnage-linux-arm64.tar.gz" in run.output


@pytest.mark.chart
def test_the_packaged_chart_has_its_schema_and_its_kinds(tmp_path: Path) -> None:
    try:
        package = release_files.chart_package(tmp_path)
    except NoHelmError as missing:
        pytest.skip(str(missing))

    with tarfile.open(package) as archive:
        names = archive.getnames()
    assert "tonnage/values.schema.json" in names
    assert any(name.startswith("tonnage/charts/crds/") for name in names)
