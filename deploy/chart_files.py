"""Copies CRDs, roles, dashboards, alerts and the settings' schema into the chart, and makes its README:
`python -m deploy.chart_files`."""

import json
from pathlib import Path
from typing import Any

from controller.api.rbac import roles_yaml
from controller.settings import OperatorSettings
from deploy.chart_readme import readme

DEPLOY = Path(__file__).parent
CHART = DEPLOY.parent / "helm" / "tonnage"

SOURCES = {
    CHART / "charts" / "crds" / "files": (DEPLOY / "crds", "*.yaml"),
    CHART / "files" / "alerts": (DEPLOY / "alerts", "*.rules.yaml"),
    CHART / "files" / "fence": (DEPLOY / "fence", "*.yaml"),
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
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"
OF_THE_CHART = ("context", "fenced", "host", "identity", "kubeconfig", "lease", "metrics_port", "probe_port")
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
