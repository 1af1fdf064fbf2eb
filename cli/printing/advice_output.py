"""Advice on a fleet in print: text, JSON, and a page that opens without a network."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from cli.printing.plan_figures import figure, money, written
from cli.printing.tables import table
from controller.queries.advice import HOURS_PER_MONTH, Advice, AdviceReport, CostSplit, Item
from controller.queries.doctor_scaling import few

STATES = ("working", "unused", "unrequested", "useless")
STATE_WORDS = ("working", "idle by use", "unrequested", "useless")
CAVEAT = (
    "Planning carried out each advice on the dump. Those that save add up; what is freed or put to use saves nothing "
    "by itself. Without --prometheus, what pods hold counts as working."
)
SHOWN_SHARE, MOST_SHOWN = 0.9, 5
"""Names are shown until they make this part of the amount, at most so many."""
MOST_ROWS = 10
"""Namespaces, and teams, in text."""
MOST_STEPS = 12
"""Commands in text; -o json and the page have all."""


def as_json(found: AdviceReport, prices: str, at: datetime) -> str:
    fleet, watts = found.fleet, found.watts
    record = {
        "record": 1,
        "prices": prices,
        "date": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "fleet": {
            "nodes": found.nodes,
            "gpus": fleet.gpus,
            "gpus_not_offered": found.not_offered,
            "gpus_used": figure(fleet.used),
            "cost_per_hour": figure(found.whole.total),
            "idle_cost_per_hour": figure(fleet.idle_cost_per_hour),
        },
        "power_limits": {"gpus": watts.gpus, "all_w": figure(watts.all_w), "idle_w": figure(watts.idle_w)},
        "advice": [_plain(each) for each in found.advice],
        "split": _split(found.whole),
        "types": [_split(each) for each in found.types],
        "namespaces": [_split(each) for each in found.namespaces],
        "teams": [_split(each) for each in found.teams],
        "unpriced_nodes": found.unpriced,
    }
    return written(record, "json")


def _plain(advice: Advice) -> dict[str, Any]:
    return {
        "topic": advice.topic,
        "effect": advice.effect,
        "headline": advice.headline,
        "remedy": advice.remedy,
        "dollars_per_hour": figure(advice.dollars_per_hour),
        "about": list(advice.about),
        "items": [asdict(each) | {"dollars_per_hour": figure(each.dollars_per_hour)} for each in advice.items],
        "moves": [move.values() for change in advice.changes for move in change.moves],
        "steps": [asdict(each) for each in advice.steps],
    }


def _split(split: CostSplit) -> dict[str, Any]:
    return {"name": split.name, **{state: figure(getattr(split, state)) for state in STATES}}


def headline(found: AdviceReport) -> str:
    """Fleet in a sentence."""
    fleet, gpus = found.fleet, found.fleet.gpus + found.not_offered
    unknown = " of known price" if found.unpriced else ""
    not_offered = f", {found.not_offered} are not offered" if found.not_offered else ""
    return (
        f"{found.nodes} nodes with {gpus} GPUs; those{unknown} cost ${money(found.whole.total)} per hour. "
        f"{100 * fleet.used / max(gpus, 1):.0f} % are allocated{not_offered}, and idle ones cost "
        f"${money(fleet.idle_cost_per_hour)} per hour (${fleet.idle_cost_per_hour * HOURS_PER_MONTH:,.0f} per month)."
    )


def savings(found: AdviceReport) -> str:
    """All advice in a sentence."""
    saves = found.saving("saves")
    return (
        f"Following all of it saves ${money(saves)} per hour (${saves * HOURS_PER_MONTH:,.0f} per month), puts "
        f"${money(found.saving('serves'))} per hour to use, and frees ${money(found.saving('frees'))} per hour."
    )


TYPE_COLUMNS = ("GPU TYPE", "NODES", "GPUS", "USED", "USED%", "$/HOUR", "$ IDLE/HOUR")
SPLIT_COLUMNS = ("$/HOUR", *(f"$ {word.upper()}" for word in STATE_WORDS))
NOTHING = "Nothing to advise: no GPU is idle, stranded or waited for."


def _type_rows(found: AdviceReport) -> list[tuple[str, ...]]:
    return [
        (
            each.name,
            str(each.nodes),
            str(each.gpus),
            f"{round(each.used, 2):.9g}",
            f"{100 * each.used_share:.0f}%",
            money(each.cost_per_hour) if each.cost_per_hour else "unknown",
            money(each.idle_cost_per_hour) if each.cost_per_hour else "unknown",
        )
        for each in found.by_type
    ]


def _shown(items: Sequence[Item]) -> str:
    """The dearest items until they make most of the amount, and what the others cost."""
    total, shown, dollars = sum(each.dollars_per_hour for each in items), list[str](), 0.0
    for each in items[:MOST_SHOWN]:
        if shown and dollars > SHOWN_SHARE * total and len(items) > MOST_SHOWN:
            break
        price = f" ${money(each.dollars_per_hour)}/h" if each.dollars_per_hour else ""
        shown.append(f"{each.name}{price}" + (f" ({each.words})" if each.words else ""))
        dollars += each.dollars_per_hour
    rest = len(items) - len(shown)
    price = f" (${money(total - dollars)}/h)" if total - dollars > 0 else ""
    return "; ".join(shown) + (f"; and {rest} more{price}" if rest else "")


def as_text(found: AdviceReport, prices: str, at: datetime) -> str:
    parts = [headline(found), "", table(TYPE_COLUMNS, _type_rows(found))]
    for each in found.advice:
        amount = f"{each.effect} ${money(each.dollars_per_hour)}/h" if each.dollars_per_hour else "-"
        parts += [f"{amount:>18}  {each.headline}", f"{'':20}→ {each.remedy}"]
        parts += [f"{'':20}{_shown(each.items)}"] if each.items else []
    parts += [savings(found) if found.advice else NOTHING, ""]
    for name, splits in (("NAMESPACE", found.namespaces), ("TEAM", found.teams)):
        rows = (
            (each.name, money(each.total), *(money(getattr(each, state)) for state in STATES))
            for each in splits[:MOST_ROWS]
        )
        parts += [table((name, *SPLIT_COLUMNS), rows)] if splits else []
        parts += [f"and {len(splits) - MOST_ROWS} more (-o json)", ""] if len(splits) > MOST_ROWS else []
    if steps := [step for each in found.advice for step in each.steps]:
        parts += ["To apply, one at a time; each can be undone:"]
        parts += [f"  {each.do}" + (f"   # undo: {each.undo}" if each.undo else "") for each in steps[:MOST_STEPS]]
        parts += [f"  and {len(steps) - MOST_STEPS} more (-o json)"] if len(steps) > MOST_STEPS else []
        parts += [""]
    parts += _notes(found, prices, at)
    return "\n".join(parts) + "\n"


def _notes(found: AdviceReport, prices: str, at: datetime) -> Iterator[str]:
    yield f"As of {at:%Y-%m-%d %H:%M} UTC. {CAVEAT}"
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
    """Page of the advice. at: when the dump was made."""
    from simulator.reports.sweep_report import rendered

    return rendered(
        "advice.html.j2",
        Path(__file__).parent,
        headline=headline(found),
        savings=savings(found),
        columns=TYPE_COLUMNS,
        rows=_type_rows(found),
        whole=found.whole,
        parts=(("By type", found.types), ("By namespace", found.namespaces), ("By team", found.teams)),
        states=list(zip(STATES, STATE_WORDS, strict=True)),
        advice=found.advice,
        nothing=NOTHING,
        notes=list(_notes(found, prices, at)),
        at=f"{at:%Y-%m-%d %H:%M}",
        month=HOURS_PER_MONTH,
        money=money,
    )
