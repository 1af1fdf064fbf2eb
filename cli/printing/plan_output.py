"""Plan in print: a stable document for programs, tables for people."""

from collections.abc import Iterator

import click

from cli.inputs.planning import Planned
from cli.printing import plan_figures
from cli.printing.tables import Row, table
from cluster.actions import ACTIONS, Action
from cluster.plans import Certificate, Plan, Reason, ServicePlan

RECORD = 1
"""Version of the document of `-o json` and `-o yaml`; an added field does not change it."""


def show_diff(made: Planned) -> None:
    """Print the changes of a plan to standard output."""
    from cli.printing.differences import plan_lines
    from cli.printing.terminal import echo_difference
    from controller.queries.plan_diff import plan_diff

    echo_difference(plan_lines(plan_diff(made.snapshot, made.plan)))


def show(made: Planned, output: str, *, timings: bool = False, with_changes: bool = False) -> None:
    """Print a plan to standard output as `table`, `json` or `yaml`.

    with_changes: whether the document also lists the changes to the live cluster, as `changes`.
    """
    if output == "table":
        for part in tables(made, timings=timings):
            click.echo(part)
        return
    data = document(made, timings=timings)
    if with_changes:
        from cli.printing import differences as difference
        from controller.queries.plan_diff import plan_diff

        data["changes"] = difference.document(plan_diff(made.snapshot, made.plan))
    click.echo(plan_figures.written(data, output), nl=False)


def left_over(plan: Plan) -> bool:
    """Whether the plan leaves a workload unplaced, an action refused, or a service without a mix.

    Pods that are not created yet do not count: the next plan places them.
    """
    from controller.deciders.edits import AWAITS_POD

    without_place = any(each.reason.code != AWAITS_POD for each in plan.unplaced)
    return bool(without_place or plan.refused or any(service.refusal for service in plan.services))


def document(made: Planned, *, timings: bool = False) -> plan_figures.Document:
    """Plan as plain data, the same for the same input unless `timings` adds the solver's seconds."""
    plan = made.plan
    cost = sum(service.cost_per_hour for service in plan.services)
    bound = _total_bound(plan)
    # Steps by the section of their action; sections of known actions are always present, in their order.
    found: dict[str, list[plan_figures.Document]] = {kind.section: [] for kind in ACTIONS}
    for step in plan.steps():
        found.setdefault(step.action.section, []).append(_action(step.action, step.reason))
    return {
        "record": RECORD,
        "cost_per_hour": plan_figures.figure(cost),
        "bound": plan_figures.figure(bound),
        "gap": plan_figures.figure(None if bound is None else Certificate(cost, bound, "", 0.0).gap),
        "services": [_service(each, timings=timings) for each in sorted(plan.services, key=lambda s: s.service)],
        **found,
        "unplaced": plan_figures.plain(plan.unplaced),
        "refused": [
            {"action": type(each.step.action).__name__, **_action(each.step.action, each.reason)}
            for each in plan.refused
        ],
        "findings": plan_figures.plain(plan.findings),
        "cut_short": plan_figures.plain(plan.cut_short),
        "certificates": {name: _certificate(each, timings=timings) for name, each in sorted(plan.certificates.items())},
        "notes": plan_figures.plain(made.notes),
    }


def _total_bound(plan: Plan) -> float | None:
    """Lower bound on the cost of all services, dollars per hour; None if none is proven."""
    whole = plan.certificates.get("mix")
    if whole is not None:
        return whole.bound
    served = [service for service in plan.services if service.refusal is None]
    if any(service.certificate is None for service in served):
        return None
    return sum(service.certificate.bound for service in served if service.certificate)


NO_CERTIFICATE: plan_figures.Document = {"bound": None, "gap": None, "solver": None, "cut_short": None}


def _service(service: ServicePlan, *, timings: bool) -> plan_figures.Document:  # passed on from `document`
    certificate = service.certificate
    return {
        "name": service.service,
        "instances": plan_figures.named(service.instances),
        "cost_per_hour": plan_figures.figure(service.cost_per_hour),
        **(_certificate(certificate, timings=timings) if certificate else NO_CERTIFICATE),
        "routing": list(plan_figures.routes(service)),
        "notes": plan_figures.plain(service.notes),
        "refusal": plan_figures.plain(service.refusal),
    }


