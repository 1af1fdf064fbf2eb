"""`tonnage`: the command with all verbs. A verb's module is imported only when that verb is used."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete

from cli.printing.terminal import FAILED, INTERRUPTED, UNREAD, WRONG_INPUT, make_safe, print_error, write_out
from cluster.errors import ConfigError, TonnageError
from cluster.version import VERSION

VERSION_LINE = f"tonnage {VERSION} (Python {'.'.join(map(str, sys.version_info[:3]))})"
EXTRAS = {"ray": "ray", "matplotlib": "reports", "jinja2": "reports", "cryptography": "controlplane"}
"""Extra of the distribution that installs each optional library."""
NO_FILES, FILES = 4, 0
"""Directives to kubectl's completion: the shell offers nothing else; it may also offer files."""
EXIT_STATUS = """\b
Exit status:
  0    done (a plan was made, even if it could not place everything)
  1    refused or failed
  2    wrong usage or invalid input; nothing was written
  130  ended by Ctrl-C
  141  the reader of the output ended first, as in `| head`"""


@dataclass(frozen=True, slots=True)
class Verb:
    module: str
    """Module that holds the click command under the verb's name."""
    summary: str
    """Help line in the list of verbs, kept here so that the list imports no verb."""


VERBS = {
    "advise": Verb("cli.verbs.advise", "Say in dollars what idle, stranded and scattered GPUs of a cluster cost."),
    "apply": Verb("cli.verbs.apply", "Apply manifests by server-side apply; --dry-run shows what would change."),
    "background": Verb("cli.verbs.operator", "Run background work on a Ray cluster for an operator elsewhere."),
    "bundle": Verb("cli.verbs.bundle", "Fetch a support bundle: recent snapshots, decisions and results."),
    "completion": Verb("cli.verbs.installation", "Print the completion script for a shell."),
    "controlplane": Verb("cli.verbs.controlplane", "Run a real control plane on this machine, with simulated nodes."),
    "crds": Verb("cli.verbs.installation", "Print the CustomResourceDefinitions of Tonnage's kinds."),
    "describe": Verb("cli.verbs.describe", "Show one object in detail: status, cost, routing, placements, events."),
    "diff": Verb("cli.verbs.apply", "Show what applying manifests would change; exit with 1 if anything differs."),
    "doctor": Verb("cli.verbs.doctor", "Check whether Tonnage can run on a cluster, and how to fix what is missing."),
    "drain": Verb("cli.verbs.drain", "Empty a node, after showing where its pods would go."),
    "events": Verb("cli.verbs.describe", "Show what Tonnage decided about objects, oldest first."),
    "examples": Verb("cli.verbs.installation", "Copy the examples and the Helm chart into a folder."),
    "explain": Verb("cli.verbs.plan", "Explain one object's plan, or the meaning of a field."),
    "get": Verb("cli.verbs.get", "List objects in the API server's columns, as kubectl does."),
    "gputypes": Verb("cli.verbs.gputypes", "Print the GPUTypes that a cluster's nodes need, with list prices."),
    "health": Verb("cli.verbs.health", "Explain suspected faults, release nodes, and analyse recorded jobs."),
    "operator": Verb("cli.verbs.operator", "Run Tonnage as an operator on a cluster."),
    "plan": Verb("cli.verbs.plan", "Plan a fleet from manifests or a cluster: instances, cost, placements."),
    "power": Verb("cli.verbs.power", "Explain why devices are held back, and find how many servers fit."),
    "profile": Verb("cli.verbs.profile", "Make a model's profiles: estimate, measure, import or refine them."),
    "replay": Verb("cli.verbs.bundle", "Replay a support bundle with this version, and compare the plans."),
    "run": Verb("cli.verbs.run", "Run a command in a pod as a tool call with memory of its own."),
    "sandboxd": Verb("cli.verbs.sandboxd", "Isolate tool calls on a host without Kubernetes, by systemd's slices."),
    "scaling": Verb("cli.verbs.scaling", "Explain what autoscaling decides, and what a history would have cost."),
    "simulate": Verb("cli.verbs.simulate", "Simulate a datacenter: placement of traces, a day, power."),
    "top": Verb("cli.verbs.top", "Show allocated, stranded and idle GPUs, and their cost."),
    "usage": Verb("cli.verbs.usage", "Show who held which devices how long, and what they cost."),
    "version": Verb("cli.verbs.installation", "Print the version."),
    "whatif": Verb("cli.verbs.whatif", "Compare plans under other demand, prices, SLOs, nodes or policies."),
}


