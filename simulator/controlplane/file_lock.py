"""Lock across processes, which the kernel releases when its holder dies."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Holds the lock while the context lasts. `on_wait` is called once when another process holds it.

    Yields the descriptor: a child process that inherits it keeps the lock, even when its parent is killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
