"""Model references: `provider/model`, split at the first slash, and their aliases."""

import re
from typing import TYPE_CHECKING

from homarus.core.fast_dataclass import dataclass

if TYPE_CHECKING:
    from homarus.config.schema import Config

_PROVIDERS = {
    "z.ai": "zai",
    "z-ai": "zai",
    "qwen": "qwen-portal",
    "kimi-code": "kimi-coding",
    "opencode-zen": "opencode",
}
_CLAUDE = re.compile(r"(opus|sonnet|haiku)-([0-9])[.-]([0-9])")
_GEMINI_PREVIEWS = frozenset({"gemini-3-pro", "gemini-3-flash"})  # only exist as previews
# Used when their target is listed in `agents.defaults.models` without an alias.
_DEFAULT_ALIASES = {
    "opus": "anthropic/claude-opus-4-6",
    "sonnet": "anthropic/claude-sonnet-4-6",
    "gpt": "openai/gpt-5.2",
    "gpt-mini": "openai/gpt-5-mini",
    "gemini": "google/gemini-3-pro-preview",
    "gemini-flash": "google/gemini-3-flash-preview",
}


@dataclass(frozen=True, slots=True)
class ModelRef:
    """One model of one provider."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


def normalize_provider_id(text: str) -> str:
    """Return a provider id in lower case, with common other names replaced."""
    name = text.strip().lower()
    return _PROVIDERS.get(name, name)


def parse_model_ref(text: str, default_provider: str) -> ModelRef | None:
    """Parse `provider/model`, or `model` of the default provider; None if a part is missing."""
    text = text.strip()
    provider, slash, model = text.partition("/")
    if not slash:
        provider, model = default_provider, text
    provider, model = normalize_provider_id(provider), model.strip()
    if not provider or not model:
        return None
    if provider == "anthropic" and (short := _CLAUDE.fullmatch(model.lower())):
        model = "claude-{}-{}-{}".format(*short.groups())
    elif provider == "google" and model in _GEMINI_PREVIEWS:
        model += "-preview"
    return ModelRef(provider, model)


def aliases(config: "Config") -> dict[str, ModelRef]:
    """Return the models by alias in lower case: the config's, then OpenClaw's defaults."""
    listed: dict[ModelRef, str | None] = {}
    for text, entry in config.agents.defaults.models.items():
        if ref := parse_model_ref(text, ""):
            listed[ref] = entry.alias
    found = {alias.strip().lower(): ref for ref, alias in listed.items() if alias and alias.strip()}
    for alias, target in _DEFAULT_ALIASES.items():
        ref = parse_model_ref(target, "")
        if ref in listed and listed[ref] is None:
            found.setdefault(alias, ref)
    return found


def resolve_model_ref(text: str, config: "Config", default_provider: str) -> ModelRef | None:
    """Resolve an alias or a model reference; None if it is neither."""
    return aliases(config).get(text.strip().lower()) or parse_model_ref(text, default_provider)
