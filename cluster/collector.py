"""Python's collector of cyclic garbage, paused while millions of objects are made: it would walk them repeatedly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector(*, freezes: bool = False) -> Iterator[None]:
    """Pauses the collector. freezes: whether no later collection looks at what was made meanwhile.

    31 MB of pods from JSON: 0.58 s with it, 0.18 s without. A fleet of 1,200 nodes and 8,000 pods from YAML: a third of
    the time. The first collection after 60,000 pods: 2 s, unless they are frozen.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if freezes:
                gc.freeze()
            gc.enable()
