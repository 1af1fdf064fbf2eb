"""`tonnage profile`: ModelProfiles from a roofline, from results of benchmarks, or from an endpoint."""

import csv
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.inputs.options import Option, adding, files_option, output_choice, setting
from cluster.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from placement.roofline import Chip, ModelCard, Observed

Object = dict[str, Any]


@click.group()
def profile() -> None:
    """Make ModelProfiles: what an instance of a model sustains on each GPU type."""


def _multiple(words: str, default: Sequence[Any], kind: Any, text: str) -> Option:
    return click.option(*words.split(), multiple=True, type=kind, default=default, show_default=True, help=text)


roofline_options = adding(
    click.argument("source", metavar="MODEL"),
    files_option("GPUTypes to estimate for; may be repeated. [default: --gpu]"),
    _multiple("--gpu gpu_names", ("l4", "a10g", "a100-80", "h100"), str, "Entry of the catalogue; may be repeated."),
    _multiple("--gpus widths", (1, 2, 4, 8), click.IntRange(1, 16), "GPUs of an instance (tensor parallelism)."),
    click.option("--prices", type=click.Path(path_type=Path), metavar="FILE", help="Catalogue of GPUs to use instead."),
    click.option("--precision", type=click.Choice(["bf16", "fp16", "fp8", "int8", "int4", "mxfp4"]),
                 help="Precision of the weights. [default: the model's]"),
    setting("--engine", "vllm", "eager: without captured graphs.", click.Choice(["vllm", "eager"])),
    setting("--context", 16384, "Longest prompt and answer together, tokens.", click.IntRange(128)),
    click.option("--model", "model", metavar="NAME", help="spec.model of the profiles. [default: the file's folder]"),
    _multiple("--tpot tpots", ("40ms", "120ms"), str, "SLO on the time per output token; may be repeated."),
    output_choice("yaml", "table"),
)  # fmt: skip


@profile.command(epilog="tonnage profile estimate ./Llama-3.1-8B/config.json -f gpu-types.yaml > profiles.yaml")
@roofline_options
def estimate(**given: Any) -> None:
    """Estimate the profiles of a model that nobody has measured, from data sheets.

    MODEL is a Hugging Face config.json or its folder, or a number of parameters such as 8b (a usual dense model of that
    size). Widths whose memory does not hold the weights are left out. The profiles say that they are estimated, and
    with which error; they serve at once, until you measure.
    """
    _write(given, ())


@profile.command(epilog="tonnage profile refine config.json -f gpu-types.yaml --observed requests.csv > profiles.yaml")
@roofline_options
@click.option("--observed", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Requests that were served: CSV or JSON lines of inputTokens, outputTokens, inFlight, tpotMs, and "
              "ttftMs, gpuType, gpus where known.")  # fmt: skip
def refine(observed: Path, **given: Any) -> None:
    """Estimate, and correct the estimate per bucket by observed requests; the profiles state the error that remains."""
    _write(given, _observed(observed))


@profile.command("import", epilog="tonnage profile import --model small-8b --gpu-type h100 results/*.json")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", required=True, metavar="NAME", help="spec.model of the profile.")
@click.option("--gpu-type", required=True, metavar="NAME", help="GPUType that was measured.")
@click.option("--gpus", type=click.IntRange(1, 16), help="GPUs of the instance. [default: the file's, else 1]")
@_multiple("--tpot tpots", ("40ms", "120ms"), str, "SLO on the time per output token; may be repeated.")
def import_(files: tuple[Path, ...], model: str, gpu_type: str, gpus: int | None, tpots: tuple[str, ...]) -> None:
    """Make a profile of results of vllm bench serve, GuideLLM, AIPerf or AIConfigurator."""
    from cli.inputs.benchmark_results import profile_of, read_results

    runs = [run for path in files for run in read_results(path)]
    by_width: dict[int, list[Any]] = {}
    for run in runs:
        by_width.setdefault(gpus or run.gpus or 1, []).append(run)
    _echo(profile_of(_name(model, gpu_type, n), model, gpu_type, n, own, _slos(tpots)) for n, own in by_width.items())


