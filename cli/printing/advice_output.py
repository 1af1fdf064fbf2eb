"""Advice on a fleet in print: text, JSON, and a page that opens without a network."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from cli.printing.plan_figures import figure, money, written
from cli.printing.tables import table
from controller.queries.advice import HOURS_PER_MONTH, AdviceReport
from controller.queries.doctor_scaling import few

CAVEAT = (
    "Amounts are prices of devices: the most that an advice saves. One device may be in several; do not add them up."
)


def as_json(found: AdviceReport, prices: str) -> str:
    fleet, watts = found.fleet, found.watts
    record = {
        "record": 1,
        "prices": prices,
        "fleet": {
            "nodes": fleet.nodes,
            "gpus": fleet.gpus,
            "gpus_used": figure(fleet.used),
            "cost_per_hour": figure(fleet.cost_per_hour),
            "idle_cost_per_hour": figure(fleet.idle_cost_per_hour),
        },
        "power_limits": {"gpus": watts.gpus, "all_w": figure(watts.all_w), "idle_w": figure(watts.idle_w)},
        "advice": [asdict(each) | {"dollars_per_hour": figure(each.dollars_per_hour)} for each in found.advice],
        "unpriced_nodes": found.unpriced,
    }
    return written(record, "json")


def headline(found: AdviceReport) -> str:
    """Fleet in a sentence."""
    fleet = found.fleet
    share = 100 * fleet.used_share
    return (
        f"{fleet.nodes} nodes with {fleet.gpus} GPUs cost ${money(fleet.cost_per_hour)} per hour; {share:.0f} % are "
        f"allocated, and idle ones cost ${money(fleet.idle_cost_per_hour)} per hour "
        f"(${fleet.idle_cost_per_hour * HOURS_PER_MONTH:,.0f} per month)."
    )


TYPE_COLUMNS = ("GPU TYPE", "NODES", "GPUS", "USED", "USED%", "$/HOUR", "$ IDLE/HOUR")
NOTHING = "Nothing to advise: no GPU is idle, stranded or waited for."


def _type_rows(found: AdviceReport) -> list[tuple[str, ...]]:
    return [
        (
            each.name,
            str(each.nodes),
            str(each.gpus),
            f"{each.used:.4g}",
            f"{100 * each.used_share:.0f}%",
            money(each.cost_per_hour),
            money(each.idle_cost_per_hour),
        )
        for each in found.by_type
    ]


def as_text(found: AdviceReport, prices: str) -> str:
    parts = [headline(found), "", table(TYPE_COLUMNS, _type_rows(found))]
    for each in found.advice:
        amount = f"${money(each.dollars_per_hour)}/h" if each.dollars_per_hour else "-"
        parts += [f"{amount:>12}  {each.headline}", f"{'':14}→ {each.remedy}"]
        parts += [f"{'':14}{few(each.about)}"] if each.about else []
    if not found.advice:
        parts.append(NOTHING)
    parts += ["", *_notes(found, prices)]
    return "\n".join(parts) + "\n"


def _notes(found: AdviceReport, prices: str) -> Iterator[str]:
    yield CAVEAT
    yield f"Prices: {prices}."
    if found.watts.gpus:
        yield (
            f"Power limits of {found.watts.gpus} GPUs add up to {found.watts.all_w / 1000:,.1f} kW (data sheets); "
            f"{found.watts.idle_w / 1000:,.1f} kW of it stand ready for idle ones."
        )
    if found.unpriced:
        yield (
            f"Without a price: {few(found.unpriced)} (GPUs of unknown type); add them to --prices, or a GPUType to -f."
        )


def as_html(found: AdviceReport, prices: str, at: datetime) -> str:
    """Page of the advice. at: when it was made."""
    from simulator.reports.sweep_report import rendered

    return rendered(
        "advice.html.j2",
        Path(__file__).parent,
        headline=headline(found),
        columns=TYPE_COLUMNS,
        rows=_type_rows(found),
        advice=found.advice,
        nothing=NOTHING,
        notes=list(_notes(found, prices)),
        at=f"{at:%Y-%m-%d %H:%M}",
        money=money,
    )
