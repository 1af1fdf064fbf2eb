"""Environment of Ray's processes: nothing that a user's shell sets keeps them from starting."""

import os
import subprocess
import sys
from pathlib import Path

from controller.brain.on_ray.ray_start import RayStart, environment


def test_no_folder_on_pythonpath_stands_in_for_a_module_that_ray_s_processes_need(tmp_path: Path) -> None:
    start, others = tmp_path / "start", tmp_path / "others"
    start.mkdir()
    (others / "controller").mkdir(parents=True)
    for wrong in ("random.py", "msgspec.py", "cluster.py", "controller/__init__.py"):
        (others / wrong).write_text("raise SystemExit('the wrong one')", encoding="utf-8")
    (others / "helper.py").write_text("", encoding="utf-8")
    given = {**os.environ, "PYTHONPATH": str(others)}
    code = "import random, msgspec, cluster, controller.brain.wire, helper"

    begun = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code],
        env=environment(RayStart(str(start)), given),
        cwd=start,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (begun.returncode, begun.stderr) == (0, "")
