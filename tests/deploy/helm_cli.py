"""Helm's own command, built from its Go module into the cache of the control plane's programs.

    python -m tests.deploy.helm_cli

builds it, which takes minutes; the tests use it where it is.
"""

import os
import subprocess
from pathlib import Path

import pytest

from simulator.controlplane.binaries import cache_root, environment, find_go
from simulator.controlplane.processes import locked

VERSION = "v4.3.1"
PACKAGE = f"helm.sh/helm/v4/cmd/helm@{VERSION}"


def helm_cli() -> Path:
    """Path of the command; skips where it is not built."""
    program = _folder() / "helm"
    if not program.exists():
        pytest.skip("Helm's command is not built: python -m tests.deploy.helm_cli")
    return program


def _folder() -> Path:
    return cache_root() / f"helm-{VERSION}"


def built() -> Path:
    """Path of the command, built first where it is not there. Raises BuildError, CalledProcessError."""
    program, unfinished = _folder() / "helm", _folder() / "unfinished"
    with locked(_folder() / ".lock"):
        if not program.exists():
            command = [str(find_go()), "install", "-trimpath", "-ldflags=-s -w", PACKAGE]
            subprocess.run(command, env={**environment(), "GOBIN": str(unfinished)}, check=True)  # noqa: S603
            (unfinished / "helm").rename(program)
    return program


def helm(program: Path, kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it with files of its own, none of the user's."""
    home = {name: str(kubeconfig.parent / "helm") for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    command = [str(program), *arguments, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, env={**os.environ, **home}, capture_output=True, text=True, check=False)  # noqa: S603


if __name__ == "__main__":
    print(built())  # noqa: T201 - a program's answer
