"""CustomResourceDefinitions of Tonnage's kinds, made from the models. `python -m controller.api.crds` writes them."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.labels import CATEGORY, GROUP, VERSION
from controller.api.printer_columns import Column
from controller.api.schema import structural

FOLDER = Path("deploy") / "crds"
HEAD = "# Made by `make crds` from controller/api; a test fails when it is out of date.\n"


def crd(kind: Kind) -> dict[str, Any]:
    """CustomResourceDefinition of one kind, ready to apply."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.definition},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short_names),
                "categories": [CATEGORY],
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "schema": {"openAPIV3Schema": structural(kind.model, kind.rules)},
    }


def _subresources(kind: Kind) -> dict[str, Any]:
    made: dict[str, Any] = {"status": {}} if kind.has_status else {}
    if kind.scale is not None:
        made["scale"] = {
            "specReplicasPath": kind.scale.spec_path,
            "statusReplicasPath": kind.scale.status_path,
            "labelSelectorPath": kind.scale.selector_path,
        }
    return made


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "jsonPath": column.path,
        "type": column.type,
        "description": column.description,
        "priority": int(column.is_wide),
    }


class _Dumper(yaml.SafeDumper):
    """YAML dumper without aliases: an alias would suggest that two fields belong together, and they do not."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # PyYAML's signature
        return True


def files(kinds: Iterable[Kind] = KINDS) -> dict[str, str]:
    """File name → YAML, one file for each of Tonnage's kinds."""
    return {
        f"{GROUP}_{kind.plural}.yaml": HEAD
        + yaml.dump(crd(kind), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
        for kind in own_kinds(kinds)
    }


def write(folder: Path) -> None:
    """Write all files into this folder, and remove those of kinds that no longer exist."""
    folder.mkdir(parents=True, exist_ok=True)
    made = files()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    for old in folder.glob(f"{GROUP}_*.yaml"):
        if old.name not in made:
            old.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
