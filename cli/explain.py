"""`tonnage explain`: why the plan treats one object as it does."""

import sys

import click
from click.shell_completion import CompletionItem

from cli.planning import decider, packer_of, planned, planning_options, say

KINDS = ("Gang", "ModelService", "Node", "Pod")


def _targets(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes KIND/NAME with the objects in the files that -f already names, or with the kinds alone."""
    from cluster.errors import ConfigError
    from controller.manifests import read_manifests

    try:
        read = read_manifests(ctx.params.get("files") or ())
        names = [each.who for kind in (read.services, read.gangs, read.pods, read.nodes) for each in kind]
    except ConfigError:
        names = [f"{kind}/" for kind in KINDS]
    return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


@click.command()
@click.argument("target", metavar="KIND/NAME", shell_complete=_targets)
@planning_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def explain(target: str, files: tuple[str, ...], deadline_s: float, policy: str, output: str) -> None:
    """Say why the plan treats one object as it does.

    \b
    ModelService/NAME  why this mix, what binds it, and where each length of request goes
    Pod/NAME           the parts of the chosen node's score and of the runners-up, or what was short where
    Gang/NAME          where its members are, or why it was held back
    Node/NAME          what runs there, starts there, leaves it, and what stays free

    NAME may be NAMESPACE/NAME; the namespace is `default` otherwise. A pod is looked at with all else as planned.
    """
    from cli import show_why
    from controller.explain import explain as why
    from controller.explain import kind_and_name

    kind_and_name(target)  # a slip of the pen is told before anything is planned
    made = planned(files, decider(policy, deadline_s), sys.stdin)
    answer = why(made.snapshot, made.plan, target, packer_of(policy))
    say(made.notes)
    show_why.show(answer, output)
