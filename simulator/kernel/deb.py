"""Files of a Debian package, read without dpkg: the format is an ar archive of tar archives (deb(5))."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from cluster.errors import GuestError

MAGIC = b"!<arch>\n"
HEADER_BYTES = 60
NAME, SIZE = slice(0, 16), slice(48, 58)


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
