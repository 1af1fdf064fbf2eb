"""The types of fields that our kinds share, and how strict each sort of object is read."""

from decimal import Decimal
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel

from controller.api import quantity as q

Item = TypeVar("Item")


class Strict(BaseModel):
    """Part of a kind of ours: camelCase names, no unknown fields, no silent change of type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class Loose(BaseModel):
    """Part of a core/v1 object: what placement reads of it; all the rest is left alone."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, alias_generator=to_camel)


ListOf = Annotated[tuple[Item, ...], Field(strict=False)]
"""A list in the manifest, a tuple here, so that nobody writes to it."""

Quantity = Annotated[
    Decimal,
    PlainValidator(q.quantity),
    PlainSerializer(str, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": q.QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]

Duration = Annotated[
    float,
    PlainValidator(q.seconds),
    PlainSerializer(q.duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": q.DURATION_PATTERN}),
]
"""Seconds here, `40ms` in the manifest."""


def _finite(written: object) -> object:
    """NaN passes `minimum` in no direction that a reader expects, so it is named before any bound is looked at."""
    if isinstance(written, float) and written - written != 0:
        raise ValueError(f"should be a finite number, not {written}")
    return written


MOST = 1e9
"""No price and no rate is larger; what is, would drown everything that it is added to."""

PositiveNumber = Annotated[float, Field(gt=0, le=MOST), BeforeValidator(_finite)]
NumberFromZero = Annotated[float, Field(ge=0, le=MOST), BeforeValidator(_finite)]

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LABEL_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=NAME_PATTERN)]
"""A name that the API server takes for an object of ours (RFC 1123 subdomain)."""

LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_PATTERN)]
