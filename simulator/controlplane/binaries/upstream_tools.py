"""Upstream programs of a control plane: their Go modules, and the cache folder of their builds."""

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import BuildError

BUILD_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")

BUILD_SETTINGS: Mapping[str, str] = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
"""No C compiler needed, and no toolchain fetched without the user's consent."""


@dataclass(frozen=True, slots=True)
class Module:
    """Go module without own code, which pins programs as its tools."""

    folder: Path
    product: str
    pin: str
    """Required module whose version is the product's."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Program that Go can build."""

    name: str
    package: str
    module: Module


SHIPPED = Path(__file__).parent / "modules"
"""Folder of the Go modules in an installed wheel (setup.py)."""
ROOT = SHIPPED if SHIPPED.is_dir() else Path(__file__).parents[3] / "deploy" / "controlplane"
"""Folder of the Go modules: that of the wheel, or that of the source tree."""

KUBERNETES = Module(ROOT, "kubernetes", "k8s.io/kubernetes")
HELM = Module(ROOT / "helm", "helm", "helm.sh/helm/v4")

TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        # In the order of building: programs that most tests need come first.
        Tool("etcd", "go.etcd.io/etcd/server/v3", KUBERNETES),
        Tool("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", KUBERNETES),
        Tool("kubectl", "k8s.io/kubernetes/cmd/kubectl", KUBERNETES),
        Tool("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", KUBERNETES),
        Tool("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", KUBERNETES),
        Tool("helm", "helm.sh/helm/v4/cmd/helm", HELM),
    )
}

CONTROL_PLANE = tuple(tool for tool in TOOLS.values() if tool.module == KUBERNETES)


def version_of(module: Module) -> str:
    """Version, such as `v1.36.3`. Raises BuildError where the module is missing."""
    pin = re.search(rf"^\s*(?:require )?{re.escape(module.pin)} (v\S+)", _text_of(module.folder / "go.mod"), re.M)
    if pin is None:
        raise BuildError(f"{module.folder / 'go.mod'} requires no {module.pin}; see the README.md beside it")
    return pin[1]


def cache_folder(module: Module, environment: Mapping[str, str] = os.environ) -> Path:
    """Cache folder of a module's programs: another version, pin or flag gives another folder."""
    pins = _text_of(module.folder / "go.mod") + _text_of(module.folder / "go.sum")
    recipe = f"{pins}{BUILD_FLAGS}{sorted(BUILD_SETTINGS.items())}{linker_flags(module)}"
    checksum = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    machine = f"{platform.system()}-{platform.machine()}".lower()
    return cache_root(environment) / f"{module.product}-{version_of(module)}-{machine}-{checksum}"


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Root of the cache. $TONNAGE_CACHE moves it, for machines whose home is small, shared or temporary."""
    if chosen := environment.get("TONNAGE_CACHE"):
        return Path(chosen).absolute() / "controlplane"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tonnage" / "controlplane"


def linker_flags(module: Module) -> str:
    """Flags that drop symbols and set the version: without it a server calls itself v0.0.0."""
    if module != KUBERNETES:
        return "-s -w"
    version = version_of(module)
    major, minor = version.removeprefix("v").split(".")[:2]
    fields = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(
        ["-s -w", *(f"-X {package}.{key}={value}" for package in packages for key, value in fields.items())]
    )


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        remedy = "run from a source tree of Tonnage, or set KUBEBUILDER_ASSETS to a folder that has the programs"
        raise BuildError(f"{path} is missing: it pins the programs of a control plane; {remedy}") from error
