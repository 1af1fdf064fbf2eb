"""Prometheus as Debian builds it: from PATH, or its package, checked and unpacked into the cache."""

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path
from urllib.request import urlopen

from cluster.errors import BuildError
from simulator.controlplane.binaries import cache_root
from simulator.controlplane.processes import locked

VERSION = "2.42.0+ds-5+deb12u1"
"""Version of Debian 12. The pool of a mirror keeps it until the next point release replaces it."""
CHECKSUMS = {
    "amd64": "81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55",
    "arm64": "ca131aa102390083398afbc80be9c8dd1dda78f9f92154fc00df8f7f1f4556e9",
}
"""SHA-256 of the package by Debian's name of the architecture, as in the signed package lists of Debian 12.11."""
MIRROR = "http://deb.debian.org/debian"
"""Mirror of Debian; $TONNAGE_DEBIAN_MIRROR names another one. The checksum makes plain HTTP safe."""
FETCH_WITHIN_S = 120.0
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def prometheus_program() -> Path:
    """The program `prometheus`, fetched first where it is missing. Raises BuildError.

    The machine's package lists and installed packages stay as they are. $TONNAGE_PROMETHEUS names a program of the
    user's own.
    """
    if chosen := os.environ.get("TONNAGE_PROMETHEUS") or shutil.which("prometheus"):
        return Path(chosen).absolute()
    folder = cache_root().parent / "prometheus" / VERSION
    program = folder / "usr" / "bin" / "prometheus"
    try:
        with locked(folder.with_name(f"{VERSION}.lock")):
            if not program.exists():
                _unpack(_package(), folder)
    except OSError as error:
        raise BuildError(f"fetching prometheus {VERSION} from {_url()}: {error}") from error
    return program


def _package() -> bytes:
    """Content of the package. Raises BuildError when it is not the one that is pinned, OSError without a network."""
    with urlopen(_url(), timeout=FETCH_WITHIN_S) as answer:  # noqa: S310 - a fixed scheme, and checked content
        content: bytes = answer.read()
    found = hashlib.sha256(content).hexdigest()
    if found != CHECKSUMS[_architecture()]:
        raise BuildError(f"{_url()} has the checksum {found}, not that of prometheus {VERSION}")
    return content


def _url() -> str:
    mirror = os.environ.get("TONNAGE_DEBIAN_MIRROR", MIRROR).rstrip("/")
    return f"{mirror}/pool/main/p/prometheus/prometheus_{VERSION}_{_architecture()}.deb"


def _architecture() -> str:
    machine = platform.machine()
    if machine not in _ARCHITECTURES or platform.system() != "Linux":
        raise BuildError(f"no package of prometheus is pinned for {platform.system()} {machine}; install it into PATH")
    return _ARCHITECTURES[machine]


def _unpack(package: bytes, folder: Path) -> None:
    """Unpacks it beside `folder`, which then appears complete."""
    unpacker = shutil.which("dpkg-deb")
    if unpacker is None:
        raise BuildError("unpacking prometheus needs dpkg-deb; install prometheus into PATH instead")
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    archive = unfinished / "package.deb"
    archive.write_bytes(package)
    done = subprocess.run([unpacker, "-x", archive, unfinished], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise BuildError(f"unpacking {archive} failed: {done.stderr.strip()}")
    archive.unlink()
    unfinished.rename(folder)
