"""Folders that come with Tonnage: in the source tree at their own place, in a wheel beneath `cli/shipped`."""

from pathlib import Path

from cluster.errors import TonnageError

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
