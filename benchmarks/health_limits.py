"""Health under Tonnage's own limits: nodes that are quarantined because they are capped or throttled, by who knows.

Each case is a job in which Tonnage caps watts or CPU of some ranks. The analyser's verdicts go through the remediation
that ships; the job goes on under its limit for `--hours`, and the verdict stands. The limits are known to the analyser,
to remediation alone, or to nobody.
"""

from collections.abc import Iterator

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.health_remedies import START_S, PretendJob, takes_out_a_node
from benchmarks.health_scores import verdicts_on
from health.stream import Options
from health.verdicts.verdict import FactKind, Verdict
from simulator.health.cases import Case, case
from simulator.health.job import LIMITS

AGAIN_S = 120.0
KNOWN_BY = ("analyser and remediation", "remediation alone", "nobody")


@click.command(context_settings={"show_default": True})
@click.option("--seeds", callback=arguments.seeds, default="7001-7020", help="Seeds; each gives a case of each limit.")
@click.option("--ranks", type=click.IntRange(8), default=32, help="Ranks of each job.")
@click.option("--hours", type=click.FloatRange(0.1), default=2.0, help="Time that the job goes on under its limit.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(seeds: tuple[int, ...], ranks: int, hours: float, json_to: str | None) -> None:
    """Count cases in which something is blamed, and in which a limited node is quarantined."""
    counts = {name: {"cases": 0, "blamed": 0, "quarantined": 0} for name in KNOWN_BY}
    for seed in seeds:
        for kind in LIMITS:
            drawn = case(seed, kind=kind, ranks=ranks)
            for name, blamed, taken in _outcomes(drawn, hours):
                counts[name]["cases"] += 1
                counts[name]["blamed"] += blamed
                counts[name]["quarantined"] += taken
    rows = [{"limits_known_by": name, **each} for name, each in counts.items()]
    if json_to is not None:
        write_lines(json_to, rows)
    if json_to != "-":
        table = Table("limits known by", "cases", "something blamed", "limited node quarantined")
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        Console(width=120).print(table)


def _outcomes(drawn: Case, hours: float) -> Iterator[tuple[str, bool, bool]]:
    told, hidden = verdicts_on(drawn, Options()), verdicts_on(drawn, Options(limits=False))
    for name, verdicts, known in zip(KNOWN_BY, (told, hidden, hidden), (True, True, False), strict=True):
        blames = [verdict for verdict in verdicts if verdict.blames]
        yield name, bool(blames), _is_quarantined(drawn, blames, hours, known=known)


def _is_quarantined(drawn: Case, blames: list[Verdict], hours: float, *, known: bool) -> bool:
    """Whether remediation takes out a node while verdicts stand and the job goes on."""
    limits = [fact for fact in drawn.facts if known and fact.kind in (FactKind.POWER_CAP, FactKind.CGROUP_LIMIT)]
    job = PretendJob(drawn.layout, {fact.rank: fact.speed_share for fact in limits})
    lost = drawn.disturbance.strength / (1 + drawn.disturbance.strength)
    return any(
        takes_out_a_node(job.decided([job.evidence(each, now_s, lost) for each in blames], now_s))
        for now_s in (START_S + np.arange(0.0, hours * 3600.0, AGAIN_S)).tolist()
    )


if __name__ == "__main__":
    main()
