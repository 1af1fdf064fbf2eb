"""Copies into the chart what it ships of others: CRDs, dashboards, alerts. `python -m deploy.chart_files`."""

from pathlib import Path

DEPLOY = Path(__file__).parent
CHART = DEPLOY.parent / "helm" / "tonnage"

SOURCES = {
    CHART / "charts" / "crds" / "files": (DEPLOY / "crds", "*.yaml"),
    CHART / "files" / "alerts": (DEPLOY / "alerts", "*.rules.yaml"),
    CHART / "files" / "dashboards": (DEPLOY / "dashboards", "*.json"),
}
"""Helm reads no file outside of a chart, and follows no link out of a packed one, so the chart holds copies."""


def copies() -> dict[Path, str]:
    """Every file that belongs into these folders of the chart, with its text."""
    return {
        target / path.name: path.read_text(encoding="utf-8")
        for target, (source, pattern) in SOURCES.items()
        for path in sorted(source.glob(pattern))
    }


def present() -> dict[Path, str]:
    """What is in them now."""
    return {path: path.read_text(encoding="utf-8") for target in SOURCES for path in sorted(target.glob("*"))}


def main() -> None:
    wanted = copies()
    for path in present().keys() - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
