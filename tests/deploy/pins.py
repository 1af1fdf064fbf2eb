"""Versions that `make constraints` pins, and what pyproject.toml asks for."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
IMAGE, TOOLS, HASHED = (
    ROOT / "deploy" / name for name in ("constraints.txt", "constraints-tools.txt", "requirements.txt")
)
IMAGE_EXTRAS = ("nvidia", "ray", "reports")
TOOLS_EXTRAS = ("chart", "dev")
CHECKSUM = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def pinned(file: Path = IMAGE) -> dict[str, str]:
    """Versions in a file, by package name."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", file.read_text(encoding="utf-8"), re.MULTILINE))


def needed(extras: Iterable[str] = IMAGE_EXTRAS) -> list[Requirement]:
    """Run-time requirements of pyproject.toml, with these extras; by default those of the image."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    more = (line for name in extras for line in project["optional-dependencies"][name])
    return [Requirement(line) for line in (*project["dependencies"], *more)]
