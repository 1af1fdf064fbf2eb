"""`tonnage health`: a recorded job is analysed as a live one is, and incidents are explained."""

import asyncio
import json
import re
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from matplotlib.image import imread

from cli.inputs.recorded_job import compute_times, operations_of
from cli.main import tonnage
from cli.printing.job_pictures import relative
from cli.verbs.health import explanation, release_node
from controller.kube.request import KubeReadError
from tests.cli.verbs.fake_cluster import FakeConnection
from tests.rigs.health.cases import Case, case
from tests.rigs.health.job import DisturbanceKind
from tests.rigs.health.recorder_frames import introductions_of


def run(*words: str) -> Result:
    return CliRunner().invoke(tonnage, list(words))


def recorded(folder: Path, kind: DisturbanceKind) -> Case:
    """A simulated job's frames as one file, its introduction first."""
    drawn = case(0, kind=kind, ranks=16)
    made = drawn.transcript
    (folder / "job.frames").write_bytes(introductions_of(made.introductions) + made.rows.tobytes())
    return drawn


def test_a_recorded_hang_is_named_and_the_exit_status_says_so(tmp_path: Path) -> None:
    drawn = recorded(tmp_path, DisturbanceKind.HANG_RANK)

    result = run("health", "replay", str(tmp_path), "-o", "json")

    assert result.exit_code == 1, result.output
    (blamed,) = [each for each in json.loads(result.stdout) if each["part"] != "nothing"]
    assert drawn.truth is not None
    assert (blamed["syndrome"], tuple(blamed["ranks"])) == ("non-communication-hang", drawn.truth.parts[0][1])


def test_a_folder_without_a_recording_is_refused_with_what_helps(tmp_path: Path) -> None:
    result = run("health", "replay", str(tmp_path))

    assert result.exit_code == 2
    assert "*.frames" in result.stderr


def test_what_checkpoints_cost_and_what_they_would_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: dict[str, Any] = {
        "save": "10s",
        "interval": "30m",
        "advised": "7m",
        "lostShare": 0.12,
        "advisedLostShare": 0.05,
    }
    costs["spares"] = 9
    policy = {"metadata": {"name": "all"}, "status": {"checkpoints": [{"job": "train/a", **costs}]}}
    monkeypatch.setattr("cli.inputs.cluster.listed", lambda *_, **__: [policy])

    shown = run("health", "advise")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[1].split() == ["train/a", "10s", "30m", "7m", "12.0%", "5.0%", "9"]
    assert json.loads(run("health", "advise", "-o", "json").stdout) == [
        {"job": "train/a", **costs, "interval": "1800s", "advised": "420s"}
    ]

    monkeypatch.setattr("cli.inputs.cluster.listed", lambda *_, **__: [])
    assert "recorder.phase" in run("health", "advise").output


def test_the_slow_rank_is_the_bright_row_of_the_map(tmp_path: Path) -> None:
    drawn = recorded(tmp_path, DisturbanceKind.SLOW_RANK)
    assert drawn.truth is not None

    result = run("health", "heatmap", str(tmp_path), "--out", str(tmp_path / "map.png"))

    assert result.exit_code == 0, result.output
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"
    late = relative(compute_times(tmp_path))[:, -20:-1]
    rise = np.median(late, axis=1) / np.median(relative(compute_times(tmp_path))[:, 2:20], axis=1)
    assert int(np.argmax(rise)) in drawn.truth.parts[0][1]


INCIDENT = {
    "metadata": {"name": "node-n6-abc"},
    "spec": {"nodes": ["n6"]},
    "status": {
        "phase": "Suspected",
        "syndrome": "non-communication-hang",
        "part": "rank",
        "jobs": ["ns/train"],
        "confidence": 0.95,
        "evidence": ["3 ranks wait for it"],
        "waitsFor": "DrainBlocked: a disruption budget allows 0 of 4 pods",
        "since": "2026-01-01T00:00:00Z",
        "alternatives": [{"do": "evict now", "note": "DrainBlocked"}, {"do": "restart in place", "gpuHours": 2.5}],
    },
}


