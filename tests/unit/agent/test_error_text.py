"""Error texts for users: plain, with something to do, and without vendor text."""

import inspect

import pytest

from homarus.agent.reply.error_text import error_text
from homarus.core import errors
from homarus.core.errors import (
    AllAttemptsFailedError,
    AuthError,
    BadRequestError,
    ConfigError,
    ContextOverflowError,
    HomarusError,
    MissingExtraError,
    OverloadedError,
    ProviderError,
    RateLimitError,
    RunLimitError,
    SendError,
    SpendLimitError,
    StoreError,
    UnknownNameError,
)

RAW = '{"error": {"type": "x", "message": "sk-ant-123 at https://vendor.example"}}'
MADE: dict[type[HomarusError], HomarusError] = {
    AllAttemptsFailedError: AllAttemptsFailedError((AuthError(RAW), OverloadedError(RAW))),
    SendError: SendError(RAW, retryable=False),
    MissingExtraError: MissingExtraError("the channel", "channel"),
}
CLASSES = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, HomarusError)
]
VENDORS = [kind for kind in CLASSES if issubclass(kind, ProviderError | StoreError)]


def made(kind: type[HomarusError], words: str = RAW) -> HomarusError:
    if kind is UnknownNameError:
        return UnknownNameError("model", "large", ("larger",))
    return MADE.get(kind) or kind(words)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_error_text_every_error_class_has_a_sentence(kind: type[HomarusError]) -> None:
    text = error_text(made(kind, "the door is not open for this"))
    assert 20 <= len(text) <= 500
    assert text[0].isupper() and text.endswith((".", ")"))
    assert "Traceback" not in text


@pytest.mark.parametrize("kind", VENDORS, ids=lambda kind: kind.__name__)
def test_error_text_never_contains_vendor_text(kind: type[HomarusError]) -> None:
    text = error_text(made(kind))
    assert "{" not in text and "sk-ant" not in text and "https" not in text


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RateLimitError("x", after_s=20), "in about 20 seconds"),
        (RateLimitError("x", after_s=600), "in about 10 minutes"),
        (RateLimitError("x", after_s=20_000), "in about 6 hours"),
        (RateLimitError("x"), "in a minute"),
        (BadRequestError("x", status=404), "does not know this model"),
        (BadRequestError("x", status=400), "Nothing said here is lost"),
        (ContextOverflowError("x"), "/compact"),
        (ConfigError("bad", file="/home/me/openclaw.json", key="a.b"), "A setting is wrong: a.b."),
        (UnknownNameError("model", "gtp", ("gpt",)), "Unknown model 'gtp' (did you mean gpt?)"),
        (SpendLimitError("today's budget is used up", fix="raise it"), "Today's budget is used up"),
        (RunLimitError("the run was ended"), "The run was ended."),
        (AllAttemptsFailedError((AuthError("x"), AuthError("y"))), "refused the key"),
        (
            AllAttemptsFailedError((AuthError("x"), OverloadedError("y"), ProviderError("z"))),
            "(a key was refused, a service is overloaded, no answer came)",
        ),
    ],
)
def test_error_text_says_what_to_do(error: HomarusError, says: str) -> None:
    assert says in error_text(error)


def test_error_text_of_config_error_hides_file_path() -> None:
    assert "/home" not in error_text(ConfigError("bad", file="/home/me/openclaw.json", key="a.b"))
