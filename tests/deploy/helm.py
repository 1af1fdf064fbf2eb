"""Release of the chart for tests, skipped where there is no Helm; failing where TONNAGE_REQUIRE names `chart`."""

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import pytest

from deploy.release_files import CHART, NoHelmError
from tests.rigs import chart
from tests.rigs.chart import NAMESPACE, RELEASE, HelmRefusedError, Values

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
        except NoHelmError as missing:
            if "chart" in os.environ.get("TONNAGE_REQUIRE", "").split(","):
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))

    return tried


install, lint_findings, rendered = (
    _or_skip(chart.install),
    _or_skip(chart.lint_findings),
    _or_skip(chart.rendered),
)
uninstall, upgrade = _or_skip(chart.uninstall), _or_skip(chart.upgrade)
