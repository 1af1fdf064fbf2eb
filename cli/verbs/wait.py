"""`tonnage wait`: returns when objects meet a condition."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import click

from cli.inputs import cluster as inputs_cluster
from cli.inputs.resources import ResourceArgument, parse_resource_arguments
from cli.printing.terminal import FAILED
from cluster.errors import ConfigError, Mistake, TonnageError

Object = dict[str, Any]

HELP = "write delete, create, condition=NAME, condition=NAME=VALUE or jsonpath='{.PATH}'=VALUE"


@dataclass(frozen=True, slots=True)
class WaitCondition:
    """Condition on one object."""

    words: str
    """Text of the option."""
    is_met: Callable[[Object | None], bool]
    """Whether the object, or None where it does not exist, meets the condition."""
    needs_object: bool = True
    """Whether an object that does not exist is an error, rather than something to wait for."""


def wait_condition(text: str | WaitCondition) -> WaitCondition:
    """Condition that the value of `--for` names, as kubectl reads it. Raises click.BadParameter."""
    if isinstance(text, WaitCondition):
        return text
    kind, _, rest = text.partition("=")
    if text == "delete":
        return WaitCondition(text, lambda obj: obj is None, needs_object=False)
    if text == "create":
        return WaitCondition(text, lambda obj: obj is not None, needs_object=False)
    if kind == "condition" and rest:
        name, _, value = rest.partition("=")
        return WaitCondition(text, lambda obj: has_condition(obj, name, value or "True"))
    if kind == "jsonpath" and rest.startswith("{"):
        path, brace, value = rest.rpartition("}")
        if brace and (value == "" or value.startswith("=")):
            return WaitCondition(text, _at_path(path + brace, value.removeprefix("=") if value else None))
    raise click.BadParameter(f"{text!r} is not a condition; {HELP}")


def has_condition(obj: Object | None, name: str, value: str) -> bool:
    """Whether the object has the condition with this status, and for its present spec; names ignore case."""
    status = (obj or {}).get("status") or {}
    generation = (obj or {}).get("metadata", {}).get("generation", 0)
    return any(
        each.get("type", "").lower() == name.lower()
        and each.get("status", "").lower() == value.lower()
        and each.get("observedGeneration", status.get("observedGeneration", generation)) >= generation
        for each in status.get("conditions") or ()
    )


def _at_path(path: str, value: str | None) -> Callable[[Object | None], bool]:
    def is_met(obj: Object | None) -> bool:
        from cli.printing.fields import jsonpath

        found = "" if obj is None else jsonpath(path)(obj)
        return found != "" if value is None else found == value

    return is_met


DEFAULT_S = 30.0
"""Limit of the wait, as kubectl's."""


@click.command(epilog="tonnage wait modelservice/chat --for=condition=Planned")
@click.argument("what", nargs=-1, required=True, metavar="KIND NAME... | KIND/NAME...",
                shell_complete=inputs_cluster.complete_kinds_and_names)  # fmt: skip
@click.option("--for", "condition", type=wait_condition, required=True, metavar="CONDITION",
              help="delete, create, condition=NAME[=VALUE] or jsonpath='{.PATH}'[=VALUE].")  # fmt: skip
@click.option("--timeout", "within_s", type=inputs_cluster.duration, default=DEFAULT_S, metavar="DURATION",
              help="Longest wait; 0: look once. [default: 30s]")  # fmt: skip
@inputs_cluster.cluster_options
@click.pass_context
def wait(
    ctx: click.Context,
    what: tuple[str, ...],
    condition: WaitCondition,
    within_s: float,
    access: inputs_cluster.ClusterAccess,
) -> None:
    """Wait until objects meet a condition; exits with 1 if one does not in time.

    A condition counts only for the object's present spec. With a value that JSONPath finds nothing for, it waits.
    """

    async def work(cluster: inputs_cluster.LiveCluster) -> bool:
        return await wait_for_all(cluster, what, condition, within_s)

    if not inputs_cluster.on_cluster(access, work):
        ctx.exit(FAILED)


async def wait_for_all(
    cluster: inputs_cluster.LiveCluster, what: tuple[str, ...], condition: WaitCondition, within_s: float
) -> bool:
    """Wait for every object, with a line for each; False when the time ended first. Raises TonnageError."""
    arguments = parse_resource_arguments(cluster, what)
    if any(not each.names for each in arguments):
        raise ConfigError(Mistake(" ".join(what), "names no object", "write KIND NAME or KIND/NAME"))
    is_met = True
    end_s = asyncio.get_running_loop().time() + within_s
    for argument in arguments:
        for name in argument.names:
            shown = f"{argument.resource.full_kind}/{name}"
            left_s = end_s - asyncio.get_running_loop().time()
            if await _is_met_in_time(cluster, argument, name, condition, left_s):
                click.echo(f"{shown} {'deleted' if condition.words == 'delete' else 'condition met'}")
            else:
                click.echo(f"error: timed out waiting for {condition.words} on {shown}", err=True)
                is_met = False
    return is_met


async def _is_met_in_time(
    cluster: inputs_cluster.LiveCluster, argument: ResourceArgument, name: str, condition: WaitCondition, left_s: float
) -> bool:
    from controller.kube import crud

    path = argument.resource.path(cluster.namespace, name)
    seen = await crud.read_if_there(cluster.connection, path)
    if condition.is_met(seen):
        return True
    if seen is None and condition.needs_object:
        raise TonnageError(f'{argument.resource.full_kind} "{name}" not found; --for=create waits until it exists')
    if left_s <= 0:
        return False
    collection = argument.resource.collection(cluster.namespace)
    query = {"fieldSelector": f"metadata.name={name}"}
    with suppress(TimeoutError):
        async with asyncio.timeout(left_s), aclosing(crud.watched(cluster.connection, collection, query)) as changes:
            async for each in changes:
                if isinstance(each, list):
                    seen = next((obj for page in each for obj in page.get("items") or ()), None)
                else:
                    seen = None if each[0] == "DELETED" else each[1]
                if condition.is_met(seen):
                    return True
    return False
