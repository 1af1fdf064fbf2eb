"""Settings in a bundle: without references to secrets, and read leniently, because another version may have written
them."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cluster.errors import ConfigError
from cluster.field_errors import setting_mistakes
from controller.settings import GivenSettings, OperatorSettings

LEFT_OUT = (
    ("kubeconfig",),
    ("context",),
    ("brain", "address"),
    ("brain", "token_file"),
    ("power", "keys"),
    ("power", "tls"),
)
"""Paths of credentials and addresses of peers. No setting is itself a secret; no plan depends on these."""
UNKNOWN = "extra_forbidden"
"""pydantic's error type for an unknown field."""


def shown(settings: OperatorSettings) -> dict[str, Any]:
    """Settings in the form that a bundle contains."""
    document = settings.model_dump(mode="json")
    for path in LEFT_OUT:
        _remove(document, path)
    return document


def settings_from(document: Mapping[str, Any]) -> tuple[OperatorSettings, tuple[str, ...]]:
    """Settings of a bundle, independent of this process's environment, and the names that this version does not know.

    Raises ConfigError if a known setting has an invalid value.
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
        raise ConfigError(tuple(setting_mistakes(error, "settings of the bundle", OperatorSettings))) from error


def _remove(document: dict[str, Any], path: tuple[Any, ...]) -> None:
    *above, last = path
    for part in above:
        document = document[part]
    document.pop(last, None)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
