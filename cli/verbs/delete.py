"""`tonnage delete`: deletes objects and waits until they are gone."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cli.inputs import cluster as inputs_cluster
from cli.inputs.options import GRACE_PERIOD, files_option, setting
from cli.printing.terminal import FAILED, print_error
from cluster.errors import ConfigError, Mistake, TonnageError

if TYPE_CHECKING:
    from controller.kube.discovery import ApiResource

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

    def sentence(self, verb: str) -> str:
        """Result as kubectl words it: `gang.tonnage.dev "x" deleted from default namespace`."""
        where = f" from {self.namespace} namespace" if self.resource.is_namespaced else ""
        return f'{self.resource.full_kind} "{self.name}" {verb}{where}'


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    cascade: str
    grace_s: int | None
    wait: bool
    within_s: float
    """Limit of the wait; 0: none."""
    dry_run: str
    ignore_not_found: bool
    names_only: bool


@click.command(epilog="tonnage delete modelservice chat")
@click.argument(
    "what", nargs=-1, metavar="[KIND NAME... | KIND/NAME...]", shell_complete=inputs_cluster.complete_kinds_and_names
)
@files_option("Manifest file or folder of the objects; may be repeated. - reads standard input.")
@click.option("-l", "--selector", metavar="SELECTOR", help="All objects of the kind with these labels.")
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@setting("--cascade", "background", "Owned objects: deleted afterwards, deleted before it, or kept.",
         click.Choice(CASCADES))  # fmt: skip
@GRACE_PERIOD
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return only after the objects are gone.")
@click.option("--timeout", "within_s", type=inputs_cluster.duration, default=0.0, metavar="DURATION",
              help="Limit of the wait. [default: none]")  # fmt: skip
@click.option("--ignore-not-found", is_flag=True, help="Treat a missing object as deleted.")
@click.option("-o", "--output", type=click.Choice(["text", "name"]), default="text", show_default=True,
              help="Format of the results.")  # fmt: skip
@inputs_cluster.dry_run_option
@inputs_cluster.cluster_options
@click.pass_context
def delete(
    ctx: click.Context,
    /,
    what: tuple[str, ...],
    files: tuple[str, ...],
    selector: str | None,
    output: str,
    access: inputs_cluster.ClusterAccess,
    *,
    everything: bool,
    **given: Any,
) -> None:
    """Delete objects, by name or from manifests, and wait until they are gone.

    Prints "deleted" for an object that is gone, and with --no-wait "deletion began" for one that still terminates.
    """
    if bool(what) == bool(files):
        raise click.UsageError("give either objects (KIND NAME) or a file (-f)")
    options = DeleteOptions(names_only=output == "name", **given)

    async def work(cluster: inputs_cluster.LiveCluster) -> bool:
        targets, known = await _targets(cluster, what, files, selector, everything=everything)
        if not targets and known:
            click.echo("No resources found", err=True)
        # One at a time, as kubectl does: an object that hangs is the first one not printed.
        return all([await _delete(cluster, each, options) for each in targets]) and known

    if not inputs_cluster.on_cluster(access, work):
        ctx.exit(FAILED)


async def _targets(
    cluster: inputs_cluster.LiveCluster,
    what: tuple[str, ...],
    files: tuple[str, ...],
    selector: str | None,
    *,
    everything: bool,
) -> tuple[list[DeletionTarget], bool]:
    """Objects to delete, and whether the server has every kind; manifests of a kind that it lacks are reported."""
    from cli.inputs.resources import manifests_in, parse_resource_arguments, resource_of
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


async def _delete(cluster: inputs_cluster.LiveCluster, target: DeletionTarget, options: DeleteOptions) -> bool:
    """Delete one object as `options` ask and print the result; False if that failed or timed out."""
    from controller.kube import crud
    from controller.kube.request import KubeReadError, KubeWriteError

    is_gone, held = True, ""
    try:
        before = await crud.read(cluster.connection, target.path)
        if options.dry_run != "client":
            answer = await crud.delete(
                cluster.connection,
                target.path,
                cascade=options.cascade.capitalize(),
                grace_s=options.grace_s,
                dry_run=options.dry_run == "server",
            )
            is_gone = answer.get("kind") == "Status" or options.dry_run == "server"
            finalizers = answer.get("metadata", {}).get("finalizers") or ()
            held = f" (held by {', '.join(finalizers)})" if finalizers else ""
        if not is_gone and options.wait:
            async with asyncio.timeout(options.within_s or None):
                await crud.until_gone(cluster.connection, target.path, before["metadata"]["uid"], asyncio.sleep)
            is_gone = True
    except (KubeReadError, KubeWriteError) as error:
        if error.refusal.status == 404 and options.ignore_not_found:
            return True
        print_error(error)
        return False
    except TimeoutError:
        click.echo(f"error: {target.sentence('still terminating')} after {options.within_s:g} s{held}", err=True)
        return False
    if options.names_only:
        click.echo(f"{target.resource.full_kind}/{target.name}")
    else:
        click.echo(
            target.sentence("deleted" if is_gone else f"deletion began{held}")
            + inputs_cluster.DRY_RUN_TAIL[options.dry_run]
        )
    return True
