"""Pins every required package to the version of the tested environment: `python -m deploy.constraints`."""

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FILE = ROOT / "deploy" / "constraints.txt"
HEAD = "# Made by `make constraints` from the environment that the tests passed in; the image installs exactly these.\n"
TOOLS_FILE = ROOT / "deploy" / "constraints-tools.txt"
TOOLS_HEAD = "# Made by `make constraints`: what developers and CI have besides constraints.txt.\n"


EXTRAS = ("forecast", "nvidia", "ray", "reports")
"""Extras in the image: `forecast` for boosted forecasts; the node agent needs `nvidia` on NVIDIA nodes, and it is small
and pure Python."""


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
    found = (re.fullmatch(r"([a-z0-9-]+)==(\S+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def main() -> None:
    image, all_of_it = installed(needed()), installed([*needed(), *needed(("dev",))])
    tools = {name: version for name, version in all_of_it.items() if name not in image}
    for file, head, pins in ((FILE, HEAD, image), (TOOLS_FILE, TOOLS_HEAD, tools)):
        file.write_text(head + "".join(f"{name}=={version}\n" for name, version in pins.items()), encoding="utf-8")


if __name__ == "__main__":
    main()
