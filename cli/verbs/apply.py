"""`tonnage apply` and `tonnage diff`: server-side apply of manifests, or what it would change, in objects and plan."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from cli.inputs import cluster as inputs_cluster
from cli.inputs.options import files_option
from cli.inputs.resources import Manifest, manifests_in, name_of, resource_of
from cli.printing.terminal import FAILED, WRONG_INPUT, print_error
from cluster.errors import ConfigError, Mistake, TonnageError

Object = dict[str, Any]
MANIFESTS = files_option("Manifest file, or folder of them; may be repeated. - reads standard input.", required=True)
EXIT_STATUS = """\b
Exit status, as kubectl diff's:
  0    nothing differs
  1    something differs
  2    wrong usage, or an object could not be compared"""


@dataclass(frozen=True, slots=True)
class Applied:
    """Object of one manifest before and after the apply; `after` is a preview with --dry-run."""

    before: Object | None
    after: Object

    @property
    def word(self) -> str:
        if self.before is None:
            return "created"
        versions = [each["metadata"].get("resourceVersion") for each in (self.before, self.after)]
        return "unchanged" if versions[0] == versions[1] else "configured"


@click.command(epilog="tonnage apply -f services.yaml --dry-run=server")
@MANIFESTS
@click.option("--force-conflicts", "force", is_flag=True, help="Take over fields that have another owner.")
@click.option("-o", "--output", type=click.Choice(["text", "name", "json", "yaml"]), default="text",
              show_default=True, help="Format of the results.")  # fmt: skip
@inputs_cluster.dry_run_option
@inputs_cluster.cluster_options
@click.pass_context
def apply(
    ctx: click.Context,
    files: tuple[str, ...],
    output: str,
    dry_run: str,
    access: inputs_cluster.ClusterAccess,
    *,
    force: bool,
) -> None:
    """Create or update objects from manifests, by server-side apply as field manager `tonnage-cli`.

    Errors that can be found without the server are reported before anything is sent. --dry-run shows the difference
    to the stored object and, for Tonnage's kinds, to the plan for the cluster: `server` lets the API server compute
    the result, `client` merges the manifest into the stored object locally.
    """
    manifests = manifests_in(files)

    async def work(cluster: inputs_cluster.LiveCluster) -> bool:
        return await apply_all(cluster, manifests, access.namespace, dry_run, output, force=force)

    if not inputs_cluster.on_cluster(access, work):
        ctx.exit(FAILED)


@click.command(epilog=EXIT_STATUS)
@MANIFESTS
@click.option("--force-conflicts", "force", is_flag=True, help="Compare as if fields of other owners were taken over.")
@inputs_cluster.cluster_options
@click.pass_context
def diff(ctx: click.Context, files: tuple[str, ...], access: inputs_cluster.ClusterAccess, *, force: bool) -> None:
    """Show what applying manifests would change, in the objects and in the plan; exit with 1 if anything differs.

    The API server computes the result of the server-side apply without storing it.
    """
    manifests = manifests_in(files)

    async def work(cluster: inputs_cluster.LiveCluster) -> tuple[bool, bool]:
        from cli.printing.differences import object_lines
        from cli.printing.terminal import echo_difference

        differs, compared = False, list[Object]()
        async for made in _applied(cluster, manifests, access.namespace, "server", force=force):
            compared.append(made.after)
            lines = object_lines(name_of(made.after), made.before, made.after)
            echo_difference(lines)
            differs = differs or bool(lines)
        if differs:
            await _print_plan_change(cluster, compared)
        return differs, len(compared) == len(manifests)

    differs, is_whole = inputs_cluster.on_cluster(access, work)
    if not is_whole:
        ctx.exit(WRONG_INPUT)
    if differs:
        ctx.exit(FAILED)


async def apply_all(
    cluster: inputs_cluster.LiveCluster,
    manifests: Sequence[Manifest],
    namespace: str | None,
    dry_run: str,
    output: str,
    *,
    force: bool,
) -> bool:
    """Apply all manifests and print the results; False where one failed, which was reported."""
    done: list[Object] = []
    async for made in _applied(cluster, manifests, namespace, dry_run, force=force):
        done.append(made.after)
        from cli.printing.differences import object_lines
        from cli.printing.object_output import text_of, without_managed_fields
        from cli.printing.terminal import echo_difference

        name = name_of(made.after)
        if output in ("json", "yaml"):
            text = text_of(without_managed_fields(made.after), output)
            click.echo(("---\n" if output == "yaml" else "") + text, nl=False)
        elif output == "name":
            click.echo(name)
        elif dry_run == "none":
            click.echo(f"{name} {made.word}")
        else:
            lines = object_lines(name, made.before, made.after)
            word = "created" if made.before is None else "configured" if lines else "unchanged"
            click.echo(f"{name} {word}{inputs_cluster.DRY_RUN_TAIL[dry_run]}")
            echo_difference(lines)
    if dry_run != "none" and output == "text":
        await _print_plan_change(cluster, done)
    return len(done) == len(manifests)


async def _applied(
    cluster: inputs_cluster.LiveCluster,
    manifests: Sequence[Manifest],
    namespace: str | None,
    dry_run: str,
    *,
    force: bool,
) -> AsyncIterator[Applied]:
    """Each object that could be applied; errors of the others are printed. Raises ConfigError before the first."""
    from controller.kube import crud
    from controller.kube.request import KubeWriteError

    wrong = [each for each in manifests if namespace and each.namespace and each.namespace != namespace]
    if wrong:
        problem = "is in namespace {}, but -n is {}"
        raise ConfigError(
            tuple(Mistake(m.place, problem.format(m.namespace, namespace), "remove one of them") for m in wrong)
        )
    for manifest in manifests:
        try:
            cluster, resource = await resource_of(cluster, manifest)
            content, within = manifest.content, manifest.namespace or cluster.namespace
            if resource.is_namespaced:
                content = {**content, "metadata": {**content["metadata"], "namespace": within}}
            path = resource.path(within, manifest.name)
            before = await crud.read_if_there(cluster.connection, path)
            if dry_run == "client":
                after = overlaid(before or {}, content)
            else:
                after = await crud.apply(cluster.connection, path, content, force=force, dry_run=dry_run == "server")
        except KubeWriteError as error:
            conflicts = list(crud.owners_in_conflict(error.refusal))
            if not conflicts:
                print_error(error)
                continue
            name = f"{manifest.kind}/{manifest.name}"
            click.echo(f"Error from server (Conflict): {name} has fields with other owners:", err=True)
            for owner, field in conflicts:
                click.echo(f"  {field}: {owner}", err=True)
            click.echo("remove these fields from the manifest, or take them over with --force-conflicts", err=True)
        except TonnageError as error:  # also of a kind that the server has not
            print_error(error)
        else:
            yield Applied(before, after)


def overlaid(below: Any, above: Any) -> Any:
    """Manifest merged into an object: maps are merged, all other values replaced.

    An approximation: the server also merges lists by their keys and sets defaults.
    """
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: overlaid(below.get(key), value) for key, value in above.items()}}


async def _print_plan_change(cluster: inputs_cluster.LiveCluster, objects: list[Object]) -> None:
    """Print how the plan for the whole cluster changes with these objects; nothing if none of them affects plans."""
    from controller.api.kinds import OWN_KINDS

    planned_from = {(kind.api_version, kind.name) for kind in OWN_KINDS if kind.is_planned_from}
    ours = [each for each in objects if (each.get("apiVersion"), each.get("kind")) in planned_from]
    if not ours:
        return
    from cli.inputs.planning import Planning, decider, settings_on
    from cli.printing.differences import change_lines
    from cli.printing.terminal import echo_difference
    from controller.queries.list_once import list_cluster
    from controller.queries.plan_diff import plan_diff

    settings = await settings_on(cluster, Planning())
    seen = await list_cluster(cluster.connection, time.time, settings)
    decide = decider(settings)  # also where instances will go
    snapshot = seen.to_plan_on()
    before = plan_diff(snapshot, decide(snapshot))
    # Stored objects always have metadata that a client's draft lacks.
    stored = {"uid": "", "resourceVersion": "0", "generation": 1}
    seen.put({**each, "metadata": {**stored, **each["metadata"]}} for each in ours)
    snapshot = seen.to_plan_on()
    after = plan_diff(snapshot, decide(snapshot))
    click.echo("\nThe plan for the cluster would change like this:")
    echo_difference(change_lines(before, after))
    for mistake in seen.mistakes():
        click.echo(f"! {mistake}")
