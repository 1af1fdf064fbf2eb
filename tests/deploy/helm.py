"""Release of the chart for tests, which are skipped where there is no Helm."""

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
            pytest.skip(str(missing))

    return tried


install, lint_findings, rendered = (
    _or_skip(release_files.install),
    _or_skip(release_files.lint_findings),
    _or_skip(release_files.rendered),
)
uninstall, upgrade = _or_skip(release_files.uninstall), _or_skip(release_files.upgrade)
