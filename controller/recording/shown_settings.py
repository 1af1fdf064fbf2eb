"""Settings in a bundle: without what leads to a secret, and read back leniently, for another version wrote them."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from cluster.errors import ConfigError, Mistake
from controller.settings import GivenSettings, OperatorSettings

LEFT_OUT = (
    ("kubeconfig",),
    ("context",),
    ("brain", "address"),
    ("brain", "token_file"),
    ("power", "keys"),
    ("power", "tls"),
)
"""Where credentials lie, and who is spoken to. The settings hold no secret itself; no plan depends on these."""
UNKNOWN = "extra_forbidden"
"""pydantic's word for a field that a model does not have."""


def shown(settings: OperatorSettings) -> dict[str, Any]:
    """The settings as a bundle has them."""
    document = settings.model_dump(mode="json")
    for path in LEFT_OUT:
        _remove(document, path)
    return document


def settings_from(document: Mapping[str, Any]) -> tuple[OperatorSettings, tuple[str, ...]]:
    """The settings of a bundle, whatever this process's environment is, and those that this version does not know.

    Raises ConfigError where one that it knows has a value that it does not take.
    """
    left = _copied(document)
    try:
        return GivenSettings(**left), ()
    except ValidationError as error:
        unknown = [each["loc"] for each in error.errors() if each["type"] == UNKNOWN]
    for path in unknown:
        _remove(left, path)
    try:
        return GivenSettings(**left), tuple(".".join(map(str, path)) for path in unknown)
    except ValidationError as error:
        raise ConfigError(tuple(_mistakes(error))) from error


def _mistakes(error: ValidationError) -> Iterator[Mistake]:
    for each in error.errors():
        yield Mistake(f"settings of the bundle, {'.'.join(map(str, each['loc']))}", each["msg"])


def _remove(document: dict[str, Any], path: tuple[Any, ...]) -> None:
    *above, last = path
    for part in above:
        document = document[part]
    document.pop(last, None)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
