"""`tonnage delete`: deletes objects and waits until they are gone."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import (
    Cluster,
    Impersonated,
    cluster_options,
    complete_kinds_and_names,
    dry_run_option,
    duration,
    on_cluster,
    target_from,
)
from cli.printing.errors import FAILED, print_error
from cli.printing.object_output import TextChoice
from cluster.errors import ConfigError, Mistake, TonnageError

if TYPE_CHECKING:
    from controller.kube.discovery import ApiResource

Object = dict[str, Any]
CASCADES = ("background", "foreground", "orphan")


@dataclass(frozen=True, slots=True)
class DeletionTarget:
    """Object to delete."""

    resource: "ApiResource"
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace, self.name)

    def __str__(self) -> str:
        where = f" from {self.namespace} namespace" if self.resource.is_namespaced else ""
        return f'{self.resource.full_kind} "{self.name}" {{}}{where}'

    def sentence(self, verb: str) -> str:
        """Result as kubectl words it: `gang.tonnage.dev "x" deleted from default namespace`."""
        return str(self).format(verb)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    cascade: str
    grace_s: int | None
    wait: bool
    timeout_s: float
    """Limit of the wait; 0: none."""
    dry_run: str
    ignore_not_found: bool
    names_only: bool


@click.command(epilog="tonnage delete modelservice chat")
@click.argument("what", nargs=-1, metavar="[KIND NAME... | KIND/NAME...]", shell_complete=complete_kinds_and_names)
@click.option("-f", "--filename", "files", multiple=True, type=click.Path(allow_dash=True),
              help="Manifest file or folder of the objects; may be repeated. - reads standard input.")  # fmt: skip
@click.option("-l", "--selector", metavar="SELECTOR", help="All objects of the kind with these labels.")
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.option("--cascade", type=click.Choice(CASCADES), default="background", show_default=True,
              help="Owned objects: deleted afterwards, deleted before it, or kept.")  # fmt: skip
@click.option(
    "--grace-period",
    "grace_s",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Seconds that pods get to terminate.",
)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return only after the objects are gone.")
@click.option("--timeout", "within_s", type=duration, default=0.0, metavar="DURATION",
              help="Limit of the wait. [default: none]")  # fmt: skip
@click.option("--ignore-not-found", is_flag=True, help="Treat a missing object as deleted.")
@click.option("-o", "--output", type=TextChoice(["text", "name"]), default="text", show_default=True,
              help="Format of the results.")  # fmt: skip
@dry_run_option
@cluster_options
@click.pass_context
def delete(
    ctx: click.Context,
    what: tuple[str, ...],
    files: tuple[str, ...],
    selector: str | None,
    cascade: str,
    grace_s: int | None,
    within_s: float,
    output: str,
    dry_run: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    everything: bool,
    wait: bool,
    ignore_not_found: bool,
) -> None:
    """Delete objects, by name or from manifests, and wait until they are gone.

    Prints "deleted" for an object that is gone, and with --no-wait "deletion began" for one that still terminates.
    """
    if bool(what) == bool(files):
        raise click.UsageError("give either objects (KIND NAME) or a file (-f)")
    options = DeleteOptions(cascade, grace_s, wait, within_s, dry_run, ignore_not_found, output == "name")

    async def work(cluster: Cluster) -> bool:
        targets, known = await _targets(cluster, what, files, selector, everything=everything)
        if not targets and known:
            click.echo("No resources found", err=True)
        # One at a time, as kubectl does: an object that hangs is the first one not printed.
        return all([await _delete(cluster, each, options) for each in targets]) and known

    if not on_cluster(target_from(kubeconfig, context, user, timeout_s, namespace), work):
        ctx.exit(FAILED)


async def _targets(
    cluster: Cluster, what: tuple[str, ...], files: tuple[str, ...], selector: str | None, *, everything: bool
) -> tuple[list[DeletionTarget], bool]:
    """Objects to delete, and whether the server has every kind; manifests of a kind that it lacks are reported."""
    from cli.inputs.manifest_objects import manifests_in
    from cli.inputs.resource_arguments import parse_resource_arguments, resource_of
    from controller.kube import crud

    targets, known = list[DeletionTarget](), True
    for manifest in manifests_in(files) if files else ():
        try:
            cluster, resource = await resource_of(cluster, manifest)
        except TonnageError as error:
            print_error(error)
            known = False
            continue
        targets.append(DeletionTarget(resource, manifest.namespace or cluster.namespace, manifest.name))
    for argument in parse_resource_arguments(cluster, what) if what else ():
        if not argument.names and not selector and not everything:
            raise ConfigError(Mistake(" ".join(what), "names no object", "give names, -l or --all"))
        names = argument.names
        if not names:
            path = argument.resource.collection(cluster.namespace)
            query = {"labelSelector": selector} if selector else {}
            names = tuple(obj["metadata"]["name"] for obj in await crud.list_all(cluster.connection, path, query))
        targets += [DeletionTarget(argument.resource, cluster.namespace, name) for name in names]
    return targets, known


async def _delete(cluster: Cluster, target: DeletionTarget, options: DeleteOptions) -> bool:
    """Delete one object as `options` ask and print the result; False if that failed or timed out."""
    from controller.kube import crud
    from controller.kube.request import KubeReadError, KubeWriteError

    try:
        before = await crud.read(cluster.connection, target.path)
        if options.dry_run == "client":
            _print_result(target, "deleted", options)
            return True
        answer = await crud.delete(
            cluster.connection,
            target.path,
            cascade=options.cascade.capitalize(),
            grace_s=options.grace_s,
            dry_run=options.dry_run == "server",
        )
        is_gone = answer.get("kind") == "Status" or options.dry_run == "server"
        if not is_gone and options.wait:
            async with asyncio.timeout(options.timeout_s or None):
                await crud.until_gone(cluster.connection, target.path, before["metadata"]["uid"], asyncio.sleep)
            is_gone = True
    except (KubeReadError, KubeWriteError) as error:
        if error.refusal.status == 404 and options.ignore_not_found:
            return True
        print_error(error)
        return False
    except TimeoutError:
        click.echo(
            f"error: {target.sentence('still terminating')} after {options.timeout_s:g} s{_holders(answer)}", err=True
        )
        return False
    _print_result(target, "deleted" if is_gone else f"deletion began{_holders(answer)}", options)
    return True


def _holders(answer: Object) -> str:
    """Finalizers that hold a terminating object, for a message; "" for none."""
    finalizers = answer.get("metadata", {}).get("finalizers") or ()
    return f" (held by {', '.join(finalizers)})" if finalizers else ""


def _print_result(target: DeletionTarget, verb: str, options: DeleteOptions) -> None:
    if options.names_only:
        click.echo(f"{target.resource.full_kind}/{target.name}")
        return
    tail = {"client": " (dry run)", "server": " (server dry run)"}.get(options.dry_run, "")
    click.echo(target.sentence(verb) + tail)
