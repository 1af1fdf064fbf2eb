"""Cache of finished runs in a folder, from which an interrupted sweep resumes."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Generic, TypeVar

from cluster.errors import ConfigError, Mistake

K = TypeVar("K")
R = TypeVar("R")

DECIDES_RESULTS = ("cluster", "placement", "controller", "simulator")
"""Packages whose code a run's result depends on."""


@dataclass(frozen=True, slots=True)
class ResultCache(Generic[K, R]):
    """One file per finished run, named by everything that decides its result, and written atomically.

    Sweeps that share a folder share their common runs. Results of other inputs or other code lie beside them and are
    never mistaken for these.
    """

    folder: Path
    name_of: Callable[[K], str]
    """File name that two runs share only if their results are the same."""
    to_bytes: Callable[[R], bytes]
    from_bytes: Callable[[bytes], R]
    """Raises ValueError for content that `to_bytes` has not written."""

    def find(self, run: K) -> R | None:
        """Result of a run that was stored earlier; None where there is none, or where it cannot be read."""
        try:
            return self.from_bytes((self.folder / self.name_of(run)).read_bytes())
        except (OSError, ValueError):
            return None

    def put(self, run: K, result: R) -> None:
        """Raises ConfigError when the folder cannot be written: better than hours of runs that are not kept."""
        path = self.folder / self.name_of(run)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.write(self.to_bytes(result))
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise ConfigError(
                Mistake(f"results {self.folder}", error.strerror or str(error), "name a folder you may write to")
            ) from error


def digest_of(*parts: str | bytes) -> str:
    """Short name for exactly these parts."""
    digest = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


def code_digest() -> str:
    """Short name for the running code: a changed line makes new results."""
    files = [
        path
        for package in DECIDES_RESULTS
        for folder in import_module(package).__path__
        for path in sorted(Path(folder).rglob("*.py"))
    ]
    return digest_of(*(part for path in files for part in (path.name, path.read_bytes())))
