"""Folders for sockets."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder of a short name: a Unix socket's path has 107 bytes at most."""
    with TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        yield Path(folder)
