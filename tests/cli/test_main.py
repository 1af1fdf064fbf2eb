"""The command as a whole: its verbs, its start, completion."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.main import VERBS, tonnage
from cluster.version import VERSION
from nodeagent.__main__ import main as agent

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "pydantic", "yaml", "rich", "pulp", "highspy", "matplotlib", "structlog")


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_verb_is_there_and_explains_itself(name: str) -> None:
    result = CliRunner().invoke(tonnage, [name, "--help"])

    assert result.exit_code == 0
    assert "Usage: tonnage" in result.stdout


def test_the_help_names_every_verb_and_the_exit_status() -> None:
    said = CliRunner().invoke(tonnage, ["--help"]).stdout

    assert all(f"\n  {name} " in said for name in VERBS)
    assert "Exit status:" in said


@pytest.mark.parametrize("program", [tonnage, agent], ids=["tonnage", "tonnage-agent"])
def test_every_option_has_a_help_text(program: click.Group) -> None:
    undocumented = [
        f"{command} {option.opts[0]}"
        for command, options in commands_of(program, click.Context(program), program.name or "")
        for option in options
        if isinstance(option, click.Option) and not option.help and "--output" not in option.opts
    ]

    assert undocumented == []


def commands_of(
    command: click.Command, context: click.Context, path: str
) -> Iterator[tuple[str, Sequence[click.Parameter]]]:
    """Every command below this one, with its options."""
    yield path, command.params
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        assert isinstance(command, click.Group)
        below = command.get_command(context, name)
        assert below is not None
        yield from commands_of(below, click.Context(below, parent=context), f"{path} {name}")


def test_an_unknown_verb_is_wrong_use() -> None:
    assert CliRunner().invoke(tonnage, ["levitate"]).exit_code == 2


def test_a_misspelled_verb_is_told_with_the_one_that_was_meant() -> None:
    result = CliRunner().invoke(tonnage, ["plna", "-f", "x"])

    assert result.exit_code == 2
    assert "No such command 'plna'. Did you mean 'plan'?" in result.stderr


def test_the_version_is_that_of_the_package() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert package["project"]["version"] == VERSION
    assert CliRunner().invoke(tonnage, ["version"]).stdout.startswith(f"tonnage {VERSION} ")


@pytest.mark.parametrize("arguments", [["version"], ["--help"]])
def test_starting_loads_nothing_heavy(arguments: list[str]) -> None:
    """What a start costs is what it imports: a count that does not depend on how busy the machine is."""
    code = (
        "import sys; from cli.main import tonnage\n"
        f"tonnage({arguments!r}, prog_name='tonnage', standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )

    result = python(code)

    assert result.stderr.strip() == "[]"


def test_the_command_works_as_a_process_and_stops_on_bad_input(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [", encoding="utf-8")

    command = [sys.executable, "-m", "cli.main", "plan", "-f", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603

    assert (result.returncode, result.stdout) == (2, "")
    assert "bad.yaml, document 1, line 2" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_each_shell_gets_a_completion_script_for_the_command(shell: str) -> None:
    result = CliRunner().invoke(tonnage, ["completion", shell])

    assert result.exit_code == 0
    assert "_TONNAGE_COMPLETE" in result.stdout


def completed(words: str, at: int) -> list[str]:
    """What a shell is offered for the word at that place."""
    environment = {"_TONNAGE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    result = CliRunner().invoke(tonnage, env=environment, prog_name="tonnage")
    return [line.partition(",")[2] for line in result.stdout.splitlines()]


def test_verbs_are_completed() -> None:
    assert completed("tonnage pl", 1) == ["plan"]


def test_objects_are_completed_from_the_files_that_are_named() -> None:
    assert completed(f"tonnage explain -f {ROOT / 'examples' / 'services.yaml'} modelservice/default/ch", 4) == [
        "ModelService/default/chat"
    ]
    assert "Pod/" in completed("tonnage explain P", 2)


def test_formats_policies_and_fields_are_completed() -> None:
    assert completed("tonnage get pods -o js", 4) == ["json"]
    assert completed("tonnage whatif --policies fgd,best", 3) == ["fgd,bestfit"]
    assert completed("tonnage explain modelservice.spec.slo", 2) == ["modelservice.spec.slo"]


def test_summaries_of_commands_below_a_verb_are_whole() -> None:
    for verb in ("power", "simulate", "operator", "health"):
        commands = CliRunner().invoke(tonnage, [verb, "--help"]).stdout.partition("Commands:")[2]
        assert commands
        assert "..." not in commands


def test_the_version_is_also_an_option() -> None:
    verb, option = (CliRunner().invoke(tonnage, [words]).stdout for words in ("version", "--version"))

    assert verb == option
