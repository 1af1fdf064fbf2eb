"""Debian packages: read without dpkg, fetched by checksum."""

import hashlib
import io
import tarfile
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

import pytest

from cluster.errors import GuestError
from tests.conftest import is_failure
from tests.rigs.kernel.guest import pinned
from tests.rigs.kernel.packages import (
    ARCHIVES,
    C_LIBRARY,
    KERNEL,
    ArchiveUnreachableError,
    Package,
    archives_of,
    cache_folder,
    fetched,
    unpack,
)


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


def test_an_archive_that_lacks_the_version_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    # The pin is lost, which a required kernel must report; without any answer nothing is known of it.
    def lacking(url: str, timeout: float) -> None:
        raise urllib.error.HTTPError(url, 404, "Not Found", Message(), None)

    monkeypatch.setattr(urllib.request, "urlopen", lacking)

    with pytest.raises(GuestError, match="404") as failure:
        fetched(KERNEL)
    assert not isinstance(failure.value, ArchiveUnreachableError)


def test_without_any_answer_the_archive_is_unreachable() -> None:
    with pytest.raises(ArchiveUnreachableError, match="refused"):
        fetched(KERNEL, ("http://127.0.0.1:1/debian",))


@pytest.mark.parametrize(
    ("error", "required", "fails"),
    [
        (GuestError("404"), "controlplane,kernel", True),
        (GuestError("404"), "controlplane", False),
        (ArchiveUnreachableError("refused"), "controlplane,kernel", False),
    ],
)
def test_a_lost_pin_fails_where_kernels_are_required_and_a_lost_network_skips(
    error: GuestError, required: str, fails: bool
) -> None:
    assert is_failure(error, required) is fails


def test_a_mirror_of_the_users_own_is_tried_first() -> None:
    assert archives_of({"TONNAGE_DEBIAN_MIRROR": "http://mirror.example/debian/"})[0] == "http://mirror.example/debian"
    assert archives_of({}) == ARCHIVES


def test_the_emulator_is_pinned_with_its_kernel_and_one_c_library_for_all() -> None:
    packages = pinned()

    assert len({package.name.partition("_")[0] for package in packages}) == len(packages) == 52
    assert [one.folder for one in packages if one.name.startswith("linux-image-")] == ["boot/"]
    assert all(len(package.sha256) == 64 for package in packages)
    assert C_LIBRARY.sha256 in {package.sha256 for package in packages}


def test_the_cache_can_be_moved(tmp_path: Path) -> None:
    assert cache_folder({"TONNAGE_CACHE": str(tmp_path)}).parent == tmp_path / "uml"
    assert KERNEL.name == "user-mode-linux_7.2um1_amd64.deb"
