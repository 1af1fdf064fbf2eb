"""`tonnage apply`: manifests onto the cluster by server-side apply, or what that would change."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.cluster import Cluster, Impersonated, cluster_options, dry_run_option, on_cluster, target_from
from cli.inputs.manifest_objects import Manifest, manifests_in
from cli.inputs.resource_arguments import name_of, resource_of
from cli.printing.errors import FAILED, print_error
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from controller.kube.discovery import ApiResource

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Applied:
    """What became, or would become, of one manifest."""

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
@click.option("--force-conflicts", is_flag=True, help="Take over fields that somebody else owns.")
@click.option("-o", "--output", type=click.Choice(["words", "name", "json", "yaml"]), default="words",
              show_default=True)  # fmt: skip
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
    """Make objects as manifests say, by server-side apply as `tonnage-cli`.

    All mistakes that can be known are told before anything is sent. --dry-run shows the difference to what is there,
    and for Tonnage's kinds how the plan for the cluster changes: `server` has the server work it out, `client` lays
    the manifest over what is there and asks nobody.
    """
    manifests = manifests_in(files)

    async def work(cluster: Cluster) -> bool:
        return await _applied(cluster, manifests, namespace, dry_run, output, force=force_conflicts)

    if not on_cluster(target_from(kubeconfig, context, user, timeout_s, namespace), work):
        ctx.exit(FAILED)


async def _applied(
    cluster: Cluster, manifests: tuple[Manifest, ...], namespace: str | None, dry_run: str, output: str, *, force: bool
) -> bool:
    from controller.kube.errors import KubeReadError, KubeWriteError

    _check_namespaces(manifests, namespace)
    done: list[Applied] = []
    for manifest in manifests:
        try:
            cluster, resource = await resource_of(cluster, manifest)
            made = await _one(cluster, manifest, resource, dry_run, force=force)
        except KubeWriteError as error:
            if not _say_conflict(error, manifest):
                print_error(error)
            continue
        except KubeReadError as error:
            print_error(error)
            continue
        done.append(made)
        _say_applied(made, dry_run, output)
    if dry_run != "none" and output == "words":
        await _say_plan_change(cluster, [made.after for made in done])
    return len(done) == len(manifests)


def _check_namespaces(manifests: tuple[Manifest, ...], namespace: str | None) -> None:
    wrong = [each for each in manifests if namespace and each.namespace and each.namespace != namespace]
    if wrong:
        problem = "is in namespace {}, and -n says {}"
        raise ConfigError(
            tuple(Mistake(m.place, problem.format(m.namespace, namespace), "leave one of them out") for m in wrong)
        )


async def _one(cluster: Cluster, manifest: Manifest, resource: "ApiResource", dry_run: str, *, force: bool) -> Applied:
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
    """A manifest laid over an object: maps are merged, all else is replaced. Close to what the server would make of it,
    which knows lists that are maps, and defaults."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: overlaid(below.get(key), value) for key, value in above.items()}}


def _say_applied(made: Applied, dry_run: str, output: str) -> None:
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


def _say_conflict(error: Any, manifest: Manifest) -> bool:
    """Who owns what, and what helps; False when the error is no conflict of owners."""
    from controller.kube.crud import owners_in_conflict

    conflicts = list(owners_in_conflict(error.refusal))
    if not conflicts:
        return False
    click.echo(f"Error from server (Conflict): {manifest.kind}/{manifest.name} has fields that others own:", err=True)
    for owner, field in conflicts:
        click.echo(f"  {field}: {owner}", err=True)
    click.echo("leave these fields out of the manifest, or take them over with --force-conflicts", err=True)
    return True


async def _say_plan_change(cluster: Cluster, objects: list[Object]) -> None:
    """How the plan for the whole cluster changes with these objects; silent where none of them is planned from."""
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
    """What a stored object always has, and a client's draft has not."""
    metadata = {"uid": "", "resourceVersion": "0", "generation": 1, **obj["metadata"]}
    return {**obj, "metadata": metadata}
