"""Parse the JSON responses of embedding services, with finite numbers only."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class ResponseModel(BaseModel):
    """A part of a response; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


P = TypeVar("P", bound=ResponseModel)


def parse_response(kind: type[P], data: bytes | str) -> P:
    """Parse a response. Raises ValueError, without quoting the response, when it does not fit."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        told = f"{where}: {first['msg']}" if where else str(first["msg"])
        raise ValueError(told) from None
