"""Call one model once, with one credential, to learn whether it answers.

    result = await probe_model(config, "openai/gpt-5.2", key, env=env, paths=paths)
    print(result.text if result.ok else f"{result.message} ({result.fix})")

The config may be one that is not saved yet, and the key one that is not stored yet. One request is
sent: no retry, no fallback, no cooldown; nothing is stored. No failure is raised: the result says
what it was, and what to do about it.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from homarus.config.paths import Paths
from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import (
    AuthError,
    BadRequestError,
    BillingError,
    HomarusError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    UnknownNameError,
    UnreachableError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Message, user_message
from homarus.core.text import closest_names
from homarus.providers.base import ModelRequest, Provider
from homarus.providers.catalog import LOCAL, ModelInfo, known_models, lookup_model, vendors
from homarus.providers.concurrency_limiter import ConcurrencyLimiter
from homarus.providers.fallback import FallbackProvider, FallbackTarget, ProviderRetryPolicy
from homarus.providers.resolution import (
    check_reachable,
    needs_key,
    open_local,
    open_remote,
    resolve_model,
)

if TYPE_CHECKING:
    from homarus.config.schema import Config

ProbeErrorKind: TypeAlias = Literal[
    "auth", "billing", "rate_limit", "unknown_model", "unreachable", "other"
]
TIMEOUT_S = 30.0
QUESTION = "Say hello in one short sentence."
SYSTEM = "You are asked whether you can be reached. Answer with one short sentence."
# Enough for the reasoning of models that always reason; the answer itself is short.
MAX_TOKENS = 1024
_UNKNOWN_MODEL = (
    r"model_not_found|(unknown|invalid|no such) model"
    r"|model\b.{0,120}\b(not found|not exist|unknown|not available|invalid)"
)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one request to a model gave: the answer's text, or the failure with its fix."""

    model: str
    text: str = ""
    latency_ms: int = 0
    error: ProbeErrorKind | None = None
    message: str = ""
    fix: str = ""

    @property
    def ok(self) -> bool:
        return self.error is None


async def probe_model(
    config: "Config",
    ref: str,
    key: str = "",
    *,
    env: Mapping[str, str],
    paths: Paths,
    timeout_s: float = TIMEOUT_S,
    clock: Clock | None = None,
) -> ProbeResult:
    """Send one small request to a model with this key, and return what came of it."""
    clock = clock or SystemClock()
    started_s = clock.monotonic()
    shown = ref
    provider: Provider | None = None
    try:
        found = resolve_model(config, ref)
        shown = str(found)
        check_reachable(config, found)
        model = lookup_model(config, found)
        if not key and needs_key(config, model.provider):
            raise _missing_key(config, model.provider)
        is_local = model.provider == LOCAL
        provider = open_local(model, paths) if is_local else open_remote(config, model, key, env)
        answer = await _ask(provider, model, clock, timeout_s)
    except HomarusError as exc:
        failure = _failure(config, shown, exc)
        return replace(failure, latency_ms=round((clock.monotonic() - started_s) * 1000))
    finally:
        if provider is not None:
            await provider.close()
    latency_ms = round((clock.monotonic() - started_s) * 1000)
    return ProbeResult(shown, answer.text.strip(), latency_ms)


async def _ask(provider: Provider, model: ModelInfo, clock: Clock, timeout_s: float) -> Message:
    """Return the answer of one attempt, checked like every other answer."""

    async def opened() -> Provider:
        return provider

    target = FallbackTarget(model, "", opened, _ignore, ConcurrencyLimiter(clock))
    once = FallbackProvider([target], clock, ProviderRetryPolicy(tries=1, attempt_s=timeout_s))
    request = ModelRequest(model.id, SYSTEM, (user_message(QUESTION),), max_tokens=MAX_TOKENS)
    try:
        async with asyncio.timeout(timeout_s):  # also an answer that starts and does not end
            async for piece in once.stream(request):
                if isinstance(piece, Message):
                    return piece
    except TimeoutError as exc:
        text = f"{model.ref}: no complete answer within {timeout_s:g} s"
        raise ProviderTimeoutError(text, fix="try again, or use another model") from exc
    raise ProviderError(f"{model.ref}: no answer", fix="try again")


def _ignore(error: ProviderError | None) -> None:
    """Record nothing: a probe changes no credential's cooldown."""


def _missing_key(config: "Config", provider: str) -> AuthError:
    names = vendors(config)[provider].key_names
    return AuthError(
        f"{provider} needs a key, and there is none",
        fix=f"set {' or '.join(names)}, or homarus models auth add {provider}",
    )


def _failure(config: "Config", ref: str, error: HomarusError) -> ProbeResult:
    kind = kind_of(error)
    fix = error.fix
    if kind == "unknown_model" and isinstance(error, ProviderError):
        provider, _, model_id = ref.partition("/")
        known = [model.id for model in known_models(config, provider)]
        if near := closest_names(model_id, known):
            names = " or ".join(f"{provider}/{name}" for name in near)
            fix = f"did you mean {names}? Otherwise {fix}" if fix else f"did you mean {names}?"
    return ProbeResult(ref, error=kind, message=error.message, fix=fix)


def kind_of(error: HomarusError) -> ProbeErrorKind:
    """Return what kind of failure an error is, for a person who sets up a model."""
    match error:
        case AuthError():
            return "auth"
        case BillingError():
            return "billing"
        case RateLimitError():
            return "rate_limit"
        case UnreachableError() | ProviderTimeoutError():
            return "unreachable"
        case UnknownNameError():
            return "unknown_model"
        case BadRequestError() if error.status == 404:
            return "unknown_model"
        case BadRequestError() if re.search(_UNKNOWN_MODEL, error.message.lower()):
            return "unknown_model"
        case _:
            return "other"
