"""`tonnage scaling backtest`: a user's own load history under each scaling policy, with the dollars between them."""

from pathlib import Path

import click

from cli.verbs.scaling_replay import replay_options, show_replay


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--column", "value_column", metavar="NAME", help="Column with the load. [default: the second]")
@click.option("--prometheus", metavar="URL", help="Prometheus server to ask instead of a file.")
@click.option("--query", metavar="PROMQL", help="Query of the offered load, one series: sum(rate(...)).")
@click.option(
    "--step",
    "step_s",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Step of the query.",
)
@replay_options
def backtest(
    file: Path | None,
    value_column: str | None,
    prometheus: str | None,
    query: str | None,
    step_s: float,
    train_days: int,
    days: int,
    **options: object,
) -> None:
    """Replay a load history under each scaling policy: HPA, KPA, a planner on a point forecast, a fixed peak, Tonnage.

    FILE is a CSV with time in its first column (t_s, minute, timestamp or date) and the load in its second one. Offered
    load is arrivals, with what was queued or rejected; served load shows the limits of the past instead.

    \b
    tonnage scaling backtest load.csv --lead 5 --replica-load 120 --price 2.5
    tonnage scaling backtest --prometheus http://prometheus:9090 \\
        --query 'sum(rate(vllm:request_success_total[5m]))' --report out/backtest.html
    """
    if (file is None) == (prometheus is None) or (prometheus is None) != (query is None):
        raise click.UsageError("give either FILE, or --prometheus and --query")
    from cli.inputs.load_history import from_file, from_prometheus

    if file is not None:
        load = from_file(file, value_column)
    else:
        load = from_prometheus(prometheus or "", query or "", days=train_days + days, step_s=step_s)
    show_replay(load, made_by="tonnage scaling backtest", train_days=train_days, days=days, **options)  # type: ignore[arg-type]  # click gives the types
