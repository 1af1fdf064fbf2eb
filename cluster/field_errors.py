"""Errors of fields that people write, in plain words: what pydantic says of a settings file or a manifest."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from cluster.errors import Mistake, meant

Path = tuple[str | int, ...]


def setting_mistakes(
    error: ValidationError, where: str, model: type[BaseModel], variables: Mapping[Path, str] | None = None
) -> Iterator[Mistake]:
    """The errors of a settings file, each once: a list whose item is wrong is not also too short.

    where: the file, or another origin of the settings. variables: those of the environment that are set, by the path of
    the setting that they override.
    """
    found = error.errors()
    for each in found:
        path = each["loc"]
        if any(other["loc"][: len(path)] == path for other in found if len(other["loc"]) > len(path)):
            continue
        origin = next((name for over, name in (variables or {}).items() if path[: len(over)] == over), where)
        place = ", ".join(filter(None, (origin, ".".join(map(str, path)))))
        match each["type"]:
            case "missing":
                field = fields_at(model, path[:-1]).get(str(path[-1]))
                yield Mistake(place, "is missing", field.description or "" if field else "")
            case "extra_forbidden":
                yield Mistake(place, "there is no such setting", meant(str(path[-1]), fields_at(model, path[:-1])))
            case _:
                yield Mistake(place, in_words(each))


def in_words(wrong: Mapping[str, Any]) -> str:
    """One of pydantic's errors as the end of a sentence that begins with the field."""
    message = wrong["msg"].partition(", unable to ")[0].removeprefix("Input ")
    message = message.replace("Tuple", "A list").replace("valid tuple", "list")
    found = "" if isinstance(wrong["input"], Mapping | list) else f", not {plain(wrong['input'])}"
    return f"{message[0].lower()}{message[1:]}{found}"


def plain(value: object) -> str:
    """A value as it stands in a file, shortened."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case _:
            text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def fields_at(model: type[BaseModel], path: Path) -> dict[str, FieldInfo]:
    """Known fields at this path, by their names in the file."""
    kind: Any = model
    for part in path:
        if isinstance(part, str) and isinstance(kind, type) and issubclass(kind, BaseModel):
            field = _by_name(kind).get(part)
            kind = field.annotation if field else None
        kind = model_in(kind)
    return _by_name(kind) if isinstance(kind, type) and issubclass(kind, BaseModel) else {}


def _by_name(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model X inside the annotations `X`, `X | None` and `tuple[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for argument in get_args(annotation) if (found := model_in(argument)) is not None), None)
