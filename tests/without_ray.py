"""A pytest plugin that makes Ray as good as not installed: `pytest -p tests.without_ray tests/unit`.

Whoever decides, and whoever asks for decisions, must do without it. Under this plugin an import of it fails as it would
on a machine that does not have it.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

HIDDEN = "ray"


class Hides:
    """Stands before the real finders and finds nothing of the hidden package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == HIDDEN or fullname.startswith(f"{HIDDEN}."):
            raise ModuleNotFoundError(f"No module named {fullname!r} (hidden by tests.without_ray)", name=fullname)
        return None


def pytest_configure() -> None:
    assert HIDDEN not in sys.modules, "Ray was imported before it could be hidden"
    sys.meta_path.insert(0, Hides())


def pytest_report_header() -> str:
    return "Ray is hidden: these tests pass without it"
