"""Choose the models that are asked about pictures. Pure.

The config names them: `agents.defaults.imageModel`, and for the pictures of messages first
`tools.media`. Without either, the model in use is asked if it sees pictures, else another one of
its provider that does.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from homarus.config.media_schema import MediaCapability, MediaKindConfig, MediaModelConfig
from homarus.config.schema import Config
from homarus.core.fast_dataclass import dataclass, replace

DEFAULT_PROMPT: Final = "Describe this picture: what it shows, and the text that can be read in it."
TOOL_TIMEOUT_S: Final = 60.0
MAX_DESCRIPTION_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class MediaModel:
    """A model to ask, and how; `refusal` says why it cannot be asked as the config says.

    `is_configured`: the config names it for this, so it need not be among the allowed models.
    """

    ref: str
    prompt: str = ""
    timeout_s: float = TOOL_TIMEOUT_S
    max_chars: int | None = None
    max_bytes: int | None = None
    profile: str = ""
    is_profile_locked: bool = False
    is_configured: bool = True
    base_url: str = ""
    language: str = ""
    refusal: str = ""


def tool_models(
    config: Config, requested: str, in_use: str, find_image_model: Callable[[str], str]
) -> list[MediaModel]:
    """Return the models for a tool call, in order; `in_use` is the model that makes the call."""
    named = [MediaModel(ref) for ref in _image_model_refs(config)]
    if requested:
        is_configured = requested in {model.ref for model in named}
        return [MediaModel(requested, is_configured=is_configured)]
    if named:
        return named
    # The limits of `tools.media` are for what is added to a message without being asked for.
    models = inbound_image_models(config, in_use, find_image_model)
    return [replace(model, prompt="", max_chars=None) for model in models]


def inbound_image_models(
    config: Config, in_use: str, find_image_model: Callable[[str], str]
) -> list[MediaModel]:
    """Return the models that describe the pictures of messages, in order."""
    settings = config.tools.media.image
    models = list(listed_models(config, settings, "image"))
    if not models:
        models = [make_media_model(settings, ref) for ref in _image_model_refs(config)]
    if not models and (found := find_image_model(in_use)):
        models = [make_media_model(settings, found, is_configured=False)]
    return [replace(each, max_chars=each.max_chars or MAX_DESCRIPTION_CHARS) for each in models]


def has_image_model(config: Config, refs: Sequence[str], find: Callable[[str], str]) -> bool:
    """Return whether there may be a model for pictures; `refs` are those of an agent."""
    if any(_image_model_refs(config)) or any(
        listed_models(config, config.tools.media.image, "image")
    ):
        return True
    return not refs or any(find(ref) for ref in refs)  # without one, the default is not known yet


def listed_models(
    config: Config, settings: MediaKindConfig, kind: MediaCapability
) -> Iterator[MediaModel]:
    """Yield the models that `tools.media` lists for a kind of file: its own, then the common."""
    common = [each for each in config.tools.media.models if kind in each.capabilities]
    for entry in (*settings.models, *common):
        if entry.capabilities and kind not in entry.capabilities:
            continue
        if entry.provider or entry.model:
            ref = f"{entry.provider}/{entry.model or ''}" if entry.provider else entry.model or ""
        else:
            ref = "a command" if entry.type == "cli" else "an entry without a provider"
        yield make_media_model(settings, ref, entry)


def make_media_model(
    settings: MediaKindConfig,
    ref: str,
    entry: MediaModelConfig | None = None,
    *,
    is_configured: bool = True,
) -> MediaModel:
    """Return a model with the settings of its entry, else of its kind of file."""
    entry = entry or MediaModelConfig.model_construct()
    return MediaModel(
        ref,
        prompt=entry.prompt or settings.prompt or "",
        timeout_s=float(entry.timeout_seconds or settings.timeout_seconds),
        max_chars=entry.max_chars or settings.max_chars,
        max_bytes=entry.max_bytes or settings.max_bytes,
        profile=entry.profile or entry.preferred_profile or "",
        is_profile_locked=bool(entry.profile),
        is_configured=is_configured,
        base_url=entry.base_url or settings.base_url or "",
        language=entry.language or settings.language or "",
        refusal="commands are not run for files" if entry.type == "cli" else "",
    )


def _image_model_refs(config: Config) -> list[str]:
    chosen = config.agents.defaults.image_model
    return list(dict.fromkeys(filter(None, (chosen.primary, *chosen.fallbacks))))
