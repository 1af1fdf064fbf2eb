"""Helm's own command, built from its Go module into the cache of the control plane's programs."""

import os
import subprocess
from pathlib import Path

import pytest

from cluster.errors import BuildError
from simulator.controlplane.binaries import cache_root, environment, find_go
from simulator.controlplane.processes import locked

VERSION = "v4.3.1"
PACKAGE = f"helm.sh/helm/v4/cmd/helm@{VERSION}"


def helm_cli() -> Path:
    """Path of the command; skips where it cannot be built, as without Go's module proxy."""
    folder = cache_root() / f"helm-{VERSION}"
    program = folder / "helm"
    with locked(folder / ".lock"):
        if program.exists():
            return program
        unfinished = folder / "unfinished"
        settings = {**environment(), "GOBIN": str(unfinished)}
        try:
            command = [str(find_go()), "install", "-trimpath", "-ldflags=-s -w", PACKAGE]
            done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)  # noqa: S603
        except (BuildError, OSError) as error:
            pytest.skip(f"no Go to build Helm's command with: {error}")
        if done.returncode:
            pytest.skip(f"Helm's command cannot be built: {done.stderr.strip()[-300:]}")
        (unfinished / "helm").rename(program)
    return program


def helm(program: Path, kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it with files of its own, none of the user's."""
    home = {name: str(kubeconfig.parent / "helm") for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    command = [str(program), *arguments, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, env={**os.environ, **home}, capture_output=True, text=True, check=False)  # noqa: S603
