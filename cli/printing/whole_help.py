"""Group of commands whose summaries are shown whole; click cuts them at 45 characters."""

import click

WHOLE = 10_000
"""Limit of a summary's length, so that its first sentence is always whole."""


class Group(click.Group):
    """Group that shows the first sentence of each command's help whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        commands = [(name, self.get_command(ctx, name)) for name in names]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(n, c.get_short_help_str(WHOLE)) for n, c in commands if c is not None and not c.hidden]
            )
