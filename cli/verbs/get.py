"""`tonnage get`: objects of the cluster, in the columns that the API server makes of them."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import (
    INTERRUPTED,
    Cluster,
    Impersonated,
    cluster_options,
    complete_kinds_and_names,
    on_cluster,
    target_from,
)
from cli.inputs.resource_arguments import Asked, asked_for, is_category, name_of
from cli.printing.errors import FAILED, print_error
from cli.printing.object_output import Output, as_list, output_option, text_of, without_managed_fields
from cli.printing.server_table import Look, Sheet
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from cli.printing.custom_columns import CustomColumns
    from controller.kube.discovery import ApiResource

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class How:
    """Which objects, and how they are shown."""

    selectors: dict[str, str]
    output: Output
    look: Look
    all_namespaces: bool
    sort_by: str = ""
    """JSONPath of a field; empty: in the server's order."""
    watch: bool = False
    watch_only: bool = False


@click.command(epilog="tonnage get all -A")
@click.argument("what", nargs=-1, required=True, metavar="KIND[,KIND...] [NAME...] | KIND/NAME...",
                shell_complete=complete_kinds_and_names)  # fmt: skip
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@click.option(
    "-l", "--selector", metavar="SELECTOR", help="Only objects with these labels, such as app=chat,tier!=test."
)
@click.option(
    "--field-selector", metavar="SELECTOR", help="Only objects with these fields, such as metadata.name=chat."
)
@click.option("-w", "--watch", is_flag=True, help="Go on showing every change until Ctrl-C.")
@click.option("--watch-only", is_flag=True, help="Show changes alone, not what is there.")
@click.option("--show-labels", is_flag=True, help="Labels as the last column.")
@click.option("--no-headers", is_flag=True, help="Leave the line of headers out.")
@click.option("--sort-by", metavar="PATH", default="", help="In the order of this field, such as .metadata.name.")
@output_option
@cluster_options
@click.pass_context
def get(
    ctx: click.Context,
    what: tuple[str, ...],
    selector: str | None,
    field_selector: str | None,
    sort_by: str,
    output: Output,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    all_namespaces: bool,
    watch: bool,
    watch_only: bool,
    show_labels: bool,
    no_headers: bool,
) -> None:
    """Show objects: of Tonnage's kinds, or of any other kind that the server has.

    Kinds are named by plural, singular or short name, several with commas between them; `all` means every kind of
    Tonnage. The columns are the server's, the same that kubectl shows.
    """
    how = How(
        {k: v for k, v in (("labelSelector", selector), ("fieldSelector", field_selector)) if v},
        output,
        Look(output.format == "wide", all_namespaces, show_labels, not no_headers),
        all_namespaces,
        sort_by,
        watch or watch_only,
        watch_only,
    )

    async def work(cluster: Cluster) -> bool:
        return await shown(cluster, what, how)

    try:
        is_whole = on_cluster(target_from(kubeconfig, context, user, timeout_s, namespace), work)
    except KeyboardInterrupt:
        ctx.exit(INTERRUPTED)
    if not is_whole:
        ctx.exit(FAILED)


async def shown(cluster: Cluster, what: tuple[str, ...], how: How) -> bool:
    """Print what was asked for; False when something of it could not be had, which was told."""
    asked = asked_for(cluster, what)
    if how.selectors and any(each.names for each in asked):
        raise ConfigError(Mistake(" ".join(what), "has a name and a selector", "give one of them"))
    many = len(asked) > 1 or is_category(cluster, what[0])
    if how.watch:
        if many or len(asked[0].names) > 1:
            raise ConfigError(Mistake(" ".join(what), "cannot be watched at once", "watch one kind, or one object"))
        return await _watched(cluster, asked[0], how)
    if how.output.is_table:
        return await _tables(cluster, asked, how, with_kind=many)
    return await _objects(cluster, asked, how, is_list=many or not asked[0].names or len(asked[0].names) > 1)


async def _tables(cluster: Cluster, asked: list[Asked], how: How, *, with_kind: bool) -> bool:
    from controller.kube.crud import TABLE

    is_whole, has_rows, is_named = True, False, any(each.names for each in asked)
    for number, each in enumerate(asked):
        # kubectl's: once a kind with namespaces came, the column stays, empty for kinds without.
        has_namespaces = any(before.resource.is_namespaced for before in asked[: number + 1])
        look = replace(
            how.look,
            namespaces=how.look.namespaces and has_namespaces,
            kind=each.resource.full_kind if with_kind else "",
        )
        tables: list[Object] = []
        async with aclosing(_pages(cluster, each, how, TABLE)) as pages:
            async for page in pages:
                if page is None:
                    is_whole = False
                else:
                    tables.append(page)
        text = Sheet(look).text(_sorted_rows(tables, how.sort_by))
        if text:
            click.echo(("\n" if has_rows and how.look.headers else "") + text, nl=False)
            has_rows = True
    if not has_rows and not is_named:
        _say_nothing_found(cluster, asked, how)
    return is_whole


def _with_objects(how: How) -> dict[str, str]:
    """What asks a server for whole objects in the rows of its tables, where they are sorted by more than metadata."""
    return {"includeObject": "Object"} if how.sort_by and how.output.is_table else {}


def _sorted(sort_by: str, objects: list[Object]) -> list[Object]:
    if not sort_by:
        return objects
    from cli.printing.sorting import in_order

    return in_order(sort_by, objects, lambda obj: obj)


