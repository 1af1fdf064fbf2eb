"""Programs for a control plane: those of $KUBEBUILDER_ASSETS, or our own build."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import BuildError
from simulator.controlplane.binaries.build import OnProgress, build
from simulator.controlplane.binaries.upstream_tools import CONTROL_PLANE

INDISPENSABLE = ("etcd", "kube-apiserver")


@dataclass(frozen=True, slots=True)
class Programs:
    """Programs by name, and why others are missing."""

    path: Mapping[str, Path]
    missing: Mapping[str, str]
    """Name → reason."""

    def __getitem__(self, name: str) -> Path:
        """Path of a program. Raises BuildError with the reason when it is missing."""
        if name not in self.path:
            raise BuildError(self.missing.get(name, f"{name} is not a program of a control plane"))
        return self.path[name]


def control_plane_programs(on_progress: OnProgress = lambda _: None) -> Programs:
    """Programs of a control plane, built first where they are missing. Raises BuildError."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        return programs_in(Path(assets).absolute())
    return Programs(build(CONTROL_PLANE, on_progress), {})


def programs_in(folder: Path) -> Programs:
    """Programs in a folder made for $KUBEBUILDER_ASSETS; most have no scheduler and no controller manager."""
    path = {tool.name: folder / tool.name for tool in CONTROL_PLANE if os.access(folder / tool.name, os.X_OK)}
    missing = {
        tool.name: f"KUBEBUILDER_ASSETS={folder} has no {tool.name}; unset it, and `make controlplane` builds all"
        for tool in CONTROL_PLANE
        if tool.name not in path
    }
    programs = Programs(path, missing)
    for name in INDISPENSABLE:
        programs[name]
    return programs
