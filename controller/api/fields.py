"""Field types that the kinds share, and base classes that set how strictly an object is read."""

from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel

from controller.api import notation as q
from controller.api.notation import instant, rfc3339
from controller.api.rule import Rule

Item = TypeVar("Item")


class Strict(BaseModel):
    """Part of one of Tonnage's kinds: camelCase names, no unknown fields, no silent change of type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class Loose(BaseModel):
    """Part of a core/v1 object: the fields that placement reads. All others are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, alias_generator=to_camel)


class StatusPart(Loose):
    """Part of a status that Tonnage writes: created with Python's field names, read back with the object's.

    Fields added by a later version are ignored, so that an older standby can take over.
    """

    model_config = ConfigDict(populate_by_name=True)

    def plain(self) -> dict[str, Any]:
        """JSON form in the object: camelCase names, unset fields and empty maps and lists left out.

        Server-side apply of an empty one over one with keys leaves null, which the CRD refuses.
        """
        return _without_empty(self.model_dump(mode="json", by_alias=True, exclude_none=True))


def _without_empty(plain: dict[str, Any]) -> dict[str, Any]:
    inner = {key: _without_empty(value) if isinstance(value, dict) else value for key, value in plain.items()}
    return {key: value for key, value in inner.items() if value not in ({}, [])}


class Open(BaseModel):
    """Part of core/v1 that is passed on unread, except for the fields declared here."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, alias_generator=to_camel)


ListOf = Annotated[tuple[Item, ...], Field(strict=False)]
"""A list in the manifest, an immutable tuple here. Server-side apply replaces it as a whole."""


def as_set() -> Any:
    """Field settings for a list of unique entries: several appliers may each add their own. Duplicates are refused."""
    return Field(json_schema_extra={"x-kubernetes-list-type": "set"})


def keyed_by(*keys: str) -> Any:
    """Field settings for a list of objects with these key fields: several appliers may each own some of them."""
    return Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


def _exact_quantity(written: object) -> Decimal:
    """Quantity as the API server reads it in Tonnage's kinds: decimal fractions in quotes, no surrounding spaces."""
    if isinstance(written, float):
        raise ValueError(f'should be text or a whole number, not {written}; put it in quotes: "{written}"')
    value = q.quantity(written)
    if isinstance(written, str) and (written != written.strip() or len(written) > LONGEST_QUANTITY):
        raise ValueError(f"should be a quantity like 500m, 1.5 or 16Gi, not {written!r}")
    return value


def _positive_quantity(written: object) -> Decimal:
    value = _exact_quantity(written)
    if value == 0:
        raise ValueError(f"should be above zero, not {written!r}")
    return value


LONGEST_QUANTITY = 64


def _quantity_schema(sign: str, words: str) -> WithJsonSchema:
    rule = Rule(
        (),
        f"isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) {sign} 0 && "
        f"!quantity(string(self)).isGreaterThan(quantity('{q.LARGEST}'))",
        f"should be a quantity {words} and not too large, like 500m, 1.5 or 16Gi",
    )
    return WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": q.QUANTITY_PATTERN,
            "maxLength": LONGEST_QUANTITY,
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [rule.schema],
        }
    )


QuantityFromZero = Annotated[
    Decimal,
    PlainValidator(_exact_quantity),
    PlainSerializer(str, return_type=str),
    _quantity_schema(">=", "from zero"),
]
PositiveQuantity = Annotated[
    Decimal,
    PlainValidator(_positive_quantity),
    PlainSerializer(str, return_type=str),
    _quantity_schema(">", "above zero"),
]

_LONGER_THAN_ZERO = Rule(
    (),
    f"self.matches(r'{q.DURATION_PATTERN}') && duration(self) > duration('0s')",
    "should be a duration above zero with its unit, like 40ms or 30s",
)

Duration = Annotated[
    float,
    PlainValidator(q.seconds),
    PlainSerializer(q.duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": q.DURATION_PATTERN,
            "maxLength": q.LONGEST_DURATION,
            "x-kubernetes-validations": [_LONGER_THAN_ZERO.schema],
        }
    ),
]
"""Duration: seconds here, `40ms` in the manifest."""

Instant = Annotated[
    float,
    PlainValidator(instant),
    PlainSerializer(rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Timestamp: seconds since the epoch here, `2026-03-01T12:00:00Z` in the object."""


def _finite(written: object) -> object:
    """The number; refuses NaN and infinity here, because the bounds would refuse NaN with a confusing message."""
    if isinstance(written, float) and written - written != 0:
        raise ValueError(f"should be a finite number, not {written}")
    return written


MOST = 1e9
"""Upper bound of prices and rates: anything larger would swamp every sum it is part of."""

PositiveNumber = Annotated[float, Field(gt=0, le=MOST), BeforeValidator(_finite)]
NumberFromZero = Annotated[float, Field(ge=0, le=MOST), BeforeValidator(_finite)]

Fraction = Annotated[float, Field(ge=0, le=1)]
Priority = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=NAME_PATTERN)]
"""Object name that the API server accepts for Tonnage's kinds (RFC 1123 subdomain)."""

LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_PATTERN)]

LABEL_VALUE_PATTERN = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LabelValue = Annotated[str, Field(min_length=1, max_length=63, pattern=LABEL_VALUE_PATTERN)]

DNS_LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL_PATTERN)]


ApiVersion = Literal["tonnage.dev/v1alpha1"]


class ObjectMeta(Loose):
    """metadata of a core/v1 object; base class for Tonnage's kinds, whose names follow stricter rules."""

    name: str = Field(min_length=1, max_length=253)
    namespace: str = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: str | None = None


class OwnMeta(ObjectMeta):
    """metadata of one of Tonnage's kinds."""

    name: ObjectName = Field(description="Name of the object, lower case, unique within its kind (and namespace).")


class OwnKind(Strict):
    """Object of one of Tonnage's kinds, which adds its kind, spec and status."""

    api_version: ApiVersion
    kind: str
    metadata: OwnMeta
