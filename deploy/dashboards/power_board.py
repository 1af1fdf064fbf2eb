"""Watts: what is drawn, what may be drawn, who is held back, and whether agents are heard."""

from deploy.dashboards.panels import (
    COUNT,
    JOB,
    PER_SECOND,
    SECONDS,
    SHARE,
    Board,
    Panel,
    Query,
    Row,
    Variable,
    fleet,
    quantiles,
    rate,
)

WATTS = "watt"
DOMAIN = Variable(
    "power_domain", "Power domain", 'label_values(tonnage_power_draw_watts{job="$job"}, power_domain)', many=True
)
CHOSEN = 'power_domain=~"$power_domain"'


def of_domain(name: str) -> str:
    return fleet(f"tonnage_power_{name}_watts", "power_domain", where=CHOSEN)


def devices(state: str) -> str:
    return fleet("tonnage_power_devices", "power_domain", where=f'{CHOSEN}, state="{state}"')


POWER = Board(
    "power",
    "Tonnage / Power",
    "What is drawn through each power domain, what may be drawn at worst, who is held back, and whether agents are "
    "heard. Shows something where power.enabled is set and there are PowerDomains.",
    (JOB, DOMAIN),
    (
        Row(
            "Watts",
            (
                Panel(
                    "Draw of the budget",
                    "Share of each budget that is drawn now. Bursts may pass 1 for seconds.",
                    SHARE,
                    (Query(f"{of_domain('draw')} / {of_domain('budget')}", "{{power_domain}}"),),
                ),
                Panel(
                    "Worst case of the budget",
                    "What all that was granted allows at worst. Above 1 for seconds after a budget was cut. Longer: "
                    "look for stale devices.",
                    SHARE,
                    (Query(f"{of_domain('worst')} / {of_domain('budget')}", "{{power_domain}}"),),
                ),
                Panel(
                    "Headroom",
                    "What more work may begin to draw. Near 0: placement finds no room there, and low classes are held "
                    "back.",
                    WATTS,
                    (Query(of_domain("headroom"), "{{power_domain}}"),),
                ),
                Panel(
                    "Draw",
                    "By readings, at the worst case where they are stale.",
                    WATTS,
                    (Query(of_domain("draw"), "{{power_domain}}"),),
                ),
                Panel(
                    "Watts that classes lack",
                    "What devices need and do not get. A low class first; a high one only when the low are at their "
                    "floors.",
                    WATTS,
                    (
                        Query(
                            fleet("tonnage_power_short_watts", "power_domain", "power_class", where=CHOSEN),
                            "{{power_domain}} {{power_class}}",
                        ),
                    ),
                ),
                Panel(
                    "Hardware brake",
                    "1 while a brake is taken to hold all clocks down, mostly for a minute: the draw came too near the "
                    "budget.",
                    COUNT,
                    (Query(fleet("tonnage_power_brake", "power_domain", where=CHOSEN), "{{power_domain}}"),),
                ),
            ),
        ),
        Row(
            "Devices",
            (
                Panel(
                    "Held back",
                    "Devices that would draw more if they were let.",
                    COUNT,
                    (Query(devices("held_back"), "{{power_domain}}"),),
                ),
                Panel(
                    "Stale",
                    "Not heard: they count at their worst case, and others lack those watts.",
                    COUNT,
                    (Query(devices("stale"), "{{power_domain}}"),),
                ),
                Panel(
                    "Disobedient",
                    "The PowerDomain's status names them, and why.",
                    COUNT,
                    (Query(devices("disobedient"), "{{power_domain}}"),),
                ),
            ),
        ),
        Row(
            "The fast loop",
            (
                Panel(
                    "Agents",
                    "Lines that are up, at the leader.",
                    COUNT,
                    (Query('max(tonnage_power_agents{job="$job"})', "agents"),),
                    "stat",
                ),
                Panel(
                    "Since the last turn",
                    "More than a second or two: agents fall to their floors after 10 s.",
                    SECONDS,
                    (Query('time() - max(tonnage_power_last_turn_timestamp_seconds{job="$job"})', "age"),),
                    "stat",
                ),
                Panel(
                    "Length of a turn",
                    "To decide and to answer everyone.",
                    SECONDS,
                    (Query('max(tonnage_power_turn_seconds{job="$job"})', "turn"),),
                    "stat",
                ),
                Panel(
                    "Report to lease",
                    "How soon a report is answered; 99 % should be within 0.5 s.",
                    SECONDS,
                    quantiles("tonnage_power_reaction_seconds"),
                ),
                Panel(
                    "Reports and leases",
                    "One of each per agent and period.",
                    PER_SECOND,
                    (
                        Query(rate("tonnage_power_reports_total"), "reports"),
                        Query(rate("tonnage_power_leases_total"), "leases"),
                    ),
                ),
                Panel(
                    "Refused messages",
                    "Forged: an agent with other keys, or an impostor.",
                    PER_SECOND,
                    (Query(rate("tonnage_power_messages_refused_total", "reason"), "{{reason}}"),),
                ),
                Panel(
                    "Failed turns",
                    "A bug; the log holds the traceback.",
                    PER_SECOND,
                    (Query(rate("tonnage_power_failed_turns_total"), "failed"),),
                ),
            ),
        ),
    ),
)
