"""A build that `make test` can do without: where it fails, one line says that tests are skipped, and why."""

import os
import subprocess
import sys
from pathlib import Path


def test_without_go_and_without_an_index_of_packages_one_line_says_that_tests_are_skipped(tmp_path: Path) -> None:
    nowhere = {"HOME": str(tmp_path), "PATH": str(tmp_path), "TONNAGE_CACHE": str(tmp_path), "PIP_NO_INDEX": "1"}
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith(("GO", "KUBEBUILDER"))}, **nowhere}
    command = [sys.executable, "-m", "simulator.controlplane", "--skippable", "etcd"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("no control plane, so tests that need it are skipped: looking for Go")
