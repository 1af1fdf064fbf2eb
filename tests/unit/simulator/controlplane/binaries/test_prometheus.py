import platform
from pathlib import Path

import pytest

from cluster.errors import BuildError
from tests.rigs.prometheus import VERSION, prometheus_program


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty mirror of Debian, on disk, and an empty cache."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("TONNAGE_PROMETHEUS", raising=False)
    monkeypatch.setenv("TONNAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TONNAGE_DEBIAN_MIRROR", (tmp_path / "mirror").as_uri())
    pool = tmp_path / "mirror" / "pool" / "main" / "p" / "prometheus"
    pool.mkdir(parents=True)
    return pool


def test_the_users_own_program_comes_first(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_PROMETHEUS", "/opt/prometheus")

    assert prometheus_program() == Path("/opt/prometheus")


def test_a_package_that_is_not_the_pinned_one_is_not_unpacked(mirror: Path) -> None:
    (mirror / f"prometheus_{VERSION}_amd64.deb").write_bytes(b"something else")

    with pytest.raises(BuildError, match="checksum"):
        prometheus_program()


def test_a_mirror_without_the_package_is_a_reason_to_skip(mirror: Path) -> None:
    with pytest.raises(BuildError, match="fetching prometheus"):
        prometheus_program()


def test_no_package_is_guessed_for_another_machine(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")

    with pytest.raises(BuildError, match="riscv64"):
        prometheus_program()
