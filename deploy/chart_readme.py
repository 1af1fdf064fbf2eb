"""README of the chart, with a table of its values that is made from values.yaml: `python -m deploy.chart_files`."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

HEAD = """\
# The chart `tonnage`

{description} Kubernetes {kubernetes}.

```
helm upgrade --install tonnage helm/tonnage --namespace tonnage-system --create-namespace \\
  --set image.repository=REGISTRY/tonnage
```

It installs the operator with minimal permissions, Tonnage's kinds, and what watches it; the agent for power, health and
isolation only if asked for. [docs/operations.md](../../docs/operations.md) explains permissions, metrics and
alerts; [docs/ray.md](../../docs/ray.md) the values of `ray`.

Unknown values are refused (`values.schema.json`). This page is generated from Chart.yaml and values.yaml.

## Values

| value | default | meaning |
|---|---|---|
"""


def readme(chart: str, values: str) -> str:
    """README for the texts of Chart.yaml and values.yaml."""
    about = yaml.safe_load(chart)
    head = HEAD.format(description=about["description"], kubernetes=about["kubeVersion"].removesuffix("-0"))
    tree = yaml.compose(values)
    return head + "".join(_rows(tree, yaml.safe_load(values), values.splitlines(), ()))


def _rows(tree: Any, values: Any, lines: Sequence[str], path: tuple[str, ...]) -> Iterator[str]:
    """One row for each value, and for each group that has a comment of its own."""
    for key, node in tree.value:
        name, value = (*path, key.value), values[key.value]
        meaning = _comment_above(key.start_mark.line, lines) if key.start_mark.column == 2 * len(path) else ""
        is_group = isinstance(node, yaml.MappingNode) and bool(node.value) and not node.flow_style
        if meaning or not is_group:
            default = "" if is_group else f"`{json.dumps(value)}`"
            yield f"| `{'.'.join(name)}` | {default} | {meaning} |\n"
        if is_group:
            yield from _rows(node, value, lines, name)


def _comment_above(line: int, lines: Sequence[str]) -> str:
    """Comment that ends right above this line, in one line of a table."""
    first = line
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    words = " ".join(each.lstrip().removeprefix("#").strip() for each in lines[first:line])
    return words.replace("|", "\\|")
