"""The catalogue of vendors and models: addresses, limits, abilities and prices.

Two tables, of vendors and of their well-known models, and `lookup_model`, in which the config
overrides the tables. A model in neither gets guessed limits.
"""

from collections.abc import Mapping
from dataclasses import astuple, field, replace
from typing import TYPE_CHECKING, Literal

from homarus.config.model_refs import ModelRef, normalize_provider_id
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

if TYPE_CHECKING:
    from homarus.config.schema import Config, ProviderEntry, ProviderModel

UNKNOWN_WINDOW = 200_000
UNKNOWN_MAX_TOKENS = 8_192
# Local servers configure a much smaller window than the model supports.
OWN_SERVER_WINDOW = 32_768
BEDROCK = "amazon-bedrock"
REGIONAL_FACTOR = 1.1
VERTEX = "google-vertex"
LOCAL = "local"
GGUF_MAGIC = b"GGUF"  # the first bytes of a weights file
DEMO = "demo"
LOCAL_WINDOW = 4_096
LOCAL_MAX_TOKENS = 256
DEMO_NOTE = (
    "demo model: small and weak, no tools. For a real one set a provider's key "
    "(ANTHROPIC_API_KEY, OPENAI_API_KEY, …), start Ollama, or run `homarus models set MODEL`."
)


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of one provider. `known` is False when window and limits are guesses.

    `note` is shown to the user.
    """

    provider: str
    id: str
    name: str = ""
    window: int = UNKNOWN_WINDOW
    max_tokens: int = UNKNOWN_MAX_TOKENS
    reasoning: bool = False
    sees_images: bool = False
    calls_tools: bool = True
    price: Price = field(default_factory=Price)
    compat: Mapping[str, Json] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Json] = field(default_factory=dict)
    known: bool = True
    note: str = ""

    @property
    def ref(self) -> str:
        return f"{self.provider}/{self.id}"

    @property
    def is_blind(self) -> bool:
        """Return whether the model is known not to see images; one of a service may, if unknown."""
        return not self.sees_images and (self.known or self.provider == LOCAL)

    @property
    def default_thinking(self) -> Literal["off", "low"]:
        """Return the default thinking level: low for a reasoning model."""
        return "low" if self.reasoning else "off"

    def limit_tokens(self, wanted: Json) -> int:
        """Return how many tokens an answer may have: what is wanted, if valid, up to the limit."""
        if not isinstance(wanted, int | float) or not 1 <= wanted < 1e9:
            return self.max_tokens
        return min(int(wanted), self.max_tokens) if self.known else int(wanted)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A service with a known address; a local server needs no key.

    `base_url` serves `api`. `key_names` are the environment variables that may hold the key, best
    first. `default` is the model used when none is configured. A cloud's library finds the address,
    and an account when there is no key; `account_names` are the variables that indicate one.
    """

    id: str
    name: str
    base_url: str
    key_names: tuple[str, ...] = ()
    default: str = ""
    api: str = "openai-completions"
    account_names: tuple[str, ...] = ()

    @property
    def is_cloud(self) -> bool:
        return bool(self.account_names)

    @property
    def is_own_server(self) -> bool:
        return not self.key_names

    def key_in(self, env: Mapping[str, str]) -> tuple[str, str]:
        """Return the variable that holds the key, and the key; both empty when there is none."""
        for name in self.key_names:
            if key := env.get(name, "").strip():
                return name, key
        return "", ""


# In order of preference: the first with a key in the environment is the default.
VENDORS: Mapping[str, Vendor] = {
    vendor.id: vendor
    for vendor in (
        Vendor(
            "anthropic",
            "Anthropic",
            "https://api.anthropic.com",
            ("ANTHROPIC_API_KEY",),
            "claude-opus-4-6",
            "anthropic-messages",
        ),
        Vendor(
            "openai",
            "OpenAI",
            "https://api.openai.com/v1",
            ("OPENAI_API_KEY",),
            "gpt-5.2",
            "openai-responses",
        ),
        Vendor(
            "google",
            "Google",
            "https://generativelanguage.googleapis.com/v1beta",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            "gemini-3.1-pro-preview",
            "google-generative-ai",
        ),
        Vendor(
            "openrouter",
            "OpenRouter",
            "https://openrouter.ai/api/v1",
            ("OPENROUTER_API_KEY",),
            "auto",
        ),
        Vendor("xai", "xAI", "https://api.x.ai/v1", ("XAI_API_KEY",), "grok-4.3"),
        Vendor(
            "mistral",
            "Mistral",
            "https://api.mistral.ai/v1",
            ("MISTRAL_API_KEY",),
            "mistral-large-latest",
        ),
        Vendor(
            "deepseek",
            "DeepSeek",
            "https://api.deepseek.com",
            ("DEEPSEEK_API_KEY",),
            "deepseek-v4-flash",
        ),
        Vendor(
            "groq",
            "Groq",
            "https://api.groq.com/openai/v1",
            ("GROQ_API_KEY",),
            "openai/gpt-oss-120b",
        ),
        Vendor(
            "together",
            "Together AI",
            "https://api.together.xyz/v1",
            ("TOGETHER_API_KEY",),
            "meta-llama/Llama-3.3-70B-Instruct-Turbo",
        ),
        Vendor(
            BEDROCK,
            "Amazon Bedrock",
            "",
            ("AWS_BEARER_TOKEN_BEDROCK",),
            "global.anthropic.claude-opus-4-6-v1",
            "bedrock-converse-stream",
            ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ),
        Vendor(
            VERTEX,
            "Vertex AI",
            "",
            ("GOOGLE_CLOUD_API_KEY",),
            "gemini-3.1-pro-preview",
            "google-vertex",
            ("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS"),
        ),
        Vendor("ollama", "Ollama", "http://127.0.0.1:11434/v1"),
        Vendor("lmstudio", "LM Studio", "http://127.0.0.1:1234/v1"),
    )
}

