"""The command where its surroundings fail: standard output, encoding, disk, folders, kubeconfig, Ctrl-C."""

import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli.inputs.runs import obstacle, save_report
from cli.main import run, tonnage
from cli.printing.terminal import ESCAPED, FAILED, INTERRUPTED, UNREAD, WRONG_INPUT, make_safe, stopped_status
from cluster.errors import ConfigError

ROOT = Path(__file__).parents[2]


def in_shell(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`tonnage` with the words, which may redirect, in a process of its own."""
    command = f"{sys.executable} -m cli.main {words}"
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=False, env=settings)  # noqa: S603


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """`run` returns instead of closing the streams of the tests."""
    monkeypatch.setattr("cli.main._drop_output", lambda: None)
    return monkeypatch


def that_raises(error: BaseException) -> click.Command:
    def callback() -> None:
        raise error

    return click.Command("version", callback=callback)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_standard_output_is_one_line() -> None:
    result = in_shell("version > /dev/full")

    assert (result.returncode, len(result.stderr.splitlines())) == (FAILED, 1)
    assert result.stderr == "error: writing the output: No space left on device\n"


@pytest.mark.parametrize(
    "words", ["--help", "version", "plan --help", "plan -f no-such-file", "plan --no-such", "plna"]
)
def test_where_the_reader_has_ended_the_status_says_so_whatever_was_to_be_written(words: str) -> None:
    """As in `tonnage plan -f . 2>&1 | head`, where errors fill the pipe that head has closed."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cli.main", *words.split()]

    result = subprocess.run(command, stdout=writer, stderr=writer, check=False, cwd=ROOT)  # noqa: S603
    os.close(writer)

    assert result.returncode == UNREAD


def test_a_closed_standard_output_is_one_line_and_names_what_discards() -> None:
    result = in_shell("version >&-")

    assert (result.returncode, len(result.stderr.splitlines())) == (FAILED, 1)
    assert ">/dev/null" in result.stderr


def test_a_reader_that_ends_first_is_told_apart_from_a_failure_and_without_words() -> None:
    result = in_shell("crds | true; exit ${PIPESTATUS[0]}")

    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, "")


def test_the_demo_says_what_it_installs_before_it_is_silent_for_minutes() -> None:
    dry = ["make", "--dry-run", "--always-make", "demo"]
    recipe = subprocess.run(dry, capture_output=True, text=True, check=True, cwd=ROOT).stdout  # noqa: S603

    assert re.search(
        r"^echo \"installing .*: about 1 GB, some minutes\"$", recipe.partition("pip install")[0], re.MULTILINE
    )


def test_closed_standard_input_and_error_change_nothing() -> None:
    assert in_shell("version <&- 2>&-").returncode == 0


def test_what_an_encoding_lacks_is_written_so_that_json_reads_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", narrow)
    make_safe()

    print(json.dumps("✓ é 𝄞", ensure_ascii=False), flush=True)  # noqa: T201

    assert narrow.errors == ESCAPED
    written = narrow.buffer.getvalue().decode("latin-1")  # type: ignore[attr-defined]
    assert written == '"\\u2713 é \\ud834\\udd1e"\n'
    assert json.loads(written) == "✓ é 𝄞"


def test_an_error_of_the_operating_system_is_one_line(
    failing: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing.setitem(tonnage.commands, "version", that_raises(FileNotFoundError(2, "No such file", "/proc/x")))
    failing.setattr(tonnage, "get_command", lambda _, name: tonnage.commands.get(name))

    assert run(["version"]) == FAILED
    assert capsys.readouterr().err == "error: /proc/x: No such file\n"


def test_ctrl_c_ends_every_verb_as_shells_expect(
    failing: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing.setitem(tonnage.commands, "version", that_raises(KeyboardInterrupt()))
    failing.setattr(tonnage, "get_command", lambda _, name: tonnage.commands.get(name))

    assert run(["version"]) == INTERRUPTED == 128 + signal.SIGINT
    assert "Traceback" not in capsys.readouterr().err


def test_an_interrupted_sweep_has_the_status_of_ctrl_c_and_a_failed_one_has_not() -> None:
    assert stopped_status("interrupted") == INTERRUPTED
    assert stopped_status("a worker died") == FAILED


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A pipe stands for everything that is no regular file; tests must not risk a device."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_report_is_written_into_what_is_no_regular_file_and_never_replaces_it(device: Path) -> None:
    reader = os.open(device, os.O_RDONLY | os.O_NONBLOCK)

    save_report(device, "<html>")

    assert stat.S_ISFIFO(device.stat().st_mode)
    assert os.read(reader, 100) == b"<html>"
    os.close(reader)
    assert obstacle(device) == ""


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    save_report(target, "first")
    save_report(target, "second")

    assert target.read_text(encoding="utf-8") == "second"
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_a_report_that_cannot_be_written_is_a_mistake_with_a_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"report .*file/report.html"):
        save_report(tmp_path / "file" / "report.html", "x")


def test_a_report_at_a_symbolic_link_replaces_the_file_it_points_at(tmp_path: Path) -> None:
    target, link = tmp_path / "results" / "today.html", tmp_path / "latest.html"
    target.parent.mkdir()
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)

    save_report(link, "new")

    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
    assert sorted(path.name for path in target.parent.iterdir()) == ["today.html"]


def test_a_circle_of_symbolic_links_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")

    with pytest.raises(ConfigError):
        save_report(tmp_path / "a", "x")


def test_a_folder_that_was_made_for_a_report_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_report(tmp_path / "new" / "day.html", "x")
    save_report(tmp_path / "new" / "again.html", "x")

    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(f"(made the folder {tmp_path / 'new'})")
    assert second == f"report: {tmp_path / 'new' / 'again.html'}"


def test_a_file_without_its_option_is_answered_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(tmp_path)]) == WRONG_INPUT
    assert f"tonnage plan -f {tmp_path}" in capsys.readouterr().err


def test_a_url_is_answered_with_a_way_to_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-f", "https://example.com/x.yaml"]) == WRONG_INPUT
    assert "curl -fsSL https://example.com/x.yaml | tonnage" in capsys.readouterr().err


def test_without_a_kubeconfig_the_places_and_a_way_to_a_cluster_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert run(["get", "pods"]) == WRONG_INPUT
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.splitlines()[0] == (
        f"error: --kubeconfig: no kubeconfig found (looked at {tmp_path}/.kube/config); "
        "give --kubeconfig or set KUBECONFIG; no cluster? start one here: tonnage controlplane up"
    )


@pytest.mark.parametrize("given", ["-1", "0", "soon", "2d", "nan", "25h"])
def test_a_deadline_that_is_no_time_is_answered_in_our_words(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "-f", "examples", "--deadline", given]) == WRONG_INPUT
    assert "write 10, 30s or 5m" in capsys.readouterr().err


def test_a_deadline_has_the_units_of_other_durations() -> None:
    from cli.inputs.planning import deadline

    assert (deadline("5m"), deadline("10"), deadline("1m30s")) == (300.0, 10.0, 90.0)


@pytest.mark.parametrize("option", ["--slo", "--demand"])
def test_a_what_if_of_nothing_is_wrong_input(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["whatif", "-f", str(ROOT / "examples"), option, "0"]) == WRONG_INPUT
    assert "numbers above 0" in capsys.readouterr().err


def test_the_definitions_of_all_kinds_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    from tests.generated.crd_files import files

    assert run(["crds"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == [yaml.safe_load(text) for text in files().values()]
