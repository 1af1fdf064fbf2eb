"""Pins every package that Tonnage needs to the version that it was tested with here: `python -m deploy.constraints`."""

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


EXTRAS = ("nvidia",)
"""Part of the image: the node agent needs it on NVIDIA nodes, and it is small and in Python alone."""


def needed() -> list[Requirement]:
    """What pyproject.toml asks for at run time, with the extras that the image holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (line for name in EXTRAS for line in project["optional-dependencies"][name])
    return [Requirement(line) for line in (*project["dependencies"], *extras)]


def installed(requirements: Iterable[Requirement]) -> dict[str, str]:
    """Name → version of these packages and all that they need, as they are installed here.

    Raises PackageNotFoundError when one is not.
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


def pinned() -> dict[str, str]:
    """Name → version as the file has them."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    found = (re.fullmatch(r"([a-z0-9-]+)==(\S+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def main() -> None:
    lines = (f"{name}=={version}\n" for name, version in installed(needed()).items())
    FILE.write_text(HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
