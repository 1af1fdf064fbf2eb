"""The commands, started so that no folder of the user's stands in for one of Tonnage's: also `python -m tonnage`.

Tonnage's folders have general names (`cli`, `cluster`). PYTHONPATH, which many set to their own repository, is searched
before installed packages. What Tonnage starts as processes of its own inherits it.
"""

import atexit
import gc
import os
import sys
from importlib import import_module

YOUNG_OBJECTS = 10_000
"""New objects between two garbage collections. With Python's 700, a command collects 40 times while it loads, which is
6 % of its CPU time."""


def own_folders_first() -> None:
    """Look for modules in the standard library first, then beside this package, then where Python would."""
    library, beside = os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ours = [path for path in sys.path if path.startswith(library) and "-packages" not in path]
    rest = [path for path in sys.path if path not in ours and path != beside]
    sys.path[:] = [*ours, beside, *rest]


def spare_collections() -> None:
    """Collect garbage seldom, and not at exit: Python would walk through all that was loaded, 8 ms of CPU."""
    gc.set_threshold(YOUNG_OBJECTS)
    atexit.register(gc.freeze)  # registered first, so it is called last


def main() -> None:
    """`tonnage` and `kubectl tonnage`."""
    spare_collections()
    own_folders_first()
    import_module("cli.main").main()


def complete() -> None:
    """`kubectl_complete-tonnage`."""
    spare_collections()
    own_folders_first()
    import_module("cli.main").complete()


def agent() -> None:
    """`tonnage-agent`."""
    own_folders_first()
    import_module("nodeagent.__main__").main()


if __name__ == "__main__":
    main()
