"""`-o`: output formats for objects of the cluster, the same as kubectl's."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from cli.printing.columns import columns
from cluster.errors import ConfigError, Mistake

FORMATS = ("table", "wide", "json", "yaml", "name")
JSONPATH = "jsonpath="

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Output:
    format: str = "table"
    """One of FORMATS, or `jsonpath`."""
    template: str = ""
    """Template of jsonpath."""

    @property
    def is_table(self) -> bool:
        return self.format in ("table", "wide")


def output_from(value: str | Output) -> Output:
    """Output that the value of `-o` names. Raises click.BadParameter."""
    if isinstance(value, Output):
        return value
    if value.startswith(JSONPATH):
        return Output("jsonpath", value.removeprefix(JSONPATH))
    if value not in FORMATS:
        known = f"{', '.join(FORMATS)} and {JSONPATH}TEMPLATE"
        hint = "'-o' / '--output'"
        raise click.BadParameter(f"{value!r} is not one of {known}", param_hint=hint)
    return Output(value)


def complete_output(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Formats of `-o`."""
    return [name for name in (*FORMATS, JSONPATH) if name.startswith(incomplete)]


output_option = click.option(
    "-o",
    "--output",
    type=output_from,
    shell_complete=complete_output,
    default="table",
    metavar="FORMAT",
    help=f"{'|'.join(FORMATS)}|{JSONPATH}TEMPLATE. json is stable between versions. [default: table]",
)


def as_list(objects: Sequence[Object]) -> Object:
    """Several objects as one List, as kubectl prints them."""
    return {"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {"resourceVersion": ""}}


def without_managed_fields(obj: Object) -> Object:
    """Object without metadata.managedFields, which is long and rarely needed; kubectl omits it too."""
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def text_of(obj: Object, output: Output) -> str:
    """Text of an object or a List in a format other than a table. Raises ConfigError."""
    match output.format:
        case "json":
            return go_json(obj) + "\n"
        case "yaml":
            return yaml_text(obj)
        case "jsonpath":
            from cli.printing.fields import jsonpath

            return jsonpath(output.template)(obj)
        case _:
            raise ConfigError(Mistake(f"-o {output.format}", "is not supported here", "use it with get"))


def show_rows(output: str, data: object, headers: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> None:
    """Print data as `json`, otherwise rows in columns; where there are none, `nothing` on standard error."""
    if output == "json":
        click.echo(json.dumps(data, indent=2))
    elif text := columns(headers, rows):
        click.echo(text, nl=False)
    else:
        click.echo(nothing, err=True)


def yaml_text(obj: Object) -> str:
    import yaml

    return str(yaml.safe_dump(obj, sort_keys=True, allow_unicode=True, width=10_000))


def go_json(obj: Object) -> str:
    """JSON as Go's encoder writes it: sorted keys, and characters with a meaning in HTML escaped."""
    text = json.dumps(obj, indent=4, sort_keys=True, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
