"""Commands of the guide work. Their output may change with every better plan, so it is not compared."""

import shlex

import pytest
from click.testing import CliRunner

from cli.main import tonnage
from tests.generated.guide import PAGE, ROOT, commands

COMMANDS = commands(PAGE.read_text(encoding="utf-8"))


def test_the_guide_has_commands() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide_works(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    result = CliRunner().invoke(tonnage, shlex.split(command))

    assert result.exit_code == (2 if "mistakes" in command else 0), result.stderr
