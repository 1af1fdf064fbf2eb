"""Ray is needed only by the process that drives it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HIDE = "import sys; from tests.without_ray import Hides; sys.meta_path.insert(0, Hides()); "


def run_hidden(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", HIDE + code], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.parametrize("module", ["controller.process.main", "controller.background.driver", "cli.main"])
def test_it_can_be_imported_without_ray(module: str) -> None:
    run = run_hidden(f"import {module}")

    assert run.returncode == 0, run.stderr


def test_what_hides_ray_hides_it() -> None:
    assert "hidden" in run_hidden("import ray").stderr


def test_a_driver_without_ray_says_what_is_missing() -> None:
    code = (
        "from controller.background.on_ray import DriverStart, connect\n"
        "from cluster.errors import ConfigError\n"
        "try:\n    connect(DriverStart('embedded', '/nowhere'))\n"
        "except ConfigError as error:\n    print(error)"
    )

    assert "ray.mode: Ray cannot be imported" in run_hidden(code).stdout


def test_an_operator_without_ray_runs_background_work_in_one_process() -> None:
    code = (
        "from controller.background.host import background_from\n"
        "from controller.metrics.registry import Meter\n"
        "from controller.settings import settings_from\n"
        "host = background_from(settings_from({}), Meter())\n"
        "print([peer.start.mode for peer in host.peers])\n"
        "host.close()"
    )

    assert run_hidden(code).stdout == "['none']\n"


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "placement", "--generate", "60", "--ray", "embedded"],
        [
            "background",
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
    ids=["sweep", "serve"],
)
def test_a_command_that_needs_ray_says_at_once_how_to_install_it(words: list[str]) -> None:
    run = run_hidden(f"from cli.main import run; sys.exit(run({words!r}))")

    assert run.returncode == 2, run.stderr
    assert "Ray is not installed; pip install 'tonnage[ray]', or leave it out" in run.stderr
    assert "warning" not in run.stderr