def _sorted_rows(tables: list[Object], sort_by: str) -> list[Object]:
    """The tables as one in the wanted order; as they are without one."""
    if not sort_by or not tables:
        return tables
    from cli.printing.sorting import in_order

    rows = [row for table in tables for row in table.get("rows") or ()]
    return [{**tables[0], "rows": in_order(sort_by, rows, lambda row: row.get("object"))}]


def _say_nothing_found(cluster: Cluster, asked: list[Asked], how: How) -> None:
    is_within = not how.all_namespaces and any(each.resource.is_namespaced for each in asked)
    where = f" in {cluster.namespace} namespace" if is_within else ""
    click.echo(f"No resources found{where}{'.' if where else ''}", err=True)


async def _pages(cluster: Cluster, asked: Asked, how: How, accept: str) -> AsyncGenerator[Object | None, None]:
    """Lists page by page, or named objects one by one; None for one that could not be had, which was told."""
    from controller.kube import crud
    from controller.kube.errors import KubeReadError

    namespace = "" if how.all_namespaces else cluster.namespace
    if not asked.names:
        path, query = asked.resource.collection(namespace), dict(how.selectors)
        query |= _with_objects(how)
        async with aclosing(crud.list_pages(cluster.connection, path, query, accept)) as pages:
            async for page in pages:
                yield page
        return
    if how.all_namespaces and asked.resource.is_namespaced:
        raise ConfigError(Mistake("-A", "a resource cannot be retrieved by name across all namespaces", "give -n"))
    for name in asked.names:
        try:
            path = asked.resource.path(namespace, name)
            yield crud.decoded(path, await cluster.connection.read(path, accept=accept))
        except KubeReadError as error:
            print_error(error)
            yield None


async def _objects(cluster: Cluster, asked: list[Asked], how: How, *, is_list: bool) -> bool:
    from controller.kube.request import JSON

    found: list[Object] = []
    is_whole = True
    for each in asked:
        async with aclosing(_pages(cluster, each, how, JSON)) as pages:
            async for page in pages:
                if page is None:
                    is_whole = False
                elif each.names:
                    found.append(page)
                else:
                    found += _items(page, each.resource)
    found = _sorted(how.sort_by, found)
    if how.output.format == "name":
        for obj in found:
            click.echo(name_of(obj))
        return is_whole
    if how.output.format == "custom-columns":
        if found or is_list:
            columns, sheet = _custom(how)
            click.echo(sheet.text([columns.table(found)]), nl=False)
        return is_whole
    shown_objects = [without_managed_fields(obj) for obj in found]
    if is_list:
        click.echo(text_of(as_list(shown_objects), how.output), nl=False)
    elif shown_objects:
        click.echo(text_of(shown_objects[0], how.output), nl=False)
    return is_whole


def _custom(how: How) -> tuple["CustomColumns", Sheet]:
    """Raises ConfigError."""
    from cli.printing.custom_columns import custom_columns

    return custom_columns(how.output.template), Sheet(Look(headers=how.look.headers, verbatim=True))


async def _watched(cluster: Cluster, asked: Asked, how: How) -> bool:
    from controller.kube import crud
    from controller.kube.errors import KubeReadError
    from controller.kube.request import JSON

    namespace = "" if how.all_namespaces else cluster.namespace
    path, query = asked.resource.collection(namespace), dict(how.selectors)
    if asked.names:
        await cluster.connection.read(asked.resource.path(namespace, asked.names[0]))  # NotFound is told at once
        query["fieldSelector"] = f"metadata.name={asked.names[0]}"
    if how.sort_by:
        click.echo("warning: --sort-by is for what is there; changes are shown as they come", err=True)
        query |= _with_objects(how)
    accept = crud.TABLE if how.output.is_table else JSON
    look = replace(how.look, namespaces=how.look.namespaces and asked.resource.is_namespaced)
    printed, is_shown = _printer(how, Sheet(look)), not how.watch_only
    while True:
        listed, version = await crud.list_with_version(cluster.connection, path, query, accept)
        for obj in _in_order(listed, asked.resource, how) if is_shown else ():
            printed(obj)
        try:
            events = crud.follow(cluster.connection, path, query, version, accept)
            async with aclosing(events) as each_event:
                async for _, obj in each_event:
                    printed(obj)  # also what was deleted, as it was last, which is kubectl's habit
        except KubeReadError as error:
            if not crud.must_list_again(error):
                raise
            # What changed meanwhile is shown by the list: nothing of it may be missed.
            is_shown = True


def _in_order(pages: list[Object], resource: "ApiResource", how: How) -> list[Object]:
    """What is printed of a list: tables, or the objects."""
    if how.output.is_table:
        return _sorted_rows(pages, how.sort_by)
    return _sorted(how.sort_by, [obj for page in pages for obj in _items(page, resource)])


def _items(page: Object, resource: "ApiResource") -> list[Object]:
    """The objects of a list, each with its own kind, which a list leaves out."""
    api = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**api, **item} for item in page.get("items") or ()]


def _printer(how: How, sheet: Sheet) -> Callable[[Object], None]:
    """What prints each object, or table of some, below those before."""
    match how.output.format:
        case "table" | "wide":
            return lambda table: click.echo(sheet.text([table]), nl=False)
        case "custom-columns":
            columns, own = _custom(how)
            return lambda obj: click.echo(own.text([columns.table([obj])]), nl=False)
        case "name":
            return lambda obj: click.echo(name_of(obj))
        case _:
            return lambda obj: click.echo(text_of(without_managed_fields(obj), how.output), nl=False)
