"""Files of a release: wheels, chart package, krew manifest: `python -m deploy.release_files`."""

import hashlib
import importlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import yaml

from cluster.version import VERSION

ROOT = Path(__file__).parents[1]
HOME = "https://github.com/{repository}"
DOWNLOAD = "https://github.com/{repository}/releases/download/v{version}/{file}"
PLUGIN = "kubectl-tonnage"
PLATFORMS: Mapping[str, str] = {"linux-amd64": "amd64", "linux-arm64": "arm64"}
"""Part of a plugin archive's name → Go's name of its architecture, as krew's selectors have it."""
CLIENT = ROOT / "deploy" / "client"
"""Project of what jobs and agents import, without its package."""
COMMANDS_ALONE = "__main__.py"
"""Module of the package `tonnage` that only starts Tonnage's commands."""
CHART = ROOT / "helm" / "tonnage"


class NoHelmError(Exception):
    """Neither Helm nor its Python binding is installed."""


def binding(module: str) -> Any:
    """A module of Helm's Python binding. Raises NoHelmError."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NoHelmError("neither helm nor helm-python-sdk is installed: pip install 'tonnage[chart]'") from error


def version_errors(tag: str) -> list[str]:
    """Places whose version is not that of the tag `vX.Y.Z`."""
    projects = {
        str(path.relative_to(ROOT)): tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"]
        for path in (ROOT / "pyproject.toml", CLIENT / "pyproject.toml")
    }
    charts = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(CHART.rglob("Chart.yaml"))]
    found = {
        "cluster/version.py": VERSION,
        **projects,
        **{f"chart {chart['name']}": chart["version"] for chart in charts},
        **{f"appVersion of chart {c['name']}": str(c["appVersion"]) for c in charts if "appVersion" in c},
    }
    return [f"{place}: {version}, the tag is {tag}" for place, version in found.items() if f"v{version}" != tag]


def wheel(folder: Path) -> Path:
    """Build the wheel without its dependencies; returns its path."""
    _build(ROOT, folder)
    return folder / f"tonnage-{VERSION}-py3-none-any.whl"


def client_wheel(folder: Path, options: Sequence[str] = ()) -> Path:
    """Build the wheel of what jobs and agents import; returns its path. options: of pip."""
    with TemporaryDirectory() as project:
        shutil.copytree(CLIENT, project, dirs_exist_ok=True)
        shutil.copy(ROOT / "LICENSE", project)
        left_out = shutil.ignore_patterns(COMMANDS_ALONE, "__pycache__")
        shutil.copytree(ROOT / "tonnage", Path(project, "tonnage"), ignore=left_out)
        _build(Path(project), folder, options)
    return folder / f"tonnage_client-{VERSION}-py3-none-any.whl"


def _build(project: Path, folder: Path, options: Sequence[str] = ()) -> None:
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", *options)
    command = (sys.executable, "-m", "pip", "wheel", *quiet, "--wheel-dir", str(folder), str(project))
    subprocess.run(command, check=True)  # noqa: S603 - pip, on our own tree


def chart_package(folder: Path) -> Path:
    """Package the chart, by Helm's tool or its Python binding; returns its path. Raises NoHelmError."""
    if helm := shutil.which("helm"):
        subprocess.run((helm, "package", str(CHART), "--destination", str(folder)), check=True)  # noqa: S603
    else:
        binding("helm_python").package(CHART, destination=folder)
    return folder / f"tonnage-{VERSION}.tgz"


def krew_manifest(archives: Mapping[str, str], repository: str) -> dict[str, Any]:
    """Manifest of the kubectl plugin for krew.

    archives: checksum (SHA-256, hexadecimal) of each archive, by its platform in `PLATFORMS`. repository: owner/name.
    """
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "tonnage"},
        "spec": {
            "version": f"v{VERSION}",
            "homepage": HOME.format(repository=repository),
            "shortDescription": "Plan and explain mixed GPU fleets",
            "description": (
                "Shows which GPU types serve each model and which node every pod runs on, at what cost and why, and\n"
                "what a change would cost before it is made. It reads the cluster of the current context.\n"
            ),
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": "linux", "arch": PLATFORMS[platform]}},
                    "uri": DOWNLOAD.format(repository=repository, version=VERSION, file=archive_name(platform)),
                    "sha256": checksum,
                    "bin": PLUGIN,
                }
                for platform, checksum in sorted(archives.items())
            ],
        },
    }


def archive_name(platform: str) -> str:
    return f"{PLUGIN}-{platform}.tar.gz"


def checksums(folder: Path) -> dict[str, str]:
    """Checksum of each plugin archive in the folder, by its platform."""
    there = {platform: folder / archive_name(platform) for platform in PLATFORMS}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items() if path.exists()}


@click.group()
def main() -> None:
    """Make the files of a release."""


@main.command()
@click.argument("tag")
def check(tag: str) -> None:
    """Fail unless every version in the repository is that of the tag."""
    if errors := version_errors(tag):
        raise click.ClickException("; ".join(errors))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
def build(folder: Path) -> None:
    """Build the wheels and package the chart into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (wheel(folder), client_wheel(folder), chart_package(folder)):
        click.echo(path)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--repository", required=True, metavar="OWNER/NAME", help="Where the archives are published.")
def krew(folder: Path, repository: str) -> None:
    """Write FOLDER/tonnage.yaml for krew, from the plugin archives in the folder."""
    found = checksums(folder)
    if missing := sorted(PLATFORMS.keys() - found.keys()):
        raise click.ClickException(f"{folder} lacks {', '.join(archive_name(each) for each in missing)}")
    path = folder / "tonnage.yaml"
    path.write_text(yaml.safe_dump(krew_manifest(found, repository), sort_keys=False, width=120), encoding="utf-8")
    click.echo(path)


if __name__ == "__main__":
    main()
