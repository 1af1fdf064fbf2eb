"""`tonnage get`: objects of the cluster, in the API server's columns."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from cli.inputs import cluster as inputs_cluster, resources
from cli.printing.columns import Look, Sheet
from cli.printing.object_output import TABLES, as_list, output_option, text_of, without_managed_fields
from cli.printing.terminal import FAILED, INTERRUPTED, print_error
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from controller.kube.discovery import ApiResource

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GetOptions:
    """Selection of objects, and how they are shown."""

    selectors: dict[str, str]
    output: str
    look: Look
    all_namespaces: bool
    watch: bool = False


@click.command(epilog="tonnage get all -A")
@click.argument("what", nargs=-1, required=True, metavar="KIND[,KIND...] [NAME...] | KIND/NAME...",
                shell_complete=inputs_cluster.complete_kinds_and_names)  # fmt: skip
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@click.option("-l", "--selector", metavar="SELECTOR",
              help="Only objects with these labels, such as app=chat,tier!=test.")  # fmt: skip
@click.option("-w", "--watch", is_flag=True, help="Keep showing changes until Ctrl-C.")
@output_option
@inputs_cluster.cluster_options
@click.pass_context
def get(
    ctx: click.Context,
    /,
    what: tuple[str, ...],
    selector: str | None,
    output: str,
    access: inputs_cluster.ClusterAccess,
    *,
    watch: bool,
    all_namespaces: bool,
) -> None:
    """List objects of Tonnage's kinds, or of any other kind that the server has.

    Kinds are given by plural, singular or short name, several separated by commas; `all` means all of Tonnage's kinds.
    The columns are the server's, as in kubectl.
    """
    selectors = {"labelSelector": selector} if selector else {}
    options = GetOptions(selectors, output, Look(output == "wide", all_namespaces), all_namespaces, watch)

    async def work(cluster: inputs_cluster.LiveCluster) -> bool:
        return await print_objects(cluster, what, options)

    try:
        is_whole = inputs_cluster.on_cluster(access, work)
    except KeyboardInterrupt:
        ctx.exit(INTERRUPTED)
    if not is_whole:
        ctx.exit(FAILED)


async def print_objects(cluster: inputs_cluster.LiveCluster, what: tuple[str, ...], options: GetOptions) -> bool:
    """Print what was asked for; False when part of it could not be read, which was reported."""
    arguments = resources.parse_resource_arguments(cluster, what)
    if options.selectors and any(each.names for each in arguments):
        raise ConfigError(Mistake(" ".join(what), "combines names with a selector", "give one of them"))
    many = len(arguments) > 1 or bool(resources.category_of(cluster, what[0]))
    if options.watch:
        if many or len(arguments[0].names) > 1:
            raise ConfigError(Mistake("--watch", "is more than one watch", "watch one kind, or one object"))
        return await _watch(cluster, arguments[0], options)
    if options.output in TABLES:
        return await _print_tables(cluster, arguments, options, with_kind=many)
    is_list = many or not arguments[0].names or len(arguments[0].names) > 1
    from controller.kube.request import JSON

    found: list[Object] = []
    is_whole = True
    for each in arguments:
        async with aclosing(_pages(cluster, each, options, JSON)) as pages:
            async for page in pages:
                if page is None:
                    is_whole = False
                elif each.names:
                    found.append(page)
                else:
                    found += _items(page, each.resource)
    if not (found or is_list):
        return is_whole
    if options.output == "name":
        text = "".join(f"{resources.name_of(obj)}\n" for obj in found)
    else:
        shown = [without_managed_fields(obj) for obj in found]
        text = text_of(as_list(shown) if is_list else shown[0], options.output)
    click.echo(text, nl=False)
    return is_whole


async def _print_tables(
    cluster: inputs_cluster.LiveCluster,
    arguments: list[resources.ResourceArgument],
    options: GetOptions,
    *,
    with_kind: bool,
) -> bool:
    from controller.kube.crud import TABLE

    is_whole, has_rows, is_named = True, False, any(each.names for each in arguments)
    for number, each in enumerate(arguments):
        # As kubectl: after the first namespaced kind the column stays, empty for cluster-scoped kinds.
        has_namespaces = any(before.resource.is_namespaced for before in arguments[: number + 1])
        look = replace(
            options.look,
            namespaces=options.look.namespaces and has_namespaces,
            kind=each.resource.full_kind if with_kind else "",
        )
        tables: list[Object] = []
        async with aclosing(_pages(cluster, each, options, TABLE)) as pages:
            async for page in pages:
                if page is None:
                    is_whole = False
                else:
                    tables.append(page)
        text = Sheet(look).text(tables)
        if text:
            click.echo(("\n" if has_rows else "") + text, nl=False)
            has_rows = True
    if not has_rows and not is_named:
        is_within = not options.all_namespaces and any(each.resource.is_namespaced for each in arguments)
        where = f" in {cluster.namespace} namespace." if is_within else ""
        click.echo(f"No resources found{where}", err=True)
    return is_whole


async def _pages(
    cluster: inputs_cluster.LiveCluster, argument: resources.ResourceArgument, options: GetOptions, accept: str
) -> AsyncGenerator[Object | None, None]:
    """Pages of a list, or named objects one at a time; None for one that could not be read, which was reported."""
    from controller.kube import crud
    from controller.kube.request import KubeReadError

    namespace = "" if options.all_namespaces else cluster.namespace
    if not argument.names:
        path = argument.resource.collection(namespace)
        async with aclosing(crud.list_pages(cluster.connection, path, options.selectors, accept)) as pages:
            async for page in pages:
                yield page
        return
    if options.all_namespaces and argument.resource.is_namespaced:
        raise ConfigError(Mistake("-A", "a resource cannot be retrieved by name across all namespaces", "give -n"))
    for name in argument.names:
        try:
            path = argument.resource.path(namespace, name)
            yield crud.decoded(path, await cluster.connection.read(path, accept=accept))
        except KubeReadError as error:
            print_error(error)
            yield None


async def _watch(
    cluster: inputs_cluster.LiveCluster, argument: resources.ResourceArgument, options: GetOptions
) -> bool:
    from controller.kube import crud
    from controller.kube.request import JSON

    namespace = "" if options.all_namespaces else cluster.namespace
    path, query = argument.resource.collection(namespace), dict(options.selectors)
    if argument.names:
        await cluster.connection.read(
            argument.resource.path(namespace, argument.names[0])
        )  # NotFound is reported at once
        query["fieldSelector"] = f"metadata.name={argument.names[0]}"
    accept = crud.TABLE if options.output in TABLES else JSON
    look = replace(options.look, namespaces=options.look.namespaces and argument.resource.is_namespaced)
    printed = _printer(options, Sheet(look))
    async with aclosing(crud.watched(cluster.connection, path, query, accept)) as changes:
        async for each in changes:
            if isinstance(each, tuple):
                printed(each[1])  # also a deleted object in its last state, as kubectl does
                continue
            for page in each:  # a later list shows the changes missed meanwhile
                for obj in (page,) if options.output in TABLES else _items(page, argument.resource):
                    printed(obj)
    return True


def _items(page: Object, resource: "ApiResource") -> list[Object]:
    """Objects of a list page, each with the kind that lists omit."""
    api = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**api, **item} for item in page.get("items") or ()]


def _printer(options: GetOptions, sheet: Sheet) -> Callable[[Object], None]:
    """Printer of one object, or of one table of objects, below those printed before."""
    match options.output:
        case "table" | "wide":
            return lambda table: click.echo(sheet.text([table]), nl=False)
        case "name":
            return lambda obj: click.echo(resources.name_of(obj))
        case _:
            return lambda obj: click.echo(text_of(without_managed_fields(obj), options.output), nl=False)
