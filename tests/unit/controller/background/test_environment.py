"""Environment of a driver's processes: nothing that a user's shell sets keeps them from starting."""

import os
import subprocess
import sys
from pathlib import Path

from controller.background.on_ray import DriverStart, environment


def test_no_folder_on_pythonpath_stands_in_for_a_module_that_ray_s_processes_need(tmp_path: Path) -> None:
    start, others = tmp_path / "start", tmp_path / "others"
    start.mkdir()
    (others / "controller").mkdir(parents=True)
    for wrong in ("random.py", "msgspec.py", "cluster.py", "controller/__init__.py"):
        (others / wrong).write_text("raise SystemExit('the wrong one')", encoding="utf-8")
    (others / "helper.py").write_text("", encoding="utf-8")
    given = {**os.environ, "PYTHONPATH": str(others)}
    code = "import random, msgspec, cluster, controller.background.wire, helper"

    begun = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code],
        env=environment(DriverStart("embedded", str(start)), given),
        cwd=start,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (begun.returncode, begun.stderr) == (0, "")


def test_a_ray_of_its_own_has_a_token_that_only_its_user_reads(tmp_path: Path) -> None:
    told = environment(DriverStart("embedded", str(tmp_path)), {"RAY_AUTH_TOKEN": "another", "KUBECONFIG": "/k"})

    token = Path(told["RAY_AUTH_TOKEN_PATH"])
    assert (told["RAY_AUTH_MODE"], token.stat().st_mode & 0o777, len(token.read_text())) == ("token", 0o600, 64)
    assert not {"RAY_AUTH_TOKEN", "KUBECONFIG"} & told.keys()


def test_a_cluster_is_joined_with_its_token_file_or_with_what_the_user_has(tmp_path: Path) -> None:
    cluster = DriverStart("cluster", str(tmp_path), "head:1", "/secret/token")
    by_user = DriverStart("cluster", str(tmp_path), "head:1")

    assert environment(cluster, {})["RAY_AUTH_TOKEN_PATH"] == cluster.token_file
    assert environment(by_user, {"RAY_AUTH_TOKEN": "mine"})["RAY_AUTH_TOKEN"].startswith("mi")
    assert environment(by_user, {"RAY_AUTH_MODE": "disabled"})["RAY_AUTH_MODE"] == "disabled"
