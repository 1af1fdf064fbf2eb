"""Dashboard of power: draw and worst case of each power domain, limited devices, and node agents."""

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
    "Draw and worst case of each power domain, limited devices, and the connections of node agents. Empty unless "
    "power.enabled is set and there are PowerDomains.",
    (JOB, DOMAIN),
    (
        Row(
            "Watts",
            (
                Panel(
                    "Draw of the budget",
                    "Drawn fraction of each budget. Bursts may exceed 1 for seconds.",
                    SHARE,
                    (Query(f"{of_domain('draw')} / {of_domain('budget')}", "{{power_domain}}"),),
                ),
                Panel(
                    "Worst case of the budget",
                    "Worst case of all granted power, as a fraction of the budget. Above 1 for seconds after a budget "
                    "was cut. Longer: look for stale devices.",
                    SHARE,
                    (Query(f"{of_domain('worst')} / {of_domain('budget')}", "{{power_domain}}"),),
                ),
                Panel(
                    "Headroom",
                    "Power for new work. Near 0: no pod is placed there, low classes are limited. Below: short.",
                    WATTS,
                    (Query(of_domain("headroom"), "{{power_domain}}"),),
                    signed=True,
                ),
                Panel(
                    "Draw",
                    "Sum of the readings, with the worst case for stale devices, beside the budget in force.",
                    WATTS,
                    (
                        Query(of_domain("draw"), "{{power_domain}}"),
                        Query(of_domain("budget"), "{{power_domain}} budget"),
                    ),
                ),
                Panel(
                    "Missing power by class",
                    "Power that devices need and are not granted. Low classes are limited first; high ones only when "
                    "the low ones are at their floors.",
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
                    "1 while a hardware power brake is inferred, mostly for a minute.",
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
                    "Devices whose limit keeps them from drawing more.",
                    COUNT,
                    (Query(devices("held_back"), "{{power_domain}}"),),
                ),
                Panel(
                    "Stale",
                    "Devices without readings: they count at their worst case, which leaves less power for others.",
                    COUNT,
                    (Query(devices("stale"), "{{power_domain}}"),),
                ),
                Panel(
                    "Disobedient",
                    "The PowerDomain's status names them with the reasons.",
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
                    "Node agents that are connected to the leader.",
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
                    steps=((None, "green"), (2.0, "orange"), (10.0, "red")),
                ),
                Panel(
                    "Duration of a turn",
                    "Time to decide and to send all leases.",
                    SECONDS,
                    (Query('max(tonnage_power_turn_seconds{job="$job"})', "turn"),),
                    "stat",
                    steps=((None, "green"), (0.5, "orange"), (1.0, "red")),
                ),
                Panel(
                    "Report to lease",
                    "Time from a report to the resulting lease; 99 % should be within 0.5 s.",
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
                    "A bug; the log contains the traceback.",
                    PER_SECOND,
                    (Query(rate("tonnage_power_failed_turns_total"), "failed"),),
                ),
            ),
        ),
    ),
)
