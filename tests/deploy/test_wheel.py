"""Wheel: it holds what its messages name, and its commands run outside the repository, beside folders of any name."""

import os
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import PathDistribution, version
from pathlib import Path
from shutil import copytree, ignore_patterns
from sysconfig import get_path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from cluster.version import VERSION
from deploy.release_files import client_wheel
from simulator.controlplane.binaries import PACKAGES, cache_folder

ROOT = Path(__file__).parents[2]
LEFT = ignore_patterns(".*", "out", "build", "*.egg-info", "__pycache__", "tests", "benchmarks")
HIDES = "import sys; sys.modules.update(dict.fromkeys({hidden!r}))"


@dataclass(frozen=True)
class Installed:
    """Wheel in a folder of its own, and a place to run it in."""

    site: Path
    place: Path

    def run(self, *words: str, hidden: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """A command, as the script that pip makes runs it, in a folder with a `cli/` and a `cluster.py`.

        hidden: libraries that are as good as not installed.
        """
        point = next(each for each in PathDistribution(next(self.site.glob("*.dist-info"))).entry_points
                     if each.name == "tonnage")  # fmt: skip
        before = HIDES.format(hidden=hidden)
        code = f"{before}; sys.argv[0] = 'tonnage'; import {point.module} as command; command.{point.attr}()"
        # The libraries are those of the tests; -S leaves out the path entry of an editable install among them.
        start = f"import sys; sys.path += {[str(self.site), get_path('purelib')]!r}; {code}"
        return subprocess.run(  # noqa: S603
            [sys.executable, "-S", "-c", start, *words],
            cwd=self.place,
            env={**os.environ, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built from a copy, so that nothing is left behind in the source tree, and without a network."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = Requirement(project["build-system"]["requires"][0])
    if not needed.specifier.contains(version("setuptools")):
        pytest.skip(f"building a wheel without a network needs {needed}; make install brings it")
    folder = tmp_path_factory.mktemp("wheel")
    copytree(ROOT, folder / "source", ignore=LEFT, symlinks=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([*pip, "wheel", *offline, "-w", str(folder), str(folder / "source")], check=True)  # noqa: S603
    wheel = next(folder.glob("tonnage-*.whl"))
    subprocess.run(  # noqa: S603
        [*pip, "install", *offline, "--no-compile", "--target", str(folder / "site"), str(wheel)], check=True
    )
    place = folder / "place"
    (place / "cli").mkdir(parents=True)
    (place / "cli" / "__init__.py").write_text("raise SystemExit('the wrong cli')", encoding="utf-8")
    (place / "cluster.py").write_text("raise SystemExit('the wrong cluster')", encoding="utf-8")
    return Installed(folder / "site", place)


@pytest.mark.slow
def test_what_the_wheel_holds_runs_outside_the_repository(installed: Installed) -> None:
    def text(*words: str, hidden: tuple[str, ...] = ()) -> str:
        done = installed.run(*words, hidden=hidden)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert not (installed.site / "benchmarks").exists()
    assert (installed.site / "simulator" / "controlplane" / "modules" / "go.sum").exists()
    assert text("version").startswith(f"tonnage {VERSION} ")
    assert "name: modelservices.tonnage.dev" in text("crds")
    assert text("examples", "mine").split() == ["mine/examples", "mine/cluster-walk", "mine/chart"]
    assert (installed.place / "mine" / "chart" / "Chart.yaml").exists()
    optional = ("ray", "matplotlib", "jinja2")
    assert "default/chat" in text("plan", "-f", "mine/examples", hidden=optional)
    assert "$" in text("advise", "-f", "mine/examples", hidden=optional)
    small = ("simulate", "placement", "--generate", "5", "--seeds", "1", "--policies", "bestfit")
    assert "bestfit" in text(*small, hidden=optional)
    refused = installed.run(*small, "--report", "x.html", hidden=optional)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (
        1,
        "error: this needs matplotlib, which is not installed: pip install 'tonnage[reports]'",
    )


@pytest.mark.slow
def test_a_control_plane_of_the_wheel_has_the_programs_that_the_source_tree_builds(installed: Installed) -> None:
    """The key of their cache is a checksum of the Go module; another one would build Kubernetes again."""
    built = cache_folder()
    if not all((built / name).exists() for name in PACKAGES):
        pytest.skip(f"{built} has not all programs of a control plane; make controlplane builds them")

    dry = installed.run("controlplane", "up", "--dir", "here", "--nodes", "2", "--dry-run")

    assert dry.returncode == 0, dry.stderr
    assert f"{built / 'kube-apiserver'} " in dry.stdout
    (nodes,) = (line for line in dry.stdout.splitlines() if "-m simulator.controlplane.nodes" in line)
    command = [
        *shlex.split(nodes.partition(" simulator.controlplane.nodes")[0].rpartition(": ")[2]),
        "simulator.controlplane.nodes",
    ]
    beside = {**os.environ, "PYTHONPATH": str(installed.site)}
    started = subprocess.run([*command, "--help"], cwd=installed.place, env=beside, capture_output=True, check=False)  # noqa: S603
    assert started.returncode == 0, started.stderr


@pytest.mark.slow
def test_what_jobs_and_agents_install_holds_the_package_that_they_import_and_nothing_else(tmp_path: Path) -> None:
    made = client_wheel(tmp_path, ("--no-build-isolation", "--no-index"))

    with ZipFile(made) as archive:
        names = archive.namelist()
        about = archive.read(f"tonnage_client-{VERSION}.dist-info/METADATA").decode()
    (tmp_path / "site").mkdir()
    with ZipFile(made) as archive:
        archive.extractall(tmp_path / "site")
    code = "import tonnage.recorder, tonnage.records, tonnage.sandbox, tonnage.gate"
    alone = [sys.executable, "-S", "-c", f"import sys; sys.path.append({str(tmp_path / 'site')!r}); {code}"]
    done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603

    assert {name.split("/")[0] for name in names} == {"tonnage", f"tonnage_client-{VERSION}.dist-info"}
    assert {"tonnage/recorder.py", "tonnage/torch_recorder.py", "tonnage/sandbox.py", "tonnage/py.typed"} <= set(names)
    assert "tonnage/__main__.py" not in names
    assert "Requires-Dist" not in about
    assert done.returncode == 0, done.stderr
