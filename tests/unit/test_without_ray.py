"""Ray is needed only by the process that drives it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HIDE = "import sys; from tests.without_ray import Hides; sys.meta_path.insert(0, Hides()); "


def run_hidden(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", HIDE + code], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.parametrize(
    "module", ["controller.process.main", "controller.brain.remote", "controller.brain.on_ray.process", "cli.main"]
)
def test_it_can_be_imported_without_ray(module: str) -> None:
    run = run_hidden(f"import {module}")

    assert run.returncode == 0, run.stderr


def test_what_hides_ray_hides_it() -> None:
    assert "hidden" in run_hidden("import ray").stderr


def test_a_brain_process_without_ray_says_what_is_missing() -> None:
    code = (
        "from controller.brain.on_ray.ray_start import RayStart, connect\n"
        "from cluster.errors import ConfigError\n"
        "try:\n    connect(RayStart(folder='/nowhere'))\n"
        "except ConfigError as error:\n    print(error)"
    )

    assert "brain.mode: Ray cannot be imported" in run_hidden(code).stdout


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "day", "-f", "examples", "--brain", "embedded"],
        [
            "brain",
            "serve",
            "--listen",
            ":0",
            "--token-file",
            "LICENSE",
            "--ray-address",
            "h:1",
            "--ray-token-file",
            "x",
        ],
    ],
    ids=["day", "serve"],
)
def test_a_command_that_needs_ray_says_at_once_how_to_install_it(words: list[str]) -> None:
    run = run_hidden(f"from cli.main import run; sys.exit(run({words!r}))")

    assert run.returncode == 2, run.stderr
    assert "Ray is not installed; pip install 'tonnage[ray]', or leave it out" in run.stderr
    assert "warning" not in run.stderr
