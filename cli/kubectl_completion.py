"""`kubectl_complete-tonnage`: what kubectl runs to complete `kubectl tonnage ...`, in the protocol of its shells.

kubectl hands over the words so far, the last of them unfinished, and reads one candidate a line (`name<TAB>help`) and a
directive. Source: kubernetes.io, "Extend kubectl with plugins"; spf13/cobra, "Shell completions".
"""

import sys
from collections.abc import Iterator, Sequence

import click
from click.shell_completion import ShellComplete

from cli.main import tonnage

NO_FILES = 4
"""The directive: nothing else is to be offered."""
FILES = 0
"""The directive: the shell may offer files as well."""


def completions(words: Sequence[str]) -> Iterator[str]:
    """The lines that kubectl reads. words: after `kubectl tonnage`, the last one unfinished or empty."""
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
