"""Release of the chart for tests, skipped where there is no Helm; failing where TONNAGE_REQUIRE names `chart`."""

import os
import shutil
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import pytest

from deploy import release_files
from deploy.release_files import CHART, NAMESPACE, RELEASE, HelmRefusedError, Values

__all__ = [
    "CHART",
    "NAMESPACE",
    "RELEASE",
    "HelmRefusedError",
    "Values",
    "install",
    "lint_findings",
    "rendered",
    "uninstall",
    "upgrade",
]

P = ParamSpec("P")
R = TypeVar("R")


def _or_skip(work: Callable[P, R]) -> Callable[P, R]:
    @wraps(work)
    def tried(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return work(*args, **kwargs)
        except release_files.NoHelmError as missing:
            if "chart" in os.environ.get("TONNAGE_REQUIRE", "").split(","):
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))

    return tried


@_or_skip
def lint_findings() -> list[str]:
    """Findings of `helm lint --strict`, from warnings on."""
    if shutil.which("helm"):
        try:
            release_files._helm("lint", "--strict", str(CHART))
        except HelmRefusedError as error:
            return [str(error)]
        return []
    found = release_files._binding("helm_python.chart").lint(CHART, strict=True, with_subcharts=True)
    return [*found["errors"], *(message["error"] for message in found["messages"] if message["severity"] > 1)]


install, rendered = _or_skip(release_files.install), _or_skip(release_files.rendered)
uninstall, upgrade = _or_skip(release_files.uninstall), _or_skip(release_files.upgrade)
