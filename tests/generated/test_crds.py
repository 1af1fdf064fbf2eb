"""CRDs in deploy/crds are generated from the models, and structural as the API server requires."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from controller.api.crds import crd, structural
from controller.api.kinds import OWN_KINDS, Kind
from tests.generated.crd_files import files, write

FOLDER = Path(__file__).parents[2] / "deploy" / "crds"


def parts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of a structural schema with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from parts(field, f"{path}.{name}".lstrip("."))
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from parts(schema[key], f"{path}[]")


def schema_of(kind: Kind) -> dict[str, Any]:
    (version,) = crd(kind)["spec"]["versions"]
    made: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return made


def test_the_committed_crds_say_what_the_models_say() -> None:
    committed = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.yaml")}

    assert committed == files(), "the kinds changed: run `make crds`"


def test_crds_of_kinds_that_are_no_more_are_removed(tmp_path: Path) -> None:
    (tmp_path / "tonnage.dev_dinosaurs.yaml").touch()
    (tmp_path / "README.md").touch()

    write(tmp_path)

    assert {file.name for file in tmp_path.iterdir()} == {"README.md", *files()}


def test_a_crd_holds_no_yaml_aliases() -> None:
    assert all("&id" not in text and yaml.safe_load(text) for text in files().values())


@pytest.mark.parametrize("kind", OWN_KINDS, ids=lambda kind: kind.name)
def test_every_part_has_one_type(kind: Kind) -> None:
    assert [
        path for path, part in parts(schema_of(kind)) if "type" not in part and "x-kubernetes-int-or-string" not in part
    ] == []


@pytest.mark.parametrize("kind", OWN_KINDS, ids=lambda kind: kind.name)
def test_every_list_says_how_appliers_merge_it(kind: Kind) -> None:
    lists = [(path, part) for path, part in parts(schema_of(kind)) if part.get("type") == "array"]

    assert [path for path, part in lists if "x-kubernetes-list-type" not in part] == []


@pytest.mark.parametrize("kind", OWN_KINDS, ids=lambda kind: kind.name)
def test_every_list_and_map_has_an_upper_bound(kind: Kind) -> None:
    """An object without one may fill etcd, and rules over it have no upper cost."""
    assert [
        path
        for path, part in parts(schema_of(kind))
        if (part.get("type") == "array" and "maxItems" not in part)
        or ("additionalProperties" in part and "maxProperties" not in part)
    ] == []


@pytest.mark.parametrize("kind", OWN_KINDS, ids=lambda kind: kind.name)
def test_every_field_is_explained(kind: Kind) -> None:
    """kubectl explain has words for it; items of lists are explained by their list."""
    fields = [(path, part) for path, part in parts(schema_of(kind)) if not path.endswith("]")]

    assert [path for path, part in fields if not part.get("description") and path != "metadata"] == []


class Pair(BaseModel):
    either: int | str


class Tree(BaseModel):
    children: tuple["Tree", ...]


class Mixed(BaseModel):
    both: tuple[int, str]


@pytest.mark.parametrize(
    ("model", "said"), [(Pair, "several types"), (Tree, "contains itself"), (Mixed, "prefixItems")]
)
def test_a_model_that_no_structural_schema_describes_is_refused(model: type[BaseModel], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        structural(model)
