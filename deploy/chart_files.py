"""Copies CRDs, roles, dashboards, alerts and the settings' schema into the chart, and makes its README:
`python -m deploy.chart_files`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from controller.api.rbac import roles_yaml
from controller.settings import OperatorSettings

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


DEPLOY = Path(__file__).parent
CHART = DEPLOY.parent / "helm" / "tonnage"

SOURCES = {
    CHART / "charts" / "crds" / "files": (DEPLOY / "crds", "*.yaml"),
    CHART / "files" / "alerts": (DEPLOY / "alerts", "*.rules.yaml"),
    CHART / "files" / "dashboards": (DEPLOY / "dashboards", "*.json"),
}
"""Folders of the chart with (source folder, file pattern). Copies, because Helm reads no file outside of a chart, and
follows no link out of a packed one."""


def copies() -> dict[Path, str]:
    """All files that belong into these folders of the chart, with their texts."""
    return {
        target / path.name: path.read_text(encoding="utf-8")
        for target, (source, pattern) in SOURCES.items()
        for path in sorted(source.glob(pattern))
    }


def present() -> dict[Path, str]:
    """Current files of these folders, with their texts."""
    return {path: path.read_text(encoding="utf-8") for target in SOURCES for path in sorted(target.glob("*"))}


ROLES = CHART / "files" / "rbac" / "roles.yaml"
"""Rules of each role; templates/rbac.yaml decides which roles are granted."""
SCHEMA, README = CHART / "values.schema.json", CHART / "README.md"
OF_THE_CHART = ("context", "fenced", "host", "identity", "kubeconfig", "lease", "managed_namespaces", "metrics_port",
                "probe_port")  # fmt: skip
"""Settings that do not apply in a pod, or that the chart derives from its own values."""


def schema() -> str:
    """Schema of the chart's values, with `settings` taken from the operator's settings."""
    values: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    settings = OperatorSettings.model_json_schema()
    parts = settings.pop("$defs")
    settings["properties"] = {name: about for name, about in settings["properties"].items() if name not in OF_THE_CHART}
    settings["description"] = "Settings of the operator; a missing one has the operator's default."
    values["$defs"] = _used(parts, json.dumps(settings))
    values["properties"]["settings"] = settings
    return json.dumps(values, indent=2) + "\n"


def readme_text() -> str:
    """README of the chart as it stands."""
    about, values = (CHART / name for name in ("Chart.yaml", "values.yaml"))
    return readme(about.read_text(encoding="utf-8"), values.read_text(encoding="utf-8"))


def _used(parts: dict[str, Any], by: str) -> dict[str, Any]:
    """Definitions that this text refers to, directly or through others."""
    found: dict[str, Any] = {}
    while True:
        text = by + json.dumps(found)
        more = {name: part for name, part in parts.items() if f"#/$defs/{name}" in text}
        if more.keys() == found.keys():
            return found
        found = more


def main() -> None:
    SCHEMA.write_text(schema(), encoding="utf-8")
    wanted = {**copies(), ROLES: roles_yaml(), README: readme_text()}
    for path in present().keys() - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
