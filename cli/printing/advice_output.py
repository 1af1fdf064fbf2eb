"""Advice on a fleet in print: text, JSON, and a page that opens without a network."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from html import escape

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


def as_text(found: AdviceReport, prices: str) -> str:
    rows = [
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
    parts = [headline(found), "", table(("GPU TYPE", "NODES", "GPUS", "USED", "USED%", "$/HOUR", "$ IDLE/HOUR"), rows)]
    for each in found.advice:
        amount = f"${money(each.dollars_per_hour)}/h" if each.dollars_per_hour else "-"
        parts += [f"{amount:>12}  {each.headline}", f"{'':14}→ {each.remedy}"]
        parts += [f"{'':14}{few(each.about)}"] if each.about else []
    if not found.advice:
        parts.append("Nothing to advise: no GPU is idle, stranded or waited for.")
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


STYLE = """
:root{color-scheme:light dark;--ink:#1c2024;--soft:#5b6570;--line:#d5dae0;--page:#fff;--mark:#0b6e4f}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa5b1;--line:#39424c;--page:#14181c;--mark:#5fd3a6}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:0}
main{max-width:60rem;margin:auto;padding:2rem 1rem}
h1{font-size:1.5rem}.headline{font-size:1.15rem}.soft,footer{color:var(--soft);font-size:.9rem}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{padding:.4rem .6rem;border-bottom:1px solid var(--line);text-align:right}
th:first-child,td:first-child{text-align:left}td{white-space:nowrap}
article{border-left:4px solid var(--mark);padding:.2rem 1rem;margin:1.2rem 0;break-inside:avoid}
article h2{font-size:1.05rem;margin:.2rem 0}.dollars{color:var(--mark);font-weight:700}
summary{cursor:pointer;color:var(--soft)}code{overflow-wrap:anywhere}
@media screen and (max-width:30rem){th,td{padding:.4rem .25rem;font-size:.85rem}main{padding:1rem .7rem}}
@media print{details::details-content{content-visibility:visible;block-size:auto}}
@media print{:root{--ink:#000;--soft:#333;--line:#999;--page:#fff;--mark:#000}main{padding:0}}
"""


def as_html(found: AdviceReport, prices: str, at: datetime) -> str:
    """Page of the advice. at: when it was made."""
    rows = "".join(
        f"<tr><th scope=row>{escape(each.name)}</th><td>{each.nodes}</td><td>{each.gpus}</td>"
        f"<td>{each.used:.4g} ({100 * each.used_share:.0f} %)</td><td>{money(each.cost_per_hour)}</td>"
        f"<td>{money(each.idle_cost_per_hour)}</td></tr>"
        for each in found.by_type
    )
    heads = "".join(f"<th scope=col>{h}</th>" for h in ("GPU type", "Nodes", "GPUs", "Used", "$/h", "Idle $/h"))
    advice = "".join(
        f"<article><h2>{_amount(each.dollars_per_hour)}{escape(each.headline)}</h2>"
        f'<p><span class="soft">What helps:</span> {escape(each.remedy)}</p>'
        f"{_concerned(each.about)}</article>"
        for each in found.advice
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in _notes(found, prices))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Advice on a GPU fleet</title>'
        f"<style>{STYLE}</style></head><body><main><h1>Advice on a GPU fleet</h1>"
        f'<p class="headline">{escape(headline(found))}</p>'
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f"{advice or '<p>Nothing to advise: no GPU is idle, stranded or waited for.</p>'}"
        f"<footer>{notes}<p>Made by <code>tonnage advise</code> on {at:%Y-%m-%d %H:%M} UTC, read-only, from a dump of "
        "nodes and pods.</p></footer></main></body></html>\n"
    )


FEW = 3
"""Names that are shown at once; more are folded."""


def _concerned(names: Sequence[str]) -> str:
    said = f"<code>{escape(', '.join(names))}</code>"
    if len(names) > FEW:
        return f"<details><summary>{len(names)} concerned</summary>{said}</details>"
    return f'<p class="soft">{said}</p>' if names else ""


def _amount(dollars_per_hour: float) -> str:
    return f'<span class="dollars">${money(dollars_per_hour)}/h</span> ' if dollars_per_hour else ""
