"""Parameter types that many methods share. Each is bounded.

Lists stay lists: a method validates JSON that is already parsed, strictly.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

MAX_INT = 2**53 - 1  # the largest integer that JavaScript represents exactly

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=512)]
Names: TypeAlias = Annotated[list[Name], Field(max_length=64)]
MessageText: TypeAlias = Annotated[str, Field(min_length=1, max_length=100_000)]
# Ids chosen by clients; they appear in events, logs and caches.
Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-~]+$")]
Seconds: TypeAlias = Annotated[int, Field(ge=0, le=MAX_INT)]
Ms: TypeAlias = Annotated[int, Field(ge=0, le=MAX_INT)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=MAX_INT)]
Label: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
Day: TypeAlias = Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
