"""Debian packages: read without dpkg, fetched by checksum."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from cluster.errors import GuestError
from simulator.kernel.deb import unpack
from simulator.kernel.packages import KERNEL, Package, cache_folder, fetched


def deb(files: dict[str, bytes]) -> bytes:
    """Debian package with the files; deb(5): an ar archive of debian-binary, control.tar and data.tar."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    members = {"debian-binary": b"2.0\n", "data.tar.xz": data.getvalue()}
    return b"!<arch>\n" + b"".join(
        f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
        for name, content in members.items()
    )


def test_only_the_needed_folder_of_a_package_is_unpacked(tmp_path: Path) -> None:
    unpack(deb({"usr/bin/kernel": b"program", "usr/share/doc": b"text"}), tmp_path, only="usr/bin/")

    assert (tmp_path / "usr/bin/kernel").read_bytes() == b"program"
    assert not (tmp_path / "usr/share").exists()


def test_a_file_that_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="not an ar archive"):
        unpack(b"<html>not found</html>", tmp_path)


def test_a_package_with_another_checksum_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "a.deb").write_bytes(b"altered")
    package = Package("a.deb", hashlib.sha256(b"original").hexdigest(), "")

    with pytest.raises(GuestError, match="sha256 is"):
        fetched(package, (tmp_path.as_uri(),))


def test_a_later_archive_is_asked_where_an_earlier_lacks_the_version(tmp_path: Path) -> None:
    (tmp_path / "a.deb").write_bytes(b"original")
    package = Package("a.deb", hashlib.sha256(b"original").hexdigest(), "")

    assert fetched(package, ((tmp_path / "empty").as_uri(), tmp_path.as_uri())) == b"original"


def test_the_cache_can_be_moved(tmp_path: Path) -> None:
    assert cache_folder({"TONNAGE_CACHE": str(tmp_path)}).parent == tmp_path / "uml"
    assert KERNEL.name == "user-mode-linux_7.2um1_amd64.deb"
