"""Folders that come with Tonnage: in the source tree at their own place, in a wheel beneath `cli/shipped`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cluster.errors import TonnageError

if TYPE_CHECKING:
    from controller.api.kind import Kind


WHEEL = Path(__file__).parents[1] / "shipped"
SOURCES = Path(__file__).parents[2]
FOLDERS = {"examples": "examples", "cluster-walk": "docs/cluster-walk", "chart": "helm/tonnage"}
"""Name in a wheel → place in the source tree (setup.py)."""


def shipped(name: str) -> Path:
    """Folder of this name. Raises TonnageError where neither a wheel nor a source tree has it, as in the image."""
    for folder in (WHEEL / name, SOURCES / FOLDERS[name]):
        if folder.is_dir():
            return folder
    raise TonnageError(f"this installation has no {name}; pip install tonnage has them")


FILES = Path("charts") / "crds" / "files"
"""Folder in the chart; a test compares its files with the models."""
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where it is available


@dataclass(frozen=True, slots=True)
class Definition:
    """Names of a kind, and its OpenAPI schema."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    schema: Callable[[], dict[str, Any]]
    """Called for the kind that is asked for alone: reading or making a schema is the slow part."""


def definitions() -> tuple[Definition, ...]:
    """Definitions of this release, in the order of their plurals."""
    try:
        files = sorted((shipped("chart") / FILES).glob("*.yaml"))
    except TonnageError:  # the image has no chart
        files = []
    return tuple(map(_definition_in, files)) if files else made()


def made(kinds: "Iterable[Kind] | None" = None) -> tuple[Definition, ...]:
    """Definitions made from the models; kinds: all of this release where none are given."""
    from controller.api.crds import crd
    from controller.api.kinds import KINDS, own_kinds

    own = sorted(own_kinds(KINDS if kinds is None else kinds), key=lambda kind: kind.plural)

    def of(kind: "Kind") -> Definition:
        return Definition(kind.name, kind.plural, kind.short_names, lambda: _schema(crd(kind)))

    return tuple(map(of, own))


def _definition_in(file: Path) -> Definition:
    """A definition of which only the head is read yet."""
    text = file.read_text(encoding="utf-8")
    names = yaml.load(text.partition("\n  versions:")[0], Loader=Loader)["spec"]["names"]  # noqa: S506  # a safe loader
    return Definition(
        names["kind"],
        names["plural"],
        tuple(names.get("shortNames", ())),
        lambda: _schema(yaml.load(text, Loader=Loader)),  # noqa: S506  # a safe loader
    )


def _schema(definition: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema
