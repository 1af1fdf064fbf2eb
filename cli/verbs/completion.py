"""`tonnage completion`: script that makes a shell complete verbs, options and object names."""

import click
from click.shell_completion import get_completion_class

from cli.main import tonnage
from cluster.errors import TonnageError

SHELLS = ("bash", "fish", "zsh")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  source <(tonnage completion bash)
    zsh:   source <(tonnage completion zsh)
    fish:  tonnage completion fish | source
    """
    click.echo(script(shell))


def script(shell: str) -> str:
    """Completion script. shell: one of SHELLS."""
    made = get_completion_class(shell)
    if made is None:
        raise TonnageError(f"completing for {shell}: not supported by the installed click; use one of {SHELLS}")
    source = made(tonnage, {}, "tonnage", "_TONNAGE_COMPLETE")
    return source.source_template % source.source_vars()
