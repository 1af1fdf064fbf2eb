"""`tonnage simulate scaling`: a load trace replayed under scaling policies."""

from pathlib import Path

import click

from cli.verbs.scaling_replay import replay_options, show_replay


@click.command(name="scaling")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="CSV", help="Load over time. [default: a generated one]"
)
@click.option("--column", "value_column", metavar="NAME", help="Column with the load. [default: the second]")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the generated trace.")
@replay_options
def scaling(trace: Path | None, value_column: str | None, seed: int, **options: object) -> None:
    """Replay a trace of load under scaling policies, beside perfect foresight.

    The first days train the forecast; the others are replayed step by step. Replicas are paid for from their order, and
    serve after the lead time.

    \b
    tonnage simulate scaling --lead 5 --report out/scaling.html
    tonnage simulate scaling --trace load.csv --policy tonnage,hpa,oracle -o json
    """
    from simulator.scaling.traces import generated_trace, read_trace

    load = generated_trace(seed) if trace is None else read_trace(trace, value_column)
    show_replay(load, made_by="tonnage simulate scaling", **options)  # type: ignore[arg-type]  # click gives the types
