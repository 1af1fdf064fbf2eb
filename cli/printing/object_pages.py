"""Objects and events for people: the page of describe about one object, and rows of Events. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.printing.columns import UNKNOWN, columns, epoch_s, human_duration, since
from cli.printing.object_output import yaml_text
from cluster.workloads import InstanceType
from controller.api.labels import API_VERSION, CHOSEN_NODE_ANNOTATION, DEVICES_ANNOTATION, GPU_TYPE_LABEL
from controller.report.events import REPORTER

Event = dict[str, Any]

HEADERS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
OBJECT = HEADERS.index("OBJECT")


def is_ours(event: Event) -> bool:
    """Whether Tonnage reported the event, or its object is of one of Tonnage's kinds."""
    group = API_VERSION.partition("/")[0]
    about = str(event.get("regarding", {}).get("apiVersion", ""))
    return event.get("reportingController") == REPORTER or about.startswith(f"{group}/")


def last_seen(event: Event) -> str | None:
    """Time of the last occurrence; equal events are stored as one series."""
    series = event.get("series") or {}
    instants = (
        series.get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((str(instant) for instant in instants if instant), None)


def in_order(events: Iterable[Event]) -> list[Event]:
    """Events, oldest first; at the same instant by name."""
    return sorted(events, key=lambda e: (epoch_s(last_seen(e)) or 0.0, e["metadata"]["name"]))


def row(event: Event, now_s: float, *, namespaces: bool = False) -> Sequence[str]:
    about = event.get("regarding", {})
    before = [str(about.get("namespace") or event["metadata"].get("namespace", ""))] if namespaces else []
    return (
        *before,
        _seen(event, now_s),
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{about.get('kind', '')}/{about.get('name', '')}",
        " ".join(str(event.get("note") or "").split()),
    )


def _seen(event: Event, now_s: float) -> str:
    """Age and, for a series, its count: `12s`, or `12s (x4 over 3m)`."""
    seen = since(last_seen(event), now_s)
    count = int((event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1)
    first_s = epoch_s(event.get("deprecatedFirstTimestamp") or event.get("eventTime"))
    if count < 2 or first_s is None or seen == UNKNOWN:
        return seen
    return f"{seen} (x{count} over {human_duration(now_s - first_s)})"


Object = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation with a copy of the whole object in one line; kubectl describe omits it too."""
NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Related:
    """Objects that a page shows besides its own."""

    events: tuple[Object, ...] = ()
    """Events about the object."""
    pods: tuple[Object, ...] = ()
    """Pods of the object: instances, gang members, or pods on the node."""
    pod_events: Mapping[str, Sequence[Object]] | None = None
    """Warning events of those pods, by pod name."""


def page(obj: Object, related: Related, now_s: float) -> str:
    """Text of the page, without empty sections. now_s: seconds since the epoch."""
    metadata = obj["metadata"]
    observed = (obj.get("status") or {}).get("observedGeneration")
    rows: list[tuple[str, str]] = [("Name", metadata["name"])]
    if metadata.get("namespace"):
        rows.append(("Namespace", metadata["namespace"]))
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != LAST_APPLIED}
    rows += _listed("Labels", metadata.get("labels") or {}) + _listed("Annotations", annotations)
    rows.append(("Kind", f"{obj['kind']} ({obj['apiVersion']})"))
    rows.append(
        ("Created", f"{metadata.get('creationTimestamp')} ({since(metadata.get('creationTimestamp'), now_s)} ago)")
    )
    if "generation" in metadata and obj["apiVersion"] == API_VERSION:
        seen = "not seen by Tonnage yet" if observed is None else f"Tonnage has seen {observed}"
        rows.append(("Generation", f"{metadata['generation']} ({seen})"))
    if metadata.get("deletionTimestamp"):
        held = ", ".join(metadata.get("finalizers") or ()) or "nothing"
        rows.append(("Deleting", f"since {metadata['deletionTimestamp']}, held by {held}"))
    sections = [_pairs(rows), *_of_kind(obj), *_placements(related)]
    conditions = [
        (
            str(each["type"]),
            str(each["status"]),
            str(each.get("reason") or "-"),
            since(each.get("lastTransitionTime"), now_s),
            " ".join(str(each.get("message") or "").split()),
        )
        for each in (obj.get("status") or {}).get("conditions") or ()
    ]
    sections.append(_titled("Conditions", columns(("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), conditions)))
    events = ([cell for n, cell in enumerate(row(event, now_s)) if n != OBJECT] for event in in_order(related.events))
    headers = [name for n, name in enumerate(HEADERS) if n != OBJECT]
    sections.append(_titled("Events", columns(headers, events)) or f"Events:  {NONE}\n")
    return "".join(section for section in sections if section)


def _listed(name: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
    lines = [f"{key}={value}" for key, value in sorted(values.items())] or [NONE]
    return [(name if number == 0 else "", line) for number, line in enumerate(lines)]


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    width = max((len(name) for name, _ in rows), default=0) + 3
    return "".join(f"{(name + ':') if name else '':<{width}}{value}\n" for name, value in rows)


def _titled(title: str, text: str) -> str:
    return f"{title}:\n" + "".join(f"  {line}\n" for line in text.splitlines()) if text else ""


def _of_kind(obj: Object) -> Iterator[str]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    match obj["kind"]:
        case "ModelService":
            demand = spec.get("demand")
            demand = f"{demand['requestsPerSecond']:g} requests per second" if demand else "unknown (not measured)"
            yield _pairs(
                [
                    ("Model", spec["model"]),
                    ("SLO", ", ".join(f"{name} {value}" for name, value in sorted(spec["slo"].items()))),
                    ("Demand", demand),
                    ("GPU types", ", ".join(spec.get("gpuTypes") or ()) or "all that have a profile"),
                    ("Prices", "spot" if spec.get("spot") else "on demand"),
                    ("Cost", _cost(status)),
                ]
            )
            wanted, running = status.get("replicas") or status.get("mix") or {}, status.get("running") or {}
            rows = [(name, str(wanted.get(name, 0)), str(running.get(name, 0))) for name in sorted({*wanted, *running})]
            yield _titled("Mix", columns(("GPU TYPE", "WANTED", "RUNNING"), rows)) or "Mix:  not planned yet\n"
            yield _titled("Routing", by_length(obj) if status.get("routing") else "")
        case "Node":
            taints = [f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in spec.get("taints") or ()]
            has = status.get("allocatable") or {}
            yield _pairs(
                [
                    ("Schedulable", "no (cordoned)" if spec.get("unschedulable") else "yes"),
                    ("Taints", ", ".join(taints) or NONE),
                    ("Allocatable", ", ".join(f"{name} {amount}" for name, amount in sorted(has.items())) or NONE),
                ]
            )
        case "Pod":
            notes = obj["metadata"].get("annotations") or {}
            gates = ", ".join(gate["name"] for gate in spec.get("schedulingGates") or ())
            yield _pairs(
                [
                    ("Phase", status.get("phase", "Unknown")),
                    ("Node", spec.get("nodeName") or NONE),
                    ("Chosen node", notes.get(CHOSEN_NODE_ANNOTATION) or NONE),
                    ("Devices", notes.get(DEVICES_ANNOTATION) or NONE),
                    ("Scheduler", spec.get("schedulerName") or NONE),
                    ("Gates", gates or NONE),
                    ("Priority", str(spec.get("priority", 0))),
                ]
            )
        case _:
            yield _titled("Spec", yaml_text(spec))
            shown = {key: value for key, value in status.items() if key not in ("conditions", "observedGeneration")}
            yield _titled("Status", yaml_text(shown) if shown else "")


def _cost(status: Mapping[str, Any]) -> str:
    if "costPerHour" not in status:
        return "not planned yet"
    cost = f"${status['costPerHour']:,.2f} per hour"
    if status.get("boundPerHour") is None:
        return f"{cost}, without a proven lower bound"
    return f"{cost}; no mix costs less than ${status['boundPerHour']:,.2f} (gap {100 * status.get('gap', 0.0):.2f} %)"


def by_length(service: Object) -> str:
    """Fractions of the requests of each length, by instance type."""
    routing = service["status"]["routing"]
    asked = [
        (f"≤ {prompt}", f"≤ {answer}", shares)
        for i, prompt in enumerate(routing["inputTokens"])
        for j, answer in enumerate(routing["outputTokens"])
        if (shares := {type_of(w): float(w["share"][i][j]) for w in routing.get("weights", ()) if w["share"][i][j]})
    ]
    names = list(dict.fromkeys(name for *_, shares in asked for name in shares))
    cells = ([f"{100 * shares[name]:.4g}" if name in shares else "-" for name in names] for *_, shares in asked)
    rows = [(prompt, answer, *each) for (prompt, answer, _), each in zip(asked, cells, strict=True)]
    return columns(("INPUT TOKENS", "OUTPUT TOKENS", *(f"% TO {name}" for name in names)), rows)


def type_of(weights_: Object) -> str:
    """Name of the instance type of a table of weights."""
    width = int(weights_.get("gpusPerInstance", 1))
    phase = weights_.get("phase", "all").removeprefix("all")
    return InstanceType(weights_["gpuType"], width, weights_.get("capacityType") == "spot", phase).name


def _placements(related: Related) -> Iterator[str]:
    rows = [
        (
            pod["metadata"]["name"],
            pod["spec"]["nodeName"],
            (pod["metadata"].get("annotations") or {}).get(DEVICES_ANNOTATION) or "-",
            (pod["metadata"].get("labels") or {}).get(GPU_TYPE_LABEL) or "-",
            (pod.get("status") or {}).get("phase", "Unknown"),
        )
        for pod in related.pods
        if pod["spec"].get("nodeName")
    ]
    yield _titled("Placements", columns(("POD", "NODE", "DEVICES", "GPU TYPE", "PHASE"), rows))
    why = [
        (name := pod["metadata"]["name"], _why(pod, (related.pod_events or {}).get(name, ())))
        for pod in related.pods
        if not pod["spec"].get("nodeName")
    ]
    yield _titled("Not placed", columns(("POD", "WHY"), why))


def _why(pod: Object, events: Iterable[Object]) -> str:
    """Latest scheduling message of a pending pod."""
    warnings = [event for event in in_order(events) if event.get("type") == "Warning"]
    if warnings:
        last, note = warnings[-1], str(warnings[-1].get("note", ""))
        # Notes from Tonnage already begin with the reason's code.
        return note if last.get("reportingController") == REPORTER else f"{last.get('reason')}: {note}"
    if pod["spec"].get("schedulingGates"):
        return "waits for " + ", ".join(gate["name"] for gate in pod["spec"]["schedulingGates"])
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return f"{condition.get('reason', 'Unknown')}: {condition.get('message', '')}"
    return f"waits for {pod['spec'].get('schedulerName') or 'a scheduler'}"
