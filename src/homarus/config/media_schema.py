"""The section `tools.media` of the config: how the files of messages are described.

`gateway.http.endpoints.responses.files` has the limits for documents, as in OpenClaw.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Strict

from homarus.config.section import (
    ConfigSection,
    HostNames,
    NonEmptyStr,
    NonNegativeInt,
    PositiveInt,
    StrTuple,
)
from homarus.config.session_rule_schema import SendRule

MediaCapability: TypeAlias = Literal["image", "audio", "video"]


class MediaScopeConfig(ConfigSection):
    """The sessions whose files are described. A rule that denies wins over one that allows."""

    default: Literal["allow", "deny"] = "allow"
    rules: Annotated[tuple[SendRule, ...], Strict(strict=False)] = ()


class MediaAttachmentsConfig(ConfigSection):
    """Which files of a message are described: the first one, or all up to a number."""

    mode: Literal["first", "all"] = "first"
    max_attachments: PositiveInt | None = None
    prefer: Literal["first", "last", "path", "url"] = "first"


class MediaModelConfig(ConfigSection):
    """A model that describes files; the absent values are those of its kind of file.

    `profile` is the only credential that is used for it, `preferredProfile` the first.
    """

    provider: NonEmptyStr | None = None
    model: NonEmptyStr | None = None
    capabilities: Annotated[tuple[MediaCapability, ...], Strict(strict=False)] = ()
    type: Literal["provider", "cli"] = "provider"
    prompt: NonEmptyStr | None = None
    max_chars: PositiveInt | None = None
    max_bytes: PositiveInt | None = None
    timeout_seconds: PositiveInt | None = None
    base_url: NonEmptyStr | None = None
    profile: NonEmptyStr | None = None
    preferred_profile: NonEmptyStr | None = None
    language: NonEmptyStr | None = None


MediaModels: TypeAlias = Annotated[tuple[MediaModelConfig, ...], Strict(strict=False)]


class MediaKindConfig(ConfigSection):
    """One kind of file; without `models`, those of `tools.media.models` that can describe it."""

    enabled: bool = True
    scope: MediaScopeConfig = MediaScopeConfig.model_construct()
    max_bytes: PositiveInt | None = None
    max_chars: PositiveInt | None = None
    prompt: NonEmptyStr | None = None
    timeout_seconds: PositiveInt = 60
    base_url: NonEmptyStr | None = None
    language: NonEmptyStr | None = None
    attachments: MediaAttachmentsConfig = MediaAttachmentsConfig.model_construct()
    models: MediaModels = ()


class MediaConfig(ConfigSection):
    """Files of messages that a model cannot read itself: pictures and audio."""

    models: MediaModels = ()
    concurrency: PositiveInt = 2
    image: MediaKindConfig = MediaKindConfig.model_construct()
    audio: MediaKindConfig = MediaKindConfig.model_construct()


class PdfLimitsConfig(ConfigSection):
    """The limits for PDF documents."""

    max_pages: PositiveInt = 4


class UrlLimitsConfig(ConfigSection):
    """Whether a request over HTTP may name the address of a file, and how that is fetched."""

    allow_url: bool = True
    url_allowlist: HostNames = ()
    max_redirects: NonNegativeInt = 3
    timeout_ms: PositiveInt = 10_000


class ImageLimitsConfig(UrlLimitsConfig):
    """The images of requests over HTTP; without `allowedMimes`, all that models read."""

    allowed_mimes: StrTuple | None = None
    max_bytes: PositiveInt = 10_485_760


class DocumentLimitsConfig(UrlLimitsConfig):
    """The documents of a message whose text is part of it; without `allowedMimes`, all text."""

    allowed_mimes: StrTuple | None = None
    max_bytes: PositiveInt = 5_242_880
    max_chars: PositiveInt = 200_000
    pdf: PdfLimitsConfig = PdfLimitsConfig.model_construct()