def _certificate(certificate: Certificate, *, timings: bool) -> plan_figures.Document:
    made: plan_figures.Document = {
        "bound": plan_figures.figure(certificate.bound),
        "gap": plan_figures.figure(certificate.gap),
        "solver": certificate.solver,
        "cut_short": certificate.cut_short or None,
    }
    return made | ({"seconds": plan_figures.figure(certificate.seconds)} if timings else {})


def _action(action: Action, reason: Reason) -> plan_figures.Document:
    values = {name: plan_figures.plain(value) for name, value in action.values().items()}
    return values | {"reason": plan_figures.plain(reason)}


def tables(made: Planned, *, timings: bool = False) -> Iterator[str]:
    """Tables for people: services, actions on pods, unplaced workloads, and a summary line."""
    plan, data = made.plan, document(made, timings=timings)
    if plan.services:
        columns = ("SERVICE", "INSTANCES", "$/HOUR", "BOUND", "GAP", "SOLVER", *(("SECONDS",) if timings else ()))
        yield table(columns, [_service_row(each, timings=timings) for each in data["services"]])
        if refused := [each for each in data["services"] if each["refusal"]]:
            # Words of a refusal begin with the service's name, which has its own column.
            words = ((each["name"], each["refusal"]["words"].removeprefix(f"{each['name']}: ")) for each in refused)
            yield table(("NOT SERVED", "WHY"), words)
    # One table for each kind of action that no other table shows; a reason that all rows share is said once, where it
    # is the same up to what the devices cost.
    steps = list(plan.steps())
    for kind in dict.fromkeys((*ACTIONS, *(type(step.action) for step in steps))):
        said = ((s.action.cells, s.reason) for s in steps if type(s.action) is kind)
        rows = [(*cells, why.words.partition(", ")[0] if why.code == "LeastCost" else why.words) for cells, why in said]
        if rows and kind.columns:
            reasons = {row[-1] for row in rows}
            if len(rows) > 1 and len(reasons) == 1:
                shared = f"all for the same reason: {reasons.pop()}\n"
                yield table(kind.columns, (row[:-1] for row in rows)).rstrip("\n") + f"\n{shared}"
            else:
                yield table((*kind.columns, "WHY"), rows)
    if data["unplaced"]:
        yield table(("NOT PLACED", "WHY"), ((u["workload"], u["reason"]["words"]) for u in data["unplaced"]))
    if plan.refused:
        yield table(
            ("REFUSED", "WHY"),
            (
                (f"{type(each.step.action).__name__} {each.step.action.subject.partition('/')[2]}", each.reason.words)
                for each in plan.refused
            ),
        )
    if plan.findings:
        yield table(("FOUND", "WHAT"), ((each.about, each.reason.words) for each in plan.findings))
    parts = [f"{len(data['placements'])} pods placed", f"{len(data['unplaced'])} workloads not placed"]
    if data["services"]:
        proven = "no bound" if data["bound"] is None else f"at least {plan_figures.money(data['bound'])} is proven"
        parts.append(f"services cost ${plan_figures.money(data['cost_per_hour'])} per hour ({proven})")
    yield "; ".join(parts) + "."


def _service_row(service: plan_figures.Document, *, timings: bool) -> Row:
    refusal, seconds = service["refusal"], service.get("seconds")
    return (
        service["name"],
        "-" if refusal else plan_figures.instances(service["instances"]),
        "-" if refusal else plan_figures.money(service["cost_per_hour"]),
        plan_figures.money(service["bound"]),
        "-" if service["gap"] is None else f"{service['gap']:.2%}",
        service["solver"] or "-",
        *(("-" if seconds is None else f"{seconds:.3f}",) if timings else ()),
    )


def cut_short_notes(plan: Plan, deadline_s: float) -> Iterator[str]:
    """Notes about search that was cut short, each with the remedy."""
    more = f"--deadline {2 * deadline_s:g}"
    for service in sorted(plan.services, key=lambda each: each.service):
        proof = service.certificate
        if proof is not None and proof.cut_short and (gap := plan_figures.gap_words(proof.gap)):
            by_time = " by time" if proof.cut_short == "time" else ""
            yield f"{service.service}: cut short{by_time} ({gap}); {more} allows more work"
    waiting = sum(each.reason.code == "WorkUsedUp" for each in plan.unplaced)
    if waiting:
        yield f"{waiting} workloads were not tried; {more} allows more work"
    for reason in plan.cut_short:
        yield f"{reason.words}: another run may give another plan; {more} allows more time"
