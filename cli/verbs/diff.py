"""`tonnage diff`: differences between manifests and the stored objects, and the plan that they would change."""

import click

from cli.inputs.cluster import Cluster, Impersonated, cluster_options, on_cluster, target_from
from cli.inputs.manifest_objects import manifests_in
from cli.printing.errors import FAILED, WRONG_INPUT

EXIT_STATUS = """\b
Exit status, as kubectl diff's:
  0    nothing differs
  1    something differs
  2    wrong usage, or an object could not be compared"""


@click.command(epilog=EXIT_STATUS)
@click.option("-f", "--filename", "files", multiple=True, required=True, type=click.Path(allow_dash=True),
              help="Manifest file, or folder of them; may be repeated. - reads standard input.")  # fmt: skip
@click.option("--force-conflicts", is_flag=True, help="Compare as if fields of other owners were taken over.")
@cluster_options
@click.pass_context
def diff(
    ctx: click.Context,
    files: tuple[str, ...],
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    user: Impersonated | None,
    timeout_s: float,
    *,
    force_conflicts: bool,
) -> None:
    """Show what applying manifests would change, in the objects and in the plan; exit with 1 if anything differs.

    The API server computes the result of the server-side apply without storing it.
    """
    from cli.verbs.apply import differing

    manifests = manifests_in(files)

    async def work(cluster: Cluster) -> tuple[bool, bool]:
        return await differing(cluster, manifests, namespace, force=force_conflicts)

    differs, is_whole = on_cluster(target_from(kubeconfig, context, user, timeout_s, namespace), work)
    if not is_whole:
        ctx.exit(WRONG_INPUT)
    if differs:
        ctx.exit(FAILED)
