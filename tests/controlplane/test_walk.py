"""docs/walk.md, ten minutes with the operator, run line by line as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.controlplane import processes
from simulator.controlplane.binaries import Programs
from simulator.controlplane.commands import Folder
from simulator.controlplane.server import down
from tests.controlplane.keeper import keep
from tests.controlplane.operators import ROOT

pytestmark = pytest.mark.controlplane

BLOCK = re.compile(r"```\n(.*?)```", re.DOTALL)


def walk() -> str:
    """Commands of the page, in order."""
    return "".join(BLOCK.findall((ROOT / "docs" / "walk.md").read_text(encoding="utf-8")))


def test_the_walk_does_what_its_page_says(tmp_path: Path, programs: Programs) -> None:
    shims, state = tmp_path / "bin", tmp_path / "state"
    shims.mkdir()
    (shims / "tonnage").write_text(f'#!/bin/sh\nexec {sys.executable} -m cli.main "$@"\n', encoding="utf-8")
    (shims / "tonnage").chmod(0o755)
    (shims / "kubectl").symlink_to(programs["kubectl"])
    for name in ("examples", "docs", "cli"):
        (tmp_path / name).symlink_to(ROOT / name)
    folder = Folder(state / "tonnage" / "controlplane")
    (state / "tonnage").mkdir(parents=True)
    keep(state / "tonnage", processes.process_with("test run", os.getpid()))
    environment = {
        **os.environ,
        "PATH": f"{shims}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(state),
        "PYTHONPATH": str(ROOT),
        "KUBECACHEDIR": str(tmp_path / "cache"),
    }
    try:
        done = subprocess.run(  # noqa: S603
            ["/bin/bash", "-euxm", "-o", "pipefail", "-c", walk()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        if folder.state.exists():
            down(folder, delete=True)
    log = tmp_path / "operator.log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")
    looks = done.stdout
    assert "notebook" in looks
    assert re.search(r"train-\w+ +1/1 +Running", looks)
