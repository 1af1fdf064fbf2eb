"""kubectl's JSONPath: what is expected was printed by kubectl 1.36 for the same object, but where a line says not."""

from typing import Any

import pytest

from cli.printing.fields import jsonpath
from cluster.errors import ConfigError

LIST: Any = {
    "items": [
        {"metadata": {"name": "a", "labels": {"x.y/z": "1"}}, "ready": True, "n": 1, "tags": ["p", "q"]},
        {"metadata": {"name": "b"}, "ready": False, "n": 2.5, "tags": []},
    ],
    "conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}],
}


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{.items[*].metadata.name}", "a b"),
        ("{$.items[0].metadata.name}", "a"),
        ("{.items[-1].metadata.name}", "b"),
        ("{.items[0:1].metadata.name}", "a"),
        ("{.items[5].metadata.name}", ""),
        ("{.items[2].metadata.name}", ""),
        ("{.items[-3].metadata.name}", ""),
        ("{.nothing}", ""),
        ("names: {.items[*].metadata.name}!", "names: a b!"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.n}{"\\n"}{end}', "a\t1\nb\t2.5\n"),
        ('{.conditions[?(@.type=="Ready")].status}', "True"),
        ("{.items[?(@.n>1)].metadata.name}", "b"),  # kubectl fails: 1 and 2.5 are of different types to it
        ("{.items[?(@.ready==true)].metadata.name}", "a"),
        ("{.items[?(@.tags)].metadata.name}", "a b"),
        ("{.items[0].metadata.labels.x\\.y/z}", "1"),
        ("{.items[0].metadata['name','labels']}", 'a {"x.y/z":"1"}'),
        ("{.items[0].tags}", '["p","q"]'),
        ("{.items[*].ready}", "true false"),
        ("{..name}", "a b"),
        ("{.items[*]['metadata.name']}", "a b"),
        ("{.items[0].metadata.labels['x\\.y/z']}", "1"),
        ("{range .items[*]}{.n}", "12.5"),
    ],
)
def test_it_prints_what_kubectl_prints(template: str, printed: str) -> None:
    assert jsonpath(template)(LIST) == printed


@pytest.mark.parametrize("template", ["{.items", "{.items[}", "{end}", "{.items[?(@.n==x)]}", "{.items[a:b:c:d]}"])
def test_what_cannot_be_read_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match="jsonpath"):
        jsonpath(template)
