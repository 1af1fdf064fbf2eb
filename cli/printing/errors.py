"""Errors as a command reports them: text on standard error, and an exit status."""

import click

from cluster.errors import TonnageError

FAILED, WRONG_INPUT, INTERRUPTED, UNREAD = 1, 2, 130, 141
"""Exit statuses: refused or failed; wrong usage or invalid input; ended by Ctrl-C (128 + SIGINT, as in shells); the
reader of the output ended first (128 + SIGPIPE, as kubectl behind `| head`)."""


UNAUTHORIZED = 401
ANONYMOUS = "system:anonymous"
"""User of a request without credentials: the server refuses it as it would anybody without rights."""


def print_error(error: TonnageError) -> None:
    """Print an error as kubectl words it: refused by the server, server not reachable, or any other."""
    # Errors of the API server have it; their module is not loaded for verbs without a cluster.
    refusal = getattr(error, "refusal", None)
    if refusal is None:
        click.echo(f"error: {error}", err=True)
    elif refusal.status == 0:
        click.echo(f"Unable to connect to the server: {refusal.words}", err=True)
        click.echo("check --context and --kubeconfig, and whether the server runs", err=True)
    else:
        click.echo(f"Error from server ({refusal.reason}): {refusal.words}", err=True)
        if refusal.status == UNAUTHORIZED or ANONYMOUS in refusal.words:
            click.echo("you must be logged in: check the user of the kubeconfig and its token (--context)", err=True)


def stopped_status(stopped: str) -> int:
    """Exit status of a sweep that ended early. stopped: the reason, as the sweep states it."""
    return INTERRUPTED if stopped == "interrupted" else FAILED