@profile.command(epilog="tonnage profile measure http://localhost:8000/v1 --model small-8b --gpu-type h100")
@click.argument("url")
@click.option("--model", required=True, metavar="NAME", help="Model to ask for, and spec.model of the profile.")
@click.option("--gpu-type", required=True, metavar="NAME", help="GPUType of the endpoint's one instance.")
@setting("--gpus", 1, "GPUs of that instance.", click.IntRange(1, 16))
@_multiple("--input inputs", (128, 512, 2048), click.IntRange(1), "Tokens of a prompt; may be repeated.")
@_multiple("--output outputs", (64, 256), click.IntRange(2), "Tokens of an answer; may be repeated.")
@_multiple("--in-flight in_flight", (1, 4, 16, 64, 128), click.IntRange(1), "Requests at a time; may be repeated.")
@_multiple("--tpot tpots", ("40ms", "120ms"), str, "SLO on the time per output token; may be repeated.")
def measure(
    url: str,
    model: str,
    gpu_type: str,
    gpus: int,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    in_flight: tuple[int, ...],
    tpots: tuple[str, ...],
) -> None:
    """Measure one instance behind an endpoint of OpenAI's protocol over a grid of lengths and requests in flight.

    The key of the endpoint is read from OPENAI_API_KEY.
    """
    from cli.inputs.benchmark_results import profile_of
    from cli.inputs.endpoint import Endpoint, measured

    endpoint = Endpoint(url.rstrip("/"), model, os.environ.get("OPENAI_API_KEY", ""))
    buckets = [(i, j) for i in sorted(inputs) for j in sorted(outputs)]
    runs = []
    for run in measured(endpoint, buckets, sorted(in_flight), max(_slos(tpots))):
        runs.append(run)
        click.echo(
            f"{run.input_tokens:.0f} + {run.output_tokens:.0f} tokens, {run.in_flight:.0f} in flight: "
            f"{run.requests_per_s:.3g} requests/s, first token {run.ttft_s * 1000:.0f} ms, "
            f"{run.tpot_s * 1000:.1f} ms per token", err=True,
        )  # fmt: skip
    _echo([profile_of(_name(model, gpu_type, gpus), model, gpu_type, gpus, runs, _slos(tpots))])


def _write(given: Object, observed: "Sequence[tuple[str, int, Observed]]") -> None:
    """Profiles of a model on every GPU type and width that holds it, or their figures as a table."""
    from placement import roofline

    model, card = _card(given["source"], given["precision"])
    model, engine = given["model"] or model, roofline.ENGINES[given["engine"]]
    made = list[Object]()
    rows = list[tuple[str, ...]]()
    for gpu_type, chip in _chips(given):
        for gpus in sorted(set(given["widths"])):
            if roofline.cache_tokens(card, chip, engine, gpus) < given["context"]:
                continue
            seen = [o for on, width, o in observed if on in ("", gpu_type) and width in (0, gpus)]
            grid = roofline.grid_up_to(given["context"])
            scale = roofline.refined(card, chip, engine, gpus, grid, seen)
            tables = {slo: roofline.sustained(card, chip, engine, gpus, grid, slo, scale)
                      for slo in _slos(given["tpots"])}  # fmt: skip
            tables = {slo: each for slo, each in tables.items() if each.requests_per_s.any()}
            first = roofline.prefill_s(card, chip, engine, gpus, grid.input_tokens) * math.exp(scale.prefill)
            if tables:
                made.append(_manifest(model, gpu_type, gpus, card, grid, tables, first))
                spec = made[-1]["spec"]
                spec["cacheTokens"] = int(roofline.cache_tokens(card, chip, engine, gpus))
                spec["origin"] = "refined" if seen else "estimated"
                spec["error"] = round(engine.error_share if scale.error_share is None else scale.error_share, 3)
                rows += _figures(gpu_type, gpus, grid, tables, first, spec)
    if not made:
        raise ConfigError(Mistake(given["source"], "fits on none of these GPUs within these SLOs",
                                  "name larger GPUs, more --gpus, a smaller --context or a looser --tpot"))  # fmt: skip
    if given["output"] == "table":
        from cli.printing.columns import columns

        heads = ("GPU TYPE", "GPUS", "SLO", "INPUT", "OUTPUT", "IN FLIGHT", "REQ/S", "TTFT", "TPOT", "WATTS", "CACHE")
        click.echo(columns(heads, rows), nl=False)
    else:
        _echo(made)


def _manifest(model: str, gpu_type: str, gpus: int, card: "ModelCard", grid: Any, tables: Any, first: Any) -> Object:
    def table(slo: float, each: Any) -> Object:
        fits = each.requests_per_s > 0
        return {
            "slo": {"tpot": f"{slo * 1000:.9g}ms"},
            "requestsPerSecond": [[float(f"{x:.4g}") for x in row] for row in each.requests_per_s],
            "decodedPerSecond": [[float(f"{x:.4g}") for x in row] for row in each.decoded_per_s],
            "watts": round(float(each.watts[fits].mean())),
        }

    spec = {
        "model": model,
        "gpuType": gpu_type,
        "gpusPerInstance": gpus,
        "grid": {"inputTokens": list(grid.input_tokens), "outputTokens": list(grid.output_tokens)},
        "throughput": [table(slo, each) for slo, each in tables.items()],
        "prefill": [f"{seconds * 1000:.4g}ms" for seconds in first],
        "cacheBytesPerToken": float(f"{float(card.cache_bytes(8192.0)) / 8192:.6g}"),
    }
    name = _name(model, gpu_type, gpus)
    return {"apiVersion": "tonnage.dev/v1alpha1", "kind": "ModelProfile", "metadata": {"name": name}, "spec": spec}


