"""`tonnage`: the command that holds all verbs. A verb's module is imported only when that verb is used."""

import os
import sys
from dataclasses import dataclass
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from cli.printing.errors import FAILED, WRONG_INPUT, print_error
from cluster.errors import ConfigError, TonnageError

EXIT_STATUS = """\b
Exit status:
  0    done (a plan was made, even where not everything has a place in it)
  1    refused or failed
  2    wrong use or bad input; nothing was written"""


@dataclass(frozen=True, slots=True)
class Verb:
    module: str
    """Has the click command under the verb's name."""
    summary: str
    """Stands in the list of verbs, so that the list needs no module of theirs."""


VERBS = {
    "apply": Verb("cli.verbs.apply", "Apply manifests to a cluster, server side; --dry-run shows the difference."),
    "brain": Verb("cli.verbs.brain", "Plan on a Ray cluster for an operator elsewhere."),
    "bundle": Verb("cli.verbs.bundle", "Fetch a support bundle: what the operator saw, decided and did of late."),
    "completion": Verb("cli.verbs.completion", "Print the completion script of a shell."),
    "controlplane": Verb("cli.verbs.controlplane", "Run a real control plane on this machine, with simulated nodes."),
    "delete": Verb("cli.verbs.delete", "Delete objects of a cluster, and wait until they are gone."),
    "describe": Verb("cli.verbs.describe", "Tell all about one object: status, cost, routing, placements, events."),
    "doctor": Verb("cli.verbs.doctor", "Check whether Tonnage can work on a cluster, and say what to do."),
    "drain": Verb("cli.verbs.drain", "Empty a node, after showing where its pods would go."),
    "events": Verb("cli.verbs.events", "Show what Tonnage decided about objects, oldest first."),
    "explain": Verb("cli.verbs.explain", "Say why the plan treats one object as it does, or what a field means."),
    "get": Verb("cli.verbs.get", "Show objects of a cluster in the server's columns."),
    "operator": Verb("cli.verbs.operator", "Run Tonnage as an operator on a cluster."),
    "plan": Verb("cli.verbs.plan", "Plan a fleet, of manifests or a cluster: instances, cost, placements, the rest."),
    "power": Verb("cli.verbs.power", "Show power budgets, who is held back and why, and how many more servers fit."),
    "replay": Verb("cli.verbs.replay", "Play a support bundle through this version's deciders, and compare."),
    "simulate": Verb("cli.verbs.simulate", "Replay traces on a pretend datacenter: placement, a day, power."),
    "top": Verb("cli.verbs.top", "Show how much is used, lost and idle, and what it costs."),
    "version": Verb("cli.verbs.version", "Print the version."),
    "whatif": Verb("cli.verbs.whatif", "Plan a fleet as it might be: other demand, prices, promises, nodes, policies."),
}


class Verbs(click.Group):
    """A group that knows its verbs by name, and turns our errors into words and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's protocol
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command = getattr(import_module(verb.module), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101  # a wrong table is ours to mend, not the user's
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, VERBS[name].summary) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(n, help=VERBS[n].summary) for n in self.list_commands(ctx) if n.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            for mistake in error.mistakes:
                click.echo(f"error: {mistake}", err=True)
            count = len(error.mistakes)
            click.echo(f"{count} mistake{'s' if count > 1 else ''} in the input; nothing was done", err=True)
            ctx.exit(WRONG_INPUT)
        except TonnageError as error:
            print_error(error)
            ctx.exit(FAILED)


@click.group(
    cls=Verbs,
    name="tonnage",
    epilog=EXIT_STATUS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
def tonnage() -> None:
    """Tonnage plans heterogeneous AI datacenters: which GPUs serve a model, where every pod runs, how many watts it may
    draw.

    Data goes to standard output, words to standard error.
    """


def program_name(path: str) -> str:
    """What the user typed: kubectl runs `kubectl tonnage` by starting `kubectl-tonnage`."""
    return "kubectl tonnage" if os.path.basename(path).startswith("kubectl-tonnage") else "tonnage"


def main() -> None:
    """Entry point of the `tonnage` command."""
    try:
        tonnage(prog_name=program_name(sys.argv[0]))
    except BrokenPipeError:
        # The reader of our output (head, less) left early. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
