"""Documents of files, as kubectl reads them: JSON values, YAML documents, or both in one stream."""

import json
from pathlib import Path

import pytest

from controller.objects.documents import read_documents

FLOW = "{apiVersion: v1, kind: Node, metadata: {name: a}}"
JSON = json.dumps({"kind": "Node", "metadata": {"name": "a"}})
INDENTED = json.dumps({"kind": "Node", "metadata": {"name": "a"}}, indent=1)
BLOCK = "kind: Node\nmetadata:\n  name: a\n"


def names_and_mistakes(folder: Path, text: str, name: str = "f.yaml") -> tuple[list[str], list[str]]:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    documents, mistakes, _ = read_documents([str(file)])
    return [each.content["metadata"]["name"] for each in documents], [
        str(each).removeprefix(f"{folder}/") for each in mistakes
    ]


@pytest.mark.parametrize("name", ["f.yaml", "f.json"])
@pytest.mark.parametrize(
    "parts",
    [
        (JSON, "", JSON),
        (INDENTED, "\n", INDENTED),
        (JSON, "\n---\n", INDENTED),
        (JSON, "\n--- # the next\n", JSON, "\n---\n"),
        (JSON, "\r\n---\r\n", JSON),
        (FLOW, "\n---\n", BLOCK),
        (JSON, "\n---\n", BLOCK),
        (JSON, JSON, "\n---\n", FLOW, "\n---\n", JSON),
        ('{"kind": "Node", "metadata": {"name": "a"},}',),  # kubectl reads it as YAML
        (f"# first\n{JSON}",),
        (f"---\n{JSON}\n---\n{INDENTED}",),
    ],
)
def test_a_stream_may_mix_json_and_yaml(tmp_path: Path, parts: tuple[str, ...], name: str) -> None:
    text = "".join(parts)

    found, mistakes = names_and_mistakes(tmp_path, text, name)

    assert mistakes == []
    assert found == ["a"] * text.count("Node")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"{JSON}\n{JSON}\n" + '{"a": 1\n "b": 2}', "f.yaml, line 4, column 2: is not JSON"),
        (f"{JSON}\n---\na: [1\nb: 2\n", "f.yaml, document 2, line 4, column 2: is not YAML"),
        (f"{FLOW}\n---\na: [1\nb: 2\n", "f.yaml, document 2, line 4, column 2: is not YAML"),
        (f"{JSON}\n---\na: 1\na: 2\n", "f.yaml, document 2 (line 4): the key 'a' appears twice"),
        (f"{JSON}\n" + '{"a": 1, "a": 2}', "f.yaml, document 2: the key 'a' appears twice"),
    ],
)
def test_a_mistake_in_a_stream_names_its_document_and_line(tmp_path: Path, text: str, place: str) -> None:
    (found,) = names_and_mistakes(tmp_path, text)[1]

    assert found.startswith(place)


@pytest.mark.parametrize("second", [INDENTED, BLOCK, FLOW])
def test_a_later_document_of_a_stream_is_named_with_its_line(tmp_path: Path, second: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"{INDENTED}\n---\n{second}")

    document = read_documents([str(file)])[0][1]

    assert document.place().endswith("f.yaml, document 2 (line 8)")


def test_thousands_of_json_values_are_read_in_one_pass(tmp_path: Path) -> None:
    found, mistakes = names_and_mistakes(tmp_path, f"{INDENTED}\n" * 20_000)

    assert (len(found), mistakes) == (20_000, [])