def _figures(gpu_type: str, gpus: int, grid: Any, tables: Any, first: Any, spec: Object) -> Iterator[tuple[str, ...]]:
    for slo, each in tables.items():
        for i, inputs in enumerate(grid.input_tokens):
            for j, outputs in enumerate(grid.output_tokens):
                yield (
                    gpu_type, str(gpus), f"{slo * 1000:g}ms", str(inputs), str(outputs), f"{each.in_flight[i, j]:.0f}",
                    f"{each.requests_per_s[i, j]:.3g}", f"{first[i] * 1000:.3g}ms",
                    f"{each.tpot_s[i, j] * 1000:.3g}ms", f"{each.watts[i, j]:.0f}", f"{spec['cacheTokens']} tokens",
                )  # fmt: skip


def _card(source: str, precision: str | None) -> "tuple[str, ModelCard]":
    """Name and card of a model."""
    from dataclasses import replace

    from placement.roofline import card_from, usual_card

    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if path.is_file():
        try:
            card = card_from(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, OSError, AttributeError) as error:
            raise ConfigError(Mistake(str(path), f"is no model's configuration: {error}")) from error
        name = path.resolve().parent.name if path.name == "config.json" else path.stem
    else:
        number, unit = source[:-1], source[-1:].lower()
        try:
            card = usual_card(float(number) * {"b": 1e9, "m": 1e6}[unit])
        except (KeyError, ValueError) as error:
            words = "is no file and no number of parameters"
            raise ConfigError(Mistake(source, words, "give a config.json, its folder, or a number like 8b")) from error
        name = f"model-{source.lower()}"
    return name, replace(card, precision=precision, expert_precision="") if precision else card


def _chips(given: Object) -> "Iterator[tuple[str, Chip]]":
    """GPU types with their data sheets: of files, else of the catalogue."""
    from controller.objects.catalogue import read_catalogue

    catalogue = read_catalogue(given["prices"])
    if not given["files"]:
        for name in given["gpu_names"]:
            chip = catalogue.chip(name)
            if chip is None:
                known = ", ".join(sorted(catalogue.sheets))
                raise ConfigError(Mistake(f"--gpu {name}", "the catalogue has no data sheet of it", f"known: {known}"))
            yield name, chip
        return
    from controller.objects.manifests import read_manifests

    for read in read_manifests(given["files"]).gpu_types:
        found = catalogue.chip_of(read.object)
        if found is not None:
            yield read.object.metadata.name, found
        else:
            click.echo(f"note: {read.object.metadata.name}: the catalogue has no data sheet of it; left out", err=True)


def _observed(path: Path) -> "list[tuple[str, int, Observed]]":
    """Observed requests with their GPU type and GPUs, "" and 0 where these are not given."""
    from placement.roofline import Observed

    found = []
    text = path.read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines()) if path.suffix == ".csv" else map(json.loads, text.splitlines())
    for number, row in enumerate(rows, start=2 if path.suffix == ".csv" else 1):
        try:
            first = float(row["ttftMs"]) / 1000 if row.get("ttftMs") else None
            inputs, outputs, in_flight = (float(row[key]) for key in ("inputTokens", "outputTokens", "inFlight"))
            each = Observed(inputs, outputs, in_flight, float(row["tpotMs"]) / 1000, first)
        except (KeyError, ValueError, TypeError) as error:
            words = f"is missing or no number: {error}"
            raise ConfigError(Mistake(f"{path}, line {number}", words)) from error
        if each.tpot_s > 0 and each.output_tokens > 1:
            found.append((str(row.get("gpuType") or ""), int(row.get("gpus") or 0), each))
    if not found:
        raise ConfigError(Mistake(str(path), "has no request with more than one output token"))
    return found


def _slos(tpots: Sequence[str]) -> list[float]:
    from controller.api.notation import seconds

    try:
        return sorted({seconds(each) for each in tpots})
    except ValueError as error:
        raise ConfigError(Mistake("--tpot", str(error))) from error


def _name(model: str, gpu_type: str, gpus: int) -> str:
    safe = "".join(c if c.isalnum() or c == "-" else "-" for c in model.lower()).strip("-")
    return f"{safe}-{gpu_type}{f'x{gpus}' if gpus != 1 else ''}"


def _echo(objects: Any) -> None:
    import yaml

    text = yaml.safe_dump_all(objects, sort_keys=False, width=120, default_flow_style=None, explicit_start=True)
    click.echo(text, nl=False)
