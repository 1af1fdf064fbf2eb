"""`tonnage doctor`: checks whether Tonnage can run on a cluster, with a remedy for each failure."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cli.inputs.cluster import ClusterAccess, access_options
from cli.inputs.options import output_choice
from cli.printing.terminal import FAILED

if TYPE_CHECKING:
    from controller.queries.doctor import InstallationFacts

MANY = {"warning": "warnings", "failure": "failures"}
SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failure": ("✗", "red"), "unknown": ("?", "yellow")}


@click.command(epilog="tonnage doctor && echo ready")
@output_choice("table", "json", "yaml")
@access_options
@click.pass_context
def doctor(ctx: click.Context, output: str, access: ClusterAccess) -> None:
    """Check an installation: server, clock, CRDs, RBAC, operator, Lease, metrics, nodes, pending pods,
    ScalingPolicies, DRA.

    Every problem comes with a remedy. Exits with 1 if a check fails; warnings and checks that could not run do not
    count.
    """
    from asyncio import run

    from controller.kube.connection import connect
    from controller.queries.cluster_facts import gather_facts
    from controller.queries.doctor import examine

    async def facts() -> "InstallationFacts":
        async with await connect(access.credentials(), time.monotonic) as connection:
            return await gather_facts(connection)

    findings = examine(run(facts()), time.time())
    is_healthy = not any(finding.verdict == "failure" for finding in findings)
    if output == "table":
        from cli.printing.terminal import colors_are_wanted, styled

        colored = colors_are_wanted()
        for finding in findings:
            sign, color = SIGNS[finding.verdict]
            click.echo(f"{styled(click.style(sign, fg=color)) if colored else sign} {finding.check:<9} {finding.words}")
            if finding.remedy:
                click.echo(f"{'':<12}→ {finding.remedy}")
        counts = {verdict: sum(f.verdict == verdict for f in findings) for verdict in SIGNS}
        present = (
            f"{count} {MANY.get(verdict, verdict) if count > 1 else verdict}"
            for verdict, count in counts.items()
            if count
        )
        click.echo(", ".join(present))
    else:
        from cli.printing.plan_figures import written

        data = {"is_healthy": is_healthy, "findings": list(map(asdict, findings))}
        click.echo(written(data, output), nl=False)
    if not is_healthy:
        ctx.exit(FAILED)