# provider, id, name, window, max output, reasoning, images, USD per million (in, out, cache read,
# cache write)
_ROWS: tuple[tuple[str, str, str, int, int, bool, bool, tuple[float, ...]], ...] = (
    ("anthropic", "claude-opus-4-6", "Claude Opus 4.6", 200_000, 128_000, True, True,
     (5, 25, 0.5, 6.25)),
    ("anthropic", "claude-sonnet-4-6", "Claude Sonnet 4.6", 200_000, 64_000, True, True,
     (3, 15, 0.3, 3.75)),
    ("anthropic", "claude-haiku-4-5", "Claude Haiku 4.5", 200_000, 64_000, True, True,
     (1, 5, 0.1, 1.25)),
    ("openai", "gpt-5.2", "GPT-5.2", 400_000, 128_000, True, True, (1.75, 14, 0.175)),
    ("openai", "gpt-5.1", "GPT-5.1", 400_000, 128_000, True, True, (1.25, 10, 0.125)),
    ("openai", "gpt-5-mini", "GPT-5 mini", 400_000, 128_000, True, True, (0.25, 2, 0.025)),
    ("openai", "gpt-5-nano", "GPT-5 nano", 400_000, 128_000, True, True, (0.05, 0.4, 0.005)),
    ("openai", "gpt-4.1", "GPT-4.1", 1_047_576, 32_768, False, True, (2, 8, 0.5)),
    ("openai", "gpt-4o", "GPT-4o", 128_000, 16_384, False, True, (2.5, 10, 1.25)),
    ("openai", "gpt-4o-mini", "GPT-4o mini", 128_000, 16_384, False, True, (0.15, 0.6, 0.075)),
    ("google", "gemini-3.1-pro-preview", "Gemini 3.1 Pro", 1_048_576, 65_536, True, True,
     (2, 12, 0.2)),
    ("google", "gemini-3-pro-preview", "Gemini 3 Pro", 1_048_576, 65_536, True, True,
     (2, 12, 0.2)),
    ("google", "gemini-3-flash-preview", "Gemini 3 Flash", 1_048_576, 65_536, True, True,
     (0.5, 3, 0.05)),
    # It charges the price of the model it picks; the answer reports the cost.
    ("openrouter", "openrouter/auto", "OpenRouter Auto", 128_000, 8_192, False, True, ()),
    ("xai", "grok-4.3", "Grok 4.3", 1_000_000, 30_000, True, True, (1.25, 2.5, 0.2)),
    ("xai", "grok-4", "Grok 4", 256_000, 64_000, True, True, (3, 15, 0.75)),
    ("mistral", "mistral-large-latest", "Mistral Large", 262_144, 65_536, False, True, (0.5, 1.5)),
    ("mistral", "mistral-small-latest", "Mistral Small", 128_000, 16_384, False, True, (0.1, 0.3)),
    ("deepseek", "deepseek-v4-flash", "DeepSeek V4 Flash", 1_000_000, 65_536, True, False,
     (0.22, 0.66, 0.007)),
    ("deepseek", "deepseek-v4-pro", "DeepSeek V4 Pro", 1_000_000, 65_536, True, False,
     (1.32, 3.96, 0.044)),
    ("groq", "openai/gpt-oss-120b", "GPT-OSS 120B", 131_072, 65_536, True, False,
     (0.15, 0.6, 0.075)),
    ("groq", "openai/gpt-oss-20b", "GPT-OSS 20B", 131_072, 65_536, True, False,
     (0.075, 0.3, 0.0375)),
    ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", "Llama 3.3 70B", 131_072, 8_192,
     False, False, (0.88, 0.88)),
    (BEDROCK, "global.anthropic.claude-opus-4-6-v1", "Claude Opus 4.6", 200_000, 128_000, True,
     True, (5, 25, 0.5, 6.25)),
    (BEDROCK, "global.anthropic.claude-sonnet-4-6", "Claude Sonnet 4.6", 200_000, 64_000, True,
     True, (3, 15, 0.3, 3.75)),
    (BEDROCK, "global.anthropic.claude-haiku-4-5-20251001-v1:0", "Claude Haiku 4.5", 200_000,
     64_000, True, True, (1, 5, 0.1, 1.25)),
)  # fmt: skip
# Models that Vertex AI serves under their own id at their own price.
_AT_VERTEX = frozenset({"claude-opus-4-6", "claude-sonnet-4-6"})

