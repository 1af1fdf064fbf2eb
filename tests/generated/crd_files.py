"""Files of the CustomResourceDefinitions; `python -m tests.generated.crd_files` writes them."""

import sys
from collections.abc import Iterable
from pathlib import Path

import yaml

from controller.api.crds import crd
from controller.api.kind import Kind
from controller.api.kinds import KINDS, own_kinds
from controller.api.labels import GROUP

FOLDER = Path("deploy") / "crds"
HEAD = "# Made by `make crds` from controller/api; a test fails when it is out of date.\n"


class _Dumper(yaml.SafeDumper):
    """YAML dumper without aliases: an alias would suggest that two fields belong together, and they do not."""

    def ignore_aliases(self, data: object) -> bool:  # PyYAML's signature
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
