"""`tonnage apply`: server-side apply of manifests, or a preview of what it would change."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import (
    Cluster,
    Impersonated,
    cluster_options,
    dry_run_option,
    on_cluster,
    on_cluster_in_turn,
    target_from,
)
from cli.inputs.manifest_objects import Manifest, manifests_in
from cli.inputs.resource_arguments import name_of, resource_of
from cli.printing.errors import FAILED, print_error
from cli.printing.object_output import TextChoice
from cluster.errors import ConfigError, Mistake, TonnageError

if TYPE_CHECKING:
    from controller.kube.discovery import ApiResource

Object = dict[str, Any]


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
@click.option("-f", "--filename", "files", multiple=True, required=True, type=click.Path(allow_dash=True),
              help="Manifest file, or folder of them; may be repeated. - reads standard input.")  # fmt: skip
@click.option("--force-conflicts", is_flag=True, help="Take over fields that have another owner.")
@click.option("-o", "--output", type=TextChoice(["text", "name", "json", "yaml"]), default="text",
              show_default=True, help="Format of the results.")  # fmt: skip
@dry_run_option
@cluster_options
@click.pass_context
def apply(
    ctx: click.Context,
    files: tuple[str, ...],
    output: str,
    dry_run: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    force_conflicts: bool,
) -> None:
    """Create or update objects from manifests, by server-side apply as field manager `tonnage-cli`.

    Errors that can be found without the server are reported before anything is sent. --dry-run shows the difference
    to the stored object and, for Tonnage's kinds, to the plan for the cluster: `server` lets the API server compute
    the result, `client` merges the manifest into the stored object locally.
    """
    manifests = manifests_in(files)

    async def work(cluster: Cluster) -> bool:
        return await _apply_all(cluster, manifests, namespace, dry_run, output, force=force_conflicts)

    # A plan for the cluster lists many kinds at once.
    runs = on_cluster_in_turn if dry_run == "none" else on_cluster
    if not runs(target_from(kubeconfig, context, user, timeout_s, namespace), work):
        ctx.exit(FAILED)


async def _apply_all(
    cluster: Cluster, manifests: tuple[Manifest, ...], namespace: str | None, dry_run: str, output: str, *, force: bool
) -> bool:
    from controller.kube.request import KubeWriteError

    _check_namespaces(manifests, namespace)
    done: list[Applied] = []
    for manifest in manifests:
        try:
            cluster, resource = await resource_of(cluster, manifest)
            made = await _apply_one(cluster, manifest, resource, dry_run, force=force)
        except KubeWriteError as error:
            if not _print_conflict(error, manifest):
                print_error(error)
            continue
        except TonnageError as error:  # also of a kind that the server has not
            print_error(error)
            continue
        done.append(made)
        _print_applied(made, dry_run, output)
    if dry_run != "none" and output == "text":
        await _print_plan_change(cluster, [made.after for made in done])
    return len(done) == len(manifests)


async def differing(
    cluster: Cluster, manifests: tuple[Manifest, ...], namespace: str | None, *, force: bool
) -> tuple[bool, bool]:
    """Print what applying would change; (whether anything differs, whether every object could be compared)."""
    from cli.printing.colors import echo_difference
    from cli.printing.differences import object_lines
    from controller.kube.request import KubeWriteError

    _check_namespaces(manifests, namespace)
    differs, compared = False, list[Object]()
    for manifest in manifests:
        try:
            cluster, resource = await resource_of(cluster, manifest)
            made = await _apply_one(cluster, manifest, resource, "server", force=force)
        except KubeWriteError as error:
            if not _print_conflict(error, manifest):
                print_error(error)
            continue
        except TonnageError as error:  # also of a kind that the server has not
            print_error(error)
            continue
        compared.append(made.after)
        lines = object_lines(name_of(made.after), made.before, made.after)
        echo_difference(lines)
        differs = differs or bool(lines)
    if differs:
        await _print_plan_change(cluster, compared)
    return differs, len(compared) == len(manifests)


def _check_namespaces(manifests: tuple[Manifest, ...], namespace: str | None) -> None:
    wrong = [each for each in manifests if namespace and each.namespace and each.namespace != namespace]
    if wrong:
        problem = "is in namespace {}, but -n is {}"
        raise ConfigError(
            tuple(Mistake(m.place, problem.format(m.namespace, namespace), "remove one of them") for m in wrong)
        )


async def _apply_one(
    cluster: Cluster, manifest: Manifest, resource: "ApiResource", dry_run: str, *, force: bool
) -> Applied:
    from controller.kube import crud

    content = manifest.content
    namespace = manifest.namespace or cluster.namespace
    if resource.is_namespaced:
        content = {**content, "metadata": {**content["metadata"], "namespace": namespace}}
    path = resource.path(namespace, manifest.name)
    before = await crud.read_if_there(cluster.connection, path)
    if dry_run == "client":
        return Applied(before, overlaid(before or {}, content))
    after = await crud.apply(cluster.connection, path, content, force=force, dry_run=dry_run == "server")
    return Applied(before, after)


def overlaid(below: Any, above: Any) -> Any:
    """Manifest merged into an object: maps are merged, all other values replaced.

    An approximation: the server also merges lists by their keys and sets defaults.
    """
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: overlaid(below.get(key), value) for key, value in above.items()}}


def _print_applied(made: Applied, dry_run: str, output: str) -> None:
    from cli.printing.colors import echo_difference
    from cli.printing.differences import object_lines
    from cli.printing.object_output import Output, text_of, without_managed_fields

    if output in ("json", "yaml"):
        click.echo(
            ("---\n" if output == "yaml" else "") + text_of(without_managed_fields(made.after), Output(output)),
            nl=False,
        )
        return
    name = name_of(made.after)
    if output == "name":
        click.echo(name)
        return
    if dry_run == "none":
        click.echo(f"{name} {made.word}")
        return
    lines = object_lines(name, made.before, made.after)
    word = "created" if made.before is None else "configured" if lines else "unchanged"
    click.echo(f"{name} {word} ({'server ' if dry_run == 'server' else ''}dry run)")
    echo_difference(lines)


def _print_conflict(error: Any, manifest: Manifest) -> bool:
    """Print the conflicting fields with their owners, and the remedy; False if the error is not such a conflict."""
    from controller.kube.crud import owners_in_conflict

    conflicts = list(owners_in_conflict(error.refusal))
    if not conflicts:
        return False
    click.echo(f"Error from server (Conflict): {manifest.kind}/{manifest.name} has fields with other owners:", err=True)
    for owner, field in conflicts:
        click.echo(f"  {field}: {owner}", err=True)
    click.echo("remove these fields from the manifest, or take them over with --force-conflicts", err=True)
    return True


async def _print_plan_change(cluster: Cluster, objects: list[Object]) -> None:
    """Print how the plan for the whole cluster changes with these objects; nothing if none of them affects plans."""
    from controller.api.kinds import OWN_KINDS

    planned_from = {(kind.api_version, kind.name) for kind in OWN_KINDS if kind.is_planned_from}
    ours = [each for each in objects if (each.get("apiVersion"), each.get("kind")) in planned_from]
    if not ours:
        return
    from cli.inputs.planning import Planning, decider, look_to_plan, settings_on
    from cli.printing.colors import echo_difference
    from cli.printing.differences import change_lines
    from controller.queries.plan_diff import plan_diff

    settings = await settings_on(cluster, Planning())
    seen, decide = await look_to_plan(cluster, settings), decider(settings)  # also where instances will go
    snapshot = seen.to_plan_on()
    before = plan_diff(snapshot, decide(snapshot))
    seen.put(with_stored_fields(each) for each in ours)
    snapshot = seen.to_plan_on()
    after = plan_diff(snapshot, decide(snapshot))
    click.echo("\nThe plan for the cluster would change like this:")
    echo_difference(change_lines(before, after))
    for mistake in seen.mistakes():
        click.echo(f"! {mistake}")


def with_stored_fields(obj: Object) -> Object:
    """Object with the metadata that stored objects always have and a client's draft lacks."""
    metadata = {"uid": "", "resourceVersion": "0", "generation": 1, **obj["metadata"]}
    return {**obj, "metadata": metadata}