@pytest.mark.parametrize("verb", ["heatmap", "timeline"])
def test_a_page_holds_the_picture_and_a_table_and_loads_nothing(tmp_path: Path, verb: str) -> None:
    recorded(tmp_path, DisturbanceKind.HANG_RANK)

    result = run("health", verb, str(tmp_path), "--out", str(tmp_path / "page.html"))

    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("data:", "")
    assert ("non-communication-hang" in page) == (verb == "timeline")
    assert "width=device-width" in page
    assert "color-scheme: light dark" in page
    dark, light = (
        imread(BytesIO(b64decode(each)))[:, :40] for each in re.findall('data:image/png;base64,([^"]+)"', page)
    )
    for picture, is_bright in (
        (dark, True),
        (light, False),
    ):  # the numbers beside the picture, on the page's own ground
        ink = picture[picture[..., 3] > 0.9]
        assert len(ink)
        assert set((ink[:, :3].mean(axis=1) > 0.5).tolist()) == {is_bright}


@pytest.mark.parametrize(
    ("verb", "kind"), [("timeline", DisturbanceKind.HANG_RANK), ("heatmap", DisturbanceKind.SLOW_RANK)]
)
def test_the_headline_of_a_page_is_who_it_is(tmp_path: Path, verb: str, kind: DisturbanceKind) -> None:
    drawn = recorded(tmp_path, kind)
    (rank,) = drawn.disturbance.ranks
    run("health", verb, str(tmp_path), "--out", str(tmp_path / "page.html"))

    (headline,) = re.findall("<h1>(.*)</h1>", (tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"ank {rank}" in headline
    assert headline.startswith("Non-communication-hang: rank" if verb == "timeline" else "Rank")


def test_the_page_of_a_job_without_a_fault_says_so(tmp_path: Path) -> None:
    recorded(tmp_path, DisturbanceKind.NONE)
    run("health", "timeline", str(tmp_path), "--out", str(tmp_path / "page.html"))

    assert "<h1>Nothing stands out</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_operations_that_never_ended_are_in_the_timeline(tmp_path: Path) -> None:
    drawn = recorded(tmp_path, DisturbanceKind.HANG_RANK)
    assert drawn.truth is not None

    made = operations_of(tmp_path)

    stuck = set(made.rank[~np.isfinite(made.exit_s)].tolist())
    assert stuck
    assert not stuck & set(drawn.truth.parts[0][1])
    assert run("health", "timeline", str(tmp_path), "--out", str(tmp_path / "t.png")).exit_code == 0
    assert (tmp_path / "t.png").read_bytes()[:4] == b"\x89PNG"


def test_an_incident_is_explained_with_what_it_waits_for_and_what_else_would_cost() -> None:
    words = "\n".join(explanation(INCIDENT, 1_767_225_660.0))

    assert "waits for: DrainBlocked" in words
    assert "evict now: cannot be done (DrainBlocked)" in words
    assert "restart in place: 2.5" in words


@pytest.mark.parametrize(("key", "is_out"), [("tonnage.dev/unhealthy", True), ("example.com/other", False)])
def test_a_release_tells_whether_health_kept_the_node_out(key: str, *, is_out: bool) -> None:
    taints = [{"key": key, "value": "i.1", "effect": "NoSchedule"}]
    connection = FakeConnection({"/api/v1/nodes/gpu-7": {"metadata": {"name": "gpu-7"}, "spec": {"taints": taints}}})

    assert asyncio.run(release_node(connection.cluster, "gpu-7", "none")) == is_out
    (write,) = connection.sent
    assert list((write.body or {})["metadata"]["annotations"]) == ["tonnage.dev/released-at"]


def test_a_dry_run_of_a_release_names_a_node_that_does_not_exist() -> None:
    connection = FakeConnection()

    with pytest.raises(KubeReadError):
        asyncio.run(release_node(connection.cluster, "a", "client"))

    assert connection.sent == []
