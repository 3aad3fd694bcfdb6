"""The port through which a tool has models describe pictures, and its values."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image


@dataclass(frozen=True, slots=True)
class ImageQuestion:
    """Pictures and what is asked about them; `model` is the one that a call asks for, or ""."""

    images: tuple[Image, ...]
    prompt: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class ImageAttempt:
    """A model that was tried and failed."""

    provider: str
    model: str
    error: str


@dataclass(frozen=True, slots=True)
class ImageAnswer:
    """What a model says about pictures, and the models that failed before it."""

    text: str
    model: str
    attempts: tuple[ImageAttempt, ...] = ()


# Raises ToolError with every attempt when no model answers.
DescribeImages: TypeAlias = Callable[[ImageQuestion], Awaitable[ImageAnswer]]
