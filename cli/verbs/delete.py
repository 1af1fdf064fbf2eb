"""`tonnage delete`: the end of objects, seen through until they are gone."""

import asyncio
from collections.abc import AsyncIterator
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
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from controller.kube.discovery import ApiResource

Object = dict[str, Any]
CASCADES = ("background", "foreground", "orphan")


@dataclass(frozen=True, slots=True)
class Doomed:
    """An object that is to go."""

    resource: "ApiResource"
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace, self.name)

    def __str__(self) -> str:
        where = f" from {self.namespace} namespace" if self.resource.is_namespaced else ""
        return f'{self.resource.full_kind} "{self.name}" {{}}{where}'

    def told(self, deed: str) -> str:
        """kubectl's words."""
        return str(self).format(deed)


@dataclass(frozen=True, slots=True)
class How:
    cascade: str
    grace_s: int | None
    wait: bool
    timeout_s: float
    """0: as long as it takes."""
    dry_run: str
    ignore_not_found: bool
    names_only: bool


@click.command(epilog="tonnage delete modelservice chat")
@click.argument("what", nargs=-1, metavar="[KIND NAME... | KIND/NAME...]", shell_complete=complete_kinds_and_names)
@click.option("-f", "--filename", "files", multiple=True, type=click.Path(allow_dash=True),
              help="The objects of this manifest file or folder; may be repeated. - reads standard input.")  # fmt: skip
@click.option("-l", "--selector", metavar="SELECTOR", help="All objects of the kind with these labels.")
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.option("--cascade", type=click.Choice(CASCADES), default="background", show_default=True,
              help="What becomes of what it owns: deleted behind it, before it, or kept.")  # fmt: skip
@click.option("--grace-period", "grace_s", type=click.IntRange(min=0), metavar="SECONDS", help="For pods to end in.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return once the objects are gone.")
@click.option("--timeout", "within_s", type=duration, default=0.0, metavar="DURATION",
              help="Wait so long at most. [default: as long as it takes]")  # fmt: skip
@click.option("--ignore-not-found", is_flag=True, help="An object that is not there is as good as deleted.")
@click.option("-o", "--output", type=click.Choice(["words", "name"]), default="words", show_default=True)
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
    """Delete objects, by name or as manifests name them, and wait until they are gone.

    "deleted" is said of an object that is gone; with --no-wait, of one that still ends, "deletion began".
    """
    if bool(what) == bool(files):
        raise click.UsageError("name objects (KIND NAME), or a file (-f), and not both")
    how = How(cascade, grace_s, wait, within_s, dry_run, ignore_not_found, output == "name")

    async def work(cluster: Cluster) -> bool:
        doomed = [each async for each in _doomed(cluster, what, files, selector, everything=everything)]
        if not doomed:
            click.echo("No resources found", err=True)
        # One after the other, as kubectl: what hangs is the one whose name was not printed yet.
        return all([await _deleted(cluster, each, how) for each in doomed])

    if not on_cluster(target_from(kubeconfig, context, user, timeout_s, namespace), work):
        ctx.exit(FAILED)


async def _doomed(
    cluster: Cluster, what: tuple[str, ...], files: tuple[str, ...], selector: str | None, *, everything: bool
) -> AsyncIterator[Doomed]:
    from cli.inputs.manifest_objects import manifests_in
    from cli.inputs.resource_arguments import asked_for, resource_of
    from controller.kube import crud

    for manifest in manifests_in(files) if files else ():
        cluster, resource = await resource_of(cluster, manifest)
        yield Doomed(resource, manifest.namespace or cluster.namespace, manifest.name)
    for asked in asked_for(cluster, what) if what else ():
        if not asked.names and not selector and not everything:
            raise ConfigError(Mistake(" ".join(what), "names no object", "give names, -l or --all"))
        for name in asked.names:
            yield Doomed(asked.resource, cluster.namespace, name)
        if not asked.names:
            path = asked.resource.collection(cluster.namespace)
            query = {"labelSelector": selector} if selector else {}
            for obj in await crud.list_all(cluster.connection, path, query):
                yield Doomed(asked.resource, cluster.namespace, obj["metadata"]["name"])


async def _deleted(cluster: Cluster, doomed: Doomed, how: How) -> bool:
    """Whether it is gone, or was asked to go as `how` says. Tells what happened."""
    from controller.kube import crud
    from controller.kube.errors import KubeReadError, KubeWriteError

    try:
        before = await crud.read(cluster.connection, doomed.path)
        if how.dry_run == "client":
            _say(doomed, "deleted", how)
            return True
        answer = await crud.delete(
            cluster.connection,
            doomed.path,
            cascade=how.cascade.capitalize(),
            grace_s=how.grace_s,
            dry_run=how.dry_run == "server",
        )
        is_gone = answer.get("kind") == "Status" or how.dry_run == "server"
        if not is_gone and how.wait:
            async with asyncio.timeout(how.timeout_s or None):
                await crud.until_gone(cluster.connection, doomed.path, before["metadata"]["uid"])
            is_gone = True
    except (KubeReadError, KubeWriteError) as error:
        if error.refusal.status == 404 and how.ignore_not_found:
            return True
        print_error(error)
        return False
    except TimeoutError:
        click.echo(f"error: {doomed.told('still ends')} after {how.timeout_s:g} s{_holders(answer)}", err=True)
        return False
    _say(doomed, "deleted" if is_gone else f"deletion began{_holders(answer)}", how)
    return True


def _holders(answer: Object) -> str:
    """What holds an object that ends."""
    finalizers = answer.get("metadata", {}).get("finalizers") or ()
    return f" (held by {', '.join(finalizers)})" if finalizers else ""


def _say(doomed: Doomed, deed: str, how: How) -> None:
    if how.names_only:
        click.echo(f"{doomed.resource.full_kind}/{doomed.name}")
        return
    tail = {"client": " (dry run)", "server": " (server dry run)"}.get(how.dry_run, "")
    click.echo(doomed.told(deed) + tail)
