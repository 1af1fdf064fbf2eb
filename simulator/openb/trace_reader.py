"""Reader of the openb trace (Alibaba's cluster-trace-gpu-v2023) and similar files: a fleet and its pods as CSV."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cluster.arrays import Names, column
from cluster.errors import ConfigError, Mistake
from cluster.nodes import NodeTable
from cluster.snapshot import PodTable, Snapshot
from cluster.workloads import MAX_GPUS_PER_NODE, WHOLE_GPU_MILLI, GpuType, PodShape

MIB = 2**20
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
"""`gpu_spec` (GPU types the pod may use, separated by `|`) is optional. Other columns are ignored."""


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Readable rows of one file, each with its line number, and the mistakes found on the way."""

    name: str
    rows: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    def wrong(self, line: int, column_name: str, problem: str, remedy: str = "") -> None:
        self.mistakes.append(Mistake(f"{self.name}, line {line}, column {column_name}", problem, remedy))

    def number(self, line: int, row: Mapping[str, str], column_name: str, most: int | None = None) -> int | None:
        """Whole number, not negative and at most `most`; otherwise None, with a mistake recorded."""
        text = row[column_name].strip()
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not value.is_integer():
            self.wrong(line, column_name, f"{text!r} is not a whole number")
            return None
        if value < 0:
            self.wrong(line, column_name, f"{text} is negative")
            return None
        if most is not None and value > most:
            self.wrong(line, column_name, f"{text} is more than {most}")
            return None
        return int(value)


def read_trace(nodes: Path, pods: Path, prices: Mapping[str, float] | None = None) -> Snapshot:
    """Fleet with every pod of the trace pending.

    Nodes are sorted by name, so that "the first in the table" is the first by name, as in the published runs.
    prices: $/h of a GPU type; a type without a price costs 0. The trace has no GPU memory: 0 means unknown.
    Raises ConfigError with every mistake of both files: a missing column, a number that is negative or not whole,
    duplicate names, an empty fleet, a pod that requires a GPU type that no node has.
    """
    node_sheet, pod_sheet = _read(nodes, NODE_COLUMNS), _read(pods, POD_COLUMNS)
    rows = _nodes_from(node_sheet)
    known_types = {model for *_, gpus, model in rows if gpus} if rows else None
    asked = [(row["name"], _shape_from(pod_sheet, line, row, known_types)) for line, row in pod_sheet.rows]
    if mistakes := (*node_sheet.mistakes, *pod_sheet.mistakes):
        raise ConfigError(mistakes)
    return snapshot_of(sorted(rows), asked, prices or {})


NodeRow = tuple[str, int, int, int, str]
"""Name, thousandths of cores, bytes of memory, GPUs, and their type."""


def snapshot_of(
    nodes: Sequence[NodeRow], pods: Sequence[tuple[str, PodShape]], prices: Mapping[str, float]
) -> Snapshot:
    """Fleet of these nodes with all pods pending. prices: $/h of a GPU type; one without a price costs 0."""
    names, cpu, memory, gpus, models = zip(*nodes, strict=True)
    types = sorted({model for *_, count, model in nodes if count})
    shapes = {shape: number for number, shape in enumerate(dict.fromkeys(shape for _, shape in pods))}
    return Snapshot(
        at_s=0.0,
        gpu_types=tuple(GpuType(name, 0, prices.get(name, 0.0)) for name in types),
        nodes=NodeTable(
            names=Names(names),
            cpu_milli=column(cpu, np.int64),
            memory_bytes=column(memory, np.int64),
            gpus=column(gpus, np.int64),
            gpu_type=column((types.index(m) if n else -1 for n, m in zip(gpus, models, strict=True)), np.int64),
            schedulable=column([True] * len(nodes), np.bool_),
            labels=({},) * len(nodes),
            taints=((),) * len(nodes),
        ),
        pods=PodTable.waiting(
            (f"trace/{name}" for name, _ in pods),
            column((shapes[shape] for _, shape in pods), np.int64),
            tuple(shapes),
        ),
    )


