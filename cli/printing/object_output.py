"""`-o`: output formats for objects of the cluster, the same as kubectl's."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from cli.inputs.options import output_choice
from cli.printing.columns import columns

FORMATS = ("table", "wide", "json", "yaml", "name")
TABLES = ("table", "wide")
Object = dict[str, Any]


output_option = output_choice(*FORMATS, words="json is stable between versions.")


def as_list(objects: Sequence[Object]) -> Object:
    """Several objects as one List, as kubectl prints them."""
    return {"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {"resourceVersion": ""}}


def without_managed_fields(obj: Object) -> Object:
    """Object without metadata.managedFields, which is long and rarely needed; kubectl omits it too."""
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def text_of(obj: Object, output: str) -> str:
    """Text of an object or a List as `json` or `yaml`."""
    return go_json(obj) + "\n" if output == "json" else yaml_text(obj)


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
