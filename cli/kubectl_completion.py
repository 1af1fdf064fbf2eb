"""`kubectl_complete-tonnage`: the program that kubectl runs to complete `kubectl tonnage ...`.

kubectl passes the words typed so far, the last one unfinished. It reads one candidate per line (`name<TAB>help`) and
then a directive. Source: kubernetes.io, "Extend kubectl with plugins"; spf13/cobra, "Shell completions".
"""

import sys
from collections.abc import Iterator, Sequence

import click
from click.shell_completion import ShellComplete

from cli.main import tonnage

NO_FILES = 4
"""Directive: the shell offers nothing else."""
FILES = 0
"""Directive: the shell may also offer files."""


def completions(words: Sequence[str]) -> Iterator[str]:
    """Lines that kubectl reads. words: those after `kubectl tonnage`, the last one unfinished or empty."""
    *whole, unfinished = words or ("",)
    found = ShellComplete(tonnage, {}, "kubectl tonnage", "").get_completions(list(whole), unfinished)
    for item in found:
        if item.type == "plain":
            yield f"{item.value}\t{item.help}" if item.help else str(item.value)
    yield f":{FILES if any(item.type != 'plain' for item in found) else NO_FILES}"


def main() -> None:
    """Entry point."""
    for line in completions(sys.argv[1:]):
        click.echo(line)


if __name__ == "__main__":
    main()
