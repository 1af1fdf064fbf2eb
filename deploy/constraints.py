"""Pins every required package to the version of the tested environment: `python -m deploy.constraints`."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FILE = ROOT / "deploy" / "constraints.txt"
HEAD = "# Made by `make constraints` from the environment that the tests passed in; the image installs exactly these.\n"
TOOLS_FILE = ROOT / "deploy" / "constraints-tools.txt"
TOOLS_HEAD = "# Made by `make constraints`: what developers and CI have besides constraints.txt.\n"
HASHED_FILE = ROOT / "deploy" / "requirements.txt"
HASHED_HEAD = (
    "# Made by `make constraints` from constraints.txt: with the checksums of the image's wheels, for each platform.\n"
)
ARCHITECTURES = ("x86_64", "aarch64")
OLD_NAMES = ("manylinux1", "manylinux2010", "manylinux2014")
GLIBC = range(5, 37)
"""Minor versions of glibc 2 whose wheels the image's Debian (12, glibc 2.36) can load."""

EXTRAS = ("forecast", "nvidia", "ray", "reports")
"""Extras in the image: `forecast` for boosted forecasts; the node agent needs `nvidia` on NVIDIA nodes, and it is small
and pure Python."""
TOOLS = ("chart", "dev")
"""Extras of developers and CI."""


def needed(extras: Iterable[str] = EXTRAS) -> list[Requirement]:
    """Run-time requirements of pyproject.toml, with these extras; by default those of the image."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    more = (line for name in extras for line in project["optional-dependencies"][name])
    return [Requirement(line) for line in (*project["dependencies"], *more)]


def installed(requirements: Iterable[Requirement]) -> dict[str, str]:
    """Installed versions of these packages and all their dependencies, by name.

    Raises PackageNotFoundError when one is not installed.
    """
    found: dict[str, str] = {}
    waiting = list(requirements)
    visited: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        visit = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if visit in visited:
            continue
        visited.add(visit)
        package = distribution(wanted.name)
        found[visit[0]] = package.version
        waiting += [needs for line in package.requires or () if _applies(needs := Requirement(line), wanted.extras)]
    return dict(sorted(found.items()))


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def pinned(file: Path = FILE) -> dict[str, str]:
    """Versions in a file, by package name."""
    lines = file.read_text(encoding="utf-8").splitlines()
    found = (re.fullmatch(r"([a-z0-9-]+)==(\S+)(?: --hash=sha256:[0-9a-f]{64})*", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def hashes(architecture: str) -> dict[str, str]:
    """SHA-256 of the wheel of each pinned package that pip takes on this architecture, by package name.

    pip resolves it, and only metadata is downloaded where the index has it apart. Raises CalledProcessError.
    """
    tags = [f"manylinux_2_{minor}" for minor in GLIBC] + list(OLD_NAMES)
    platforms = [word for tag in tags for word in ("--platform", f"{tag}_{architecture}")]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
    command += [
        "--no-deps",
        "--ignore-installed",
        "--only-binary",
        ":all:",
        "--implementation",
        "cp",
        "--python-version",
        "3.11",
    ]
    command += [*platforms, "--target", "unused", "--report", "-", "--requirement", str(FILE)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603 - pip, our own file
    return {
        canonicalize_name(each["metadata"]["name"]): each["download_info"]["archive_info"]["hashes"]["sha256"]
        for each in report["install"]
    }


def hashed_lines(pins: Mapping[str, str], known: Iterable[Mapping[str, str]]) -> Iterable[str]:
    """Lines for `pip install --require-hashes`. known: checksums by package name, for each architecture."""
    known = tuple(known)
    for name, version in pins.items():
        sums = sorted({each[name] for each in known})
        yield " ".join([f"{name}=={version}", *(f"--hash=sha256:{checksum}" for checksum in sums)])


def main() -> None:
    image, all_of_it = installed(needed()), installed([*needed(), *needed(TOOLS)])
    tools = {name: version for name, version in all_of_it.items() if name not in image}
    for file, head, pins in ((FILE, HEAD, image), (TOOLS_FILE, TOOLS_HEAD, tools)):
        file.write_text(head + "".join(f"{name}=={version}\n" for name, version in pins.items()), encoding="utf-8")

    lines = hashed_lines(image, [hashes(each) for each in ARCHITECTURES])
    HASHED_FILE.write_text(HASHED_HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
