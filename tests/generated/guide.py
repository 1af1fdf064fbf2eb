"""Outputs in a page of docs, from the commands in it: `python -m tests.generated.guide` updates those of the guide.

`python -m tests.generated.guide docs/cli.md` does so for another page; those of docs/cli.md speak to the cluster that
KUBECONFIG names, made as the page says.
"""

import re
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from cli.main import tonnage

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide.md"

BLOCK = re.compile(r"```console\n\$ tonnage (?P<command>.*)\n(?P<output>(?:.*\n)*?)```")


def commands(page: str) -> list[str]:
    """The command lines of a page, without the command's name."""
    return [block["command"] for block in BLOCK.finditer(page)]


def refreshed(page: str) -> str:
    """The page with what its commands say now. Paths in it are relative to the repository's root."""
    return BLOCK.sub(lambda block: f"```console\n$ tonnage {block['command']}\n{_said(block['command'])}```", page)


def _said(command: str) -> str:
    result = CliRunner().invoke(tonnage, shlex.split(command))
    lines = (line.rstrip() for line in result.output.strip().splitlines())
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
