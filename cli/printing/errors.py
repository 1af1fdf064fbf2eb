"""Errors as a command reports them: text on standard error, and an exit status."""

import click

from cluster.errors import TonnageError

FAILED, WRONG_INPUT = 1, 2
"""Exit statuses: refused or failed; wrong use or invalid input."""


def print_error(error: TonnageError) -> None:
    """An error in kubectl's words: whether the server refused, could not be reached, or it was something else."""
    refusal = getattr(error, "refusal", None)  # of an API server; its module is not loaded for verbs without one
    if refusal is None:
        click.echo(f"error: {error}", err=True)
    elif refusal.status == 0:
        click.echo(f"Unable to connect to the server: {refusal.words}", err=True)
        click.echo("check --context and --kubeconfig, and whether the server runs", err=True)
    else:
        click.echo(f"Error from server ({refusal.reason}): {refusal.words}", err=True)
