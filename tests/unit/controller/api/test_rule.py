"""Manifests are checked by the same rules and bounds as objects in the API server."""

import json
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from controller.api.kinds import OWN_KINDS
from controller.objects.manifests import Manifests, read_manifests
from tests.builders.crd_cases import (
    FULL,
    LARGEST,
    OTHERS,
    RULE_CASES,
    Case,
    Object,
    all_bound_cases,
    bounds_in,
    has,
    parts,
    rules_in,
    schema_of,
)

KINDS = [kind.name for kind in OWN_KINDS]
CASES = [
    case
    for case in (*RULE_CASES, *all_bound_cases())
    # Of a file's status only the form is looked at: the API server has seen to the rest before it came out.
    if case.before is None and not (case.about.startswith("status.") and case.about.endswith("list-type"))
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_has_a_case(kind: str) -> None:
    tried = [case.about for case in RULE_CASES if case.kind == kind]

    without = [
        (path, said)
        for path, said in rules_in(schema_of(kind))
        if not any(about.startswith(path + " ") and said.startswith(_begin(about, path)) for about in tried)
    ]

    assert without == []


def _begin(about: str, path: str) -> str:
    """How the message of the rule begins that this case is about; what stands behind a comma tells cases apart."""
    return about.removeprefix(path).strip().partition(",")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_every_bound_has_a_case(kind: str) -> None:
    tried = {case.about for case in all_bound_cases() if case.kind == kind}

    assert set(bounds_in(schema_of(kind))) - tried == set()


@pytest.mark.parametrize("kind", KINDS)
def test_the_full_object_of_a_kind_has_every_field(kind: str) -> None:
    """Without its field a bound would never be tried."""
    leaves = {path for path, _ in parts(schema_of(kind)) if path.split(".")[0] in ("spec", "status")}

    assert {
        path for path in leaves if not any(has(each, path) for each in (FULL[kind], *OTHERS.get(kind, ())))
    } == set()


def read(folder: Path, obj: Object) -> Manifests:
    """By way of JSON, in which nothing means two things."""
    file = folder / "object.json"
    file.write_text(json.dumps(obj), encoding="utf-8")
    return read_manifests([str(file)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_reader_takes_what_is_right_and_refuses_what_is_wrong(tmp_path: Path, case: Case) -> None:
    read(tmp_path, case.good)

    with pytest.raises(ConfigError):
        read(tmp_path, case.bad)


@pytest.mark.parametrize("kind", sorted(LARGEST))
def test_the_largest_object_is_read(tmp_path: Path, kind: str) -> None:
    read(tmp_path, LARGEST[kind])