class Verbs(click.Group):
    """Group that finds verbs by name, and turns Tonnage's errors into messages and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's protocol
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        command = getattr(import_module(verb.module), cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101  # a wrong table is a bug, not the user's error
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not ctx.resilient_parsing:
            from cluster.errors import nearest

            if near := nearest(args[0], VERBS):  # click knows only verbs that are loaded, and so suggests none
                ctx.fail(f"No such command '{args[0]}'. Did you mean '{near}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, VERBS[name].summary) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(n, help=VERBS[n].summary) for n in self.list_commands(ctx) if n.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click's; also `--help` and `--version` may find that nobody reads."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:  # here and below, since click would end with 1
            _drop_all()
            raise click.exceptions.Exit(UNREAD) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return self._reported(ctx)
        except BrokenPipeError:
            _drop_all()
            ctx.exit(UNREAD)

    def _reported(self, ctx: click.Context) -> object:
        """Result of the verb; its errors are printed and end in an exit status."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            for mistake in error.mistakes:
                click.echo(f"error: {mistake}", err=True)
            count = len(error.mistakes)
            click.echo(f"{count} error{'s' if count > 1 else ''} in the input; nothing was done", err=True)
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
@click.version_option(VERSION, message=VERSION_LINE, help="Show the version and exit.")
def tonnage() -> None:
    """Plan GPU fleets on Kubernetes: which GPU types serve each model, where pods run, how much power they may draw.

    Results go to standard output, messages to standard error.
    """


def program_name(path: str) -> str:
    """Command as the user typed it: kubectl runs `kubectl tonnage` by starting `kubectl-tonnage`."""
    return "kubectl tonnage" if os.path.basename(path).startswith("kubectl-tonnage") else "tonnage"


def main() -> None:
    """Entry point of the `tonnage` command."""
    sys.exit(run(sys.argv[1:], program_name(sys.argv[0])))


def run(arguments: Sequence[str], name: str = "tonnage") -> int:
    """Run a command; returns its exit status.

    Errors of the environment (a full disk, a closed or narrow standard output, a folder that cannot be made) end in
    one line on standard error. A traceback is left to defects of Tonnage.
    """
    try:
        return _run(arguments, name)
    except BrokenPipeError:  # of the output, or of the line about an error
        _drop_all()
        return UNREAD


def _run(arguments: Sequence[str], name: str) -> int:
    try:
        make_safe()
        status = tonnage.main(list(arguments), prog_name=name, standalone_mode=False)
        write_out()
    except click.ClickException as error:
        error.show()
        if hint := _file_hint(error):
            click.echo(hint, err=True)
        return error.exit_code
    except TonnageError as error:  # of the streams; those of verbs end in the group
        print_error(error)
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        raise  # an OSError, too
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        click.echo(f"error: this needs {error.name}, which is not installed: pip install 'tonnage[{extra}]'", err=True)
        return FAILED
    except OSError as error:
        _drop_output()
        click.echo(f"error: {os_error_words(error)}", err=True)
        return FAILED
    return status if isinstance(status, int) else 0


def _file_hint(error: click.ClickException) -> str:
    """Hint at `-f` where a file was given as a bare word, "" for any other error."""
    found = re.search(r"unexpected extra argument \((.+)\)", error.message)
    context = getattr(error, "ctx", None)
    if found is None or context is None or not os.path.exists(found[1]):
        return ""
    takes_files = any("-f" in param.opts for param in context.command.params)
    return f"files and folders are given with -f: {context.command_path} -f {found[1]}" if takes_files else ""


def os_error_words(error: OSError) -> str:
    """File and reason of an operating system's error, such as `/data: Permission denied`."""
    words = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {words}" if error.filename is not None else f"writing the output: {words}"


def _drop_output() -> None:
    """Point standard output at nothing: Python would write what is left, and report its failure, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)


def _drop_all() -> None:
    """Likewise standard error: either may be the pipe whose reader ended."""
    _drop_output()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)


def completions(words: Sequence[str]) -> Iterator[str]:
    """Lines that kubectl reads to complete `kubectl tonnage ...`: candidates as `name<TAB>help`, then a directive.

    words: those after `kubectl tonnage`, the last one unfinished or empty.
    Source: kubernetes.io, "Extend kubectl with plugins"; spf13/cobra, "Shell completions".
    """
    *whole, unfinished = words or ("",)
    found = ShellComplete(tonnage, {}, "kubectl tonnage", "").get_completions(list(whole), unfinished)
    for item in found:
        if item.type == "plain":
            yield f"{item.value}\t{item.help}" if item.help else str(item.value)
    yield f":{FILES if any(item.type != 'plain' for item in found) else NO_FILES}"


def complete() -> None:
    """Entry point of `kubectl_complete-tonnage`, the program that kubectl runs for a Tab."""
    for line in completions(sys.argv[1:]):
        click.echo(line)


if __name__ == "__main__":
    main()