def _read(path: Path, needed: tuple[str, ...]) -> _Sheet:
    sheet = _Sheet(path.name)
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            for name in missing:
                sheet.mistakes.append(Mistake(f"{sheet.name}, line 1, column {name}", "is missing", "add it"))
            if not missing:
                sheet.rows.extend(_whole_rows(sheet, reader, needed))
    except OSError as error:
        sheet.mistakes.append(Mistake(str(path), f"cannot be read ({error.strerror})", "check the path"))
    except UnicodeDecodeError:
        sheet.mistakes.append(Mistake(str(path), "is not a text file", "give a CSV file in UTF-8"))
    return sheet


def _whole_rows(
    sheet: _Sheet, reader: "csv.DictReader[str]", needed: tuple[str, ...]
) -> Iterator[tuple[int, Mapping[str, str]]]:
    seen: dict[str, int] = {}
    for row in reader:
        line = reader.line_num
        short = [name for name in needed if row[name] is None]
        for name in short:
            sheet.wrong(line, name, "is missing: the line is too short")
        name = row[needed[0]] or ""
        if not name:
            sheet.wrong(line, needed[0], "is empty", "give every line a name")
        elif name in seen:
            sheet.wrong(line, needed[0], f"{name!r} occurs twice (first on line {seen[name]})", "rename one of them")
        seen.setdefault(name, line)
        if not short:
            yield line, row


def _nodes_from(sheet: _Sheet) -> list[NodeRow]:
    made: list[NodeRow] = []
    for line, row in sheet.rows:
        gpus = sheet.number(line, row, "gpu", MAX_GPUS_PER_NODE) or 0
        model = row["model"].strip()
        if gpus and not model:
            sheet.wrong(line, "model", f"is empty, but the node has {gpus} GPUs", "name their type")
        cpu_milli, memory_mib = (sheet.number(line, row, name) or 0 for name in ("cpu_milli", "memory_mib"))
        made.append((row["sn"], cpu_milli, memory_mib * MIB, gpus, model))
    if not made and not sheet.mistakes:
        sheet.mistakes.append(Mistake(sheet.name, "the fleet is empty", "give at least one node"))
    return made


def _shape_from(sheet: _Sheet, line: int, row: Mapping[str, str], known_types: set[str] | None) -> PodShape:
    gpus = sheet.number(line, row, "num_gpu", MAX_GPUS_PER_NODE) or 0
    gpu_milli = sheet.number(line, row, "gpu_milli", WHOLE_GPU_MILLI)
    if gpus and gpu_milli == 0:
        sheet.wrong(line, "gpu_milli", f"is 0, but the pod requests {gpus} GPUs", "1000 is a whole GPU")
    wanted = tuple(sorted(filter(None, ((row.get("gpu_spec") or "").strip()).split("|"))))
    for unknown in [name for name in wanted if known_types is not None and name not in known_types]:
        sheet.wrong(line, "gpu_spec", f"no node has a GPU of type {unknown!r}", "correct it or add such nodes")
    return PodShape(
        cpu_milli=sheet.number(line, row, "cpu_milli") or 0,
        memory_bytes=(sheet.number(line, row, "memory_mib") or 0) * MIB,
        gpus=gpus,
        gpu_milli=(gpu_milli or 0) if gpus else 0,
        gpu_types=wanted,
    )


OPENB_PRICES: Mapping[str, float] = {
    "A10": 1.01,
    "G2": 1.01,
    "G3": 3.67,
    "P100": 1.46,
    "T4": 0.35,
    "V100M16": 2.48,
    "V100M32": 2.48,
}
"""Dollars per GPU and hour. The trace has no prices: these are public on-demand list prices of similar devices in
2023-2024, rounded. They are for one GPU without its share of a machine where a cloud lists that (T4, P100, V100),
else for the cheapest one-GPU instance (A10). The trace does not name G2 and G3; they have the price of an A10 and
of an A100 of 80 GB, which is an assumption. Use --prices for other prices."""

OPENB_PRICES_SOURCE = "illustrative list prices; G2 and G3 are hidden names, priced as A10 and A100"
