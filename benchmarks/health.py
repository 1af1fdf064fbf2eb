"""Health: precision, recall, culprit and latency of verdicts on generated cases and on recorded jobs."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.arguments import refusing_bad_input, write_lines
from benchmarks.health_scores import VARIANTS, Score, scored, summary
from health.records.layout import layout_from
from health.stream import Analyser
from health.verdicts.verdict import Verdict
from simulator.health.cases import SIZES, case
from simulator.health.recorded import recording

SHOWN = (
    "precision",
    "recall",
    "recall_decided",
    "abstained",
    "top1_rank",
    "top1_nic",
    "top1_link",
    "false_alarms",
    "limits_blamed",
    "hang_p95_s",
    "dead_p95_s",
    "slow20_in_time",
    "slow10_recall",
    "probed",
    "acquitted",
)


@click.command(context_settings={"show_default": True})
@click.option("--cases", type=click.IntRange(1), default=None, help="Cases from the first seed on, instead of --seeds.")
@click.option("--seeds", callback=arguments.seeds, default="1-20", help="Seeds of cases: even ones are faults.")
@click.option("--ranks", type=click.Choice([str(size) for size in SIZES]), default=None, help="One size for all cases.")
@click.option(
    "--variants", callback=arguments.words, default="tonnage,simple", help=f"Of {', '.join(VARIANTS)}; or `all`."
)
@click.option("--data", type=click.Path(path_type=Path, exists=True), default=None, help="Folder of recorded jobs.")
@click.option("--mistakes", is_flag=True, help="Show each case that went wrong, on stderr.")
@click.option("--json", "json_to", is_flag=False, flag_value="-", help="JSON lines to this file, or to stdout.")
@refusing_bad_input
def main(
    cases: int | None,
    seeds: tuple[int, ...],
    ranks: str | None,
    variants: tuple[str, ...],
    data: Path | None,
    mistakes: bool,
    json_to: str | None,
) -> None:
    """Judge cases and print a table; `even` seeds are faults, odd ones disturbances that are none."""
    if data is not None:
        _recorded(data, json_to)
        return
    chosen = tuple(VARIANTS) if variants == ("all",) else variants
    for name in chosen:
        if name not in VARIANTS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(VARIANTS)}", param_hint="--variants")
    drawn = tuple(range(seeds[0], seeds[0] + cases)) if cases else seeds
    scores = list(_scores(drawn, chosen, int(ranks) if ranks else None, mistakes=mistakes))
    summaries = [summary([score for score in scores if score.variant == name]) for name in chosen]
    if json_to is not None:
        rows: list[dict[str, object]] = [asdict(score) for score in scores] if json_to != "-" else []
        write_lines(json_to, [*rows, *(each.record() for each in summaries)])
    if json_to == "-":
        return
    table = Table("variant", *SHOWN, title=f"{len(drawn)} cases, seeds {drawn[0]}-{drawn[-1]}")
    for each in summaries:
        record = each.record()
        table.add_row(
            each.variant,
            *(f"{record[name]:.3f}" if isinstance(record[name], float) else str(record[name]) for name in SHOWN),
        )
    Console(width=200).print(table)


def _scores(seeds: tuple[int, ...], variants: tuple[str, ...], ranks: int | None, *, mistakes: bool) -> Iterator[Score]:
    for done, seed in enumerate(seeds):
        drawn = case(seed, ranks=ranks)
        for name in variants:
            score = scored(drawn, name, VARIANTS[name])
            if mistakes and (score.false_blames or (score.syndrome != "none" and not score.part_right)):
                click.echo(
                    f"{name}: seed {seed} {score.kind} {score.ranks} ranks {score.share:.2f}: {score.verdict}", err=True
                )
            yield score
        if sys.stderr.isatty():
            click.echo(f"\r{done + 1}/{len(seeds)}", nl=False, err=True)


def _recorded(folder: Path, json_to: str | None) -> None:
    rows: list[dict[str, object]] = []
    for path in sorted(each for each in folder.iterdir() if (each / "truth.json").exists()):
        job = recording(path)
        layout = layout_from(job.transcript.introductions, node=np.arange(job.ranks), nic=np.arange(job.ranks))
        analyser = Analyser(layout)
        verdicts: list[Verdict] = []
        for now_s, frames in job.transcript.ticks():
            analyser.take(frames, now_s)
            verdicts += analyser.judge(now_s)
        first = next((verdict for verdict in verdicts if verdict.blames), None)
        rows.append(
            {
                "job": job.name,
                "fault": job.kind,
                "rank": job.rank,
                "syndrome": first.syndrome if first else "none",
                "part": first.part if first else "nothing",
                "ranks": first.ranks if first else (),
                "latency_s": round(first.at_s - job.fault_s, 2) if first else float("nan"),
                "blames": sum(verdict.blames for verdict in verdicts),
                "evidence": first.evidence if first else (),
            }
        )
    if json_to is not None:
        write_lines(json_to, rows)
        return
    table = Table("job", "fault", "rank", "verdict", "part", "ranks", "latency s")
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("job", "fault", "rank", "syndrome", "part", "ranks", "latency_s")))
    Console().print(table)


if __name__ == "__main__":
    main()