MODELS: Mapping[tuple[str, str], ModelInfo] = {
    (provider, id_): ModelInfo(
        provider, id_, name, window, max_tokens, thinks, sees, price=Price(*price)
    )
    for origin, id_, name, window, max_tokens, thinks, sees, price in _ROWS
    for provider in (origin, *([VERTEX] if origin == "google" or id_ in _AT_VERTEX else ()))
} | {
    (LOCAL, DEMO): ModelInfo(
        LOCAL,
        DEMO,
        "SmolLM2 135M",
        LOCAL_WINDOW,
        LOCAL_MAX_TOKENS,
        calls_tools=False,
        note=DEMO_NOTE,
    )
}


def provider_entry(config: "Config", provider: str) -> "ProviderEntry | None":
    """Return the config's entry of a provider under any spelling of its name."""
    for name, entry in config.models.providers.items():
        if normalize_provider_id(name) == provider:
            return entry
    return None


def vendors(config: "Config") -> Mapping[str, Vendor]:
    """Return the usable vendors: with `models.mode: "replace"`, those in the config."""
    if config.models.mode == "merge":
        return VENDORS
    return {id_: vendor for id_, vendor in VENDORS.items() if provider_entry(config, id_)}


def lookup_model(config: "Config", ref: ModelRef) -> ModelInfo:
    """Return what is known of a model: from the config, else the table, else guesses."""
    model_id = ref.model
    if ref.provider == "openrouter" and "/" not in model_id:
        # Every id there has a vendor prefix, and `auto` is its own.
        model_id = f"openrouter/{model_id}"
    model = MODELS.get((ref.provider, model_id)) or _regional(ref.provider, model_id)
    model = model or _guess(ref.provider, model_id)
    entry = provider_entry(config, ref.provider)
    for configured in entry.models if entry else ():
        if configured.id == model_id:
            model = _configured(model, configured)
    return _for_agents(config, model)


def _for_agents(config: "Config", model: ModelInfo) -> ModelInfo:
    """Apply `agents.defaults`: the model's params and the limit of its window."""
    defaults = config.agents.defaults
    named = defaults.models.get(model.ref)
    most = defaults.context_tokens
    return replace(
        model,
        params=named.params if named else {},
        window=min(model.window, most) if most else model.window,
    )


def known_models(config: "Config", provider: str) -> list[ModelInfo]:
    """Return a provider's models from the config and the table, the config's first."""
    entry = provider_entry(config, provider)
    ids = [configured.id for configured in entry.models] if entry else []
    if provider in vendors(config) or provider == LOCAL:
        ids += [id_ for vendor, id_ in MODELS if vendor == provider]
    return [lookup_model(config, ModelRef(provider, id_)) for id_ in dict.fromkeys(ids)]


def _regional(provider: str, model_id: str) -> ModelInfo | None:
    """Return a regional Bedrock model: its global twin with a higher price."""
    area, _, rest = model_id.partition(".")
    twin = MODELS.get((BEDROCK, f"global.{rest}")) if provider == BEDROCK else None
    if twin is None or not area.isalpha():
        return None
    prices = (REGIONAL_FACTOR * price for price in astuple(twin.price))
    return replace(twin, id=model_id, price=Price(*prices))


def _guess(provider: str, model_id: str) -> ModelInfo:
    if provider == LOCAL:
        return ModelInfo(
            LOCAL, model_id, "", LOCAL_WINDOW, LOCAL_MAX_TOKENS, calls_tools=False, known=False
        )
    vendor = VENDORS.get(provider)
    window = OWN_SERVER_WINDOW if vendor and vendor.is_own_server else UNKNOWN_WINDOW
    asks = "" if vendor and vendor.is_cloud else f"`homarus models refresh {provider}` asks, or "
    note = (
        f"how much {model_id} holds is not known; {window:,} tokens are assumed."
        f" {asks}set contextWindow in models.providers.{provider}."
    )
    return ModelInfo(provider, model_id, window=window, known=False, note=note)


def _configured(model: ModelInfo, entry: "ProviderModel") -> ModelInfo:
    """Override the table by the fields that a config entry sets."""
    said = entry.model_fields_set
    changes: dict[str, Json] = {"headers": dict(entry.headers)}
    changes["compat"] = entry.compat.model_dump(by_alias=True, exclude_none=True)
    if entry.name:
        changes["name"] = entry.name
    if entry.context_window:
        changes["window"] = int(entry.context_window)
        changes["known"] = True
        changes["note"] = model.note if model.known else ""  # the note described a guess
    if entry.max_tokens:
        changes["max_tokens"] = int(entry.max_tokens)
    if "reasoning" in said:
        changes["reasoning"] = entry.reasoning
    if "input" in said:
        changes["sees_images"] = "image" in entry.input
    if "cost" in said:
        cost = entry.cost
        changes["price"] = Price(cost.input, cost.output, cost.cache_read, cost.cache_write)
    return replace(model, **changes)
