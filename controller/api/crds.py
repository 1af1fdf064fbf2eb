"""CustomResourceDefinitions of our kinds, from their models. `python -m controller.api.crds` writes deploy/crds."""

import sys
from pathlib import Path
from typing import Any

import yaml

from controller.api.kinds import OWN_KINDS, Kind
from controller.api.labels import CATEGORY, GROUP, VERSION
from controller.api.printer_columns import SERVED, Column, Served
from controller.api.schema import structural

FOLDER = Path("deploy") / "crds"
HEAD = "# Made by `make crds` from controller/api; a test fails when it is out of date.\n"


def crd(kind: Kind) -> dict[str, Any]:
    """The definition of one kind, as it is applied."""
    served = SERVED[kind.name]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{served.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": served.plural,
                "singular": kind.name.lower(),
                "shortNames": [served.short],
                "categories": [CATEGORY],
            },
            "versions": [_version(kind, served)],
        },
    }


def _version(kind: Kind, served: Served) -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": _subresources(served),
        "additionalPrinterColumns": [_column(column) for column in served.columns],
        "schema": {"openAPIV3Schema": structural(kind.model, kind.rules)},
    }


def _subresources(served: Served) -> dict[str, Any]:
    if served.scale is None:
        return {"status": {}}
    return {
        "status": {},
        "scale": {
            "specReplicasPath": served.scale.spec_path,
            "statusReplicasPath": served.scale.status_path,
            "labelSelectorPath": served.scale.selector_path,
        },
    }


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "jsonPath": column.path,
        "type": column.type,
        "description": column.description,
        "priority": int(column.is_wide),
    }


class _Dumper(yaml.SafeDumper):
    """Every part written out: an alias between two fields says that they belong together, and they do not."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # PyYAML asks of each part
        return True


def files() -> dict[str, str]:
    """File name → YAML, one file for each kind of ours."""
    return {
        f"{GROUP}_{SERVED[kind.name].plural}.yaml": HEAD
        + yaml.dump(crd(kind), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
        for kind in OWN_KINDS
    }


def write(folder: Path) -> None:
    """All files into this folder; those of kinds that are no more are removed from it."""
    folder.mkdir(parents=True, exist_ok=True)
    made = files()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    for old in folder.glob(f"{GROUP}_*.yaml"):
        if old.name not in made:
            old.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
