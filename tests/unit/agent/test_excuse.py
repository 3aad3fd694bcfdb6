"""Error texts for users: plain, with something to do, and without vendor text."""

import inspect

import pytest

from homarus.agent.reply.excuse import excuse
from homarus.core import errors
from homarus.core.errors import (
    AllFailed,
    AuthFailed,
    BadRequest,
    ConfigError,
    ContextOverflow,
    HomarusError,
    MissingExtra,
    Overloaded,
    ProviderError,
    RateLimited,
    RunStopped,
    SendFailed,
    SpendCapped,
    StoreError,
    UnknownName,
)

RAW = '{"error": {"type": "x", "message": "sk-ant-123 at https://vendor.example"}}'
MADE: dict[type[HomarusError], HomarusError] = {
    AllFailed: AllFailed((AuthFailed(RAW), Overloaded(RAW))),
    SendFailed: SendFailed(RAW, retryable=False),
    MissingExtra: MissingExtra("the channel", "channel"),
}
CLASSES = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, HomarusError)
]
VENDORS = [kind for kind in CLASSES if issubclass(kind, ProviderError | StoreError)]


def made(kind: type[HomarusError], words: str = RAW) -> HomarusError:
    if kind is UnknownName:
        return UnknownName("model", "large", ("larger",))
    return MADE.get(kind) or kind(words)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_error_text_every_error_class_has_a_sentence(kind: type[HomarusError]) -> None:
    told = excuse(made(kind, "the door is not open for this"))
    assert 20 <= len(told) <= 500
    assert told[0].isupper() and told.endswith((".", ")"))
    assert "Traceback" not in told


@pytest.mark.parametrize("kind", VENDORS, ids=lambda kind: kind.__name__)
def test_error_text_never_contains_vendor_text(kind: type[HomarusError]) -> None:
    told = excuse(made(kind))
    assert "{" not in told and "sk-ant" not in told and "https" not in told


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RateLimited("x", after_s=20), "in about 20 seconds"),
        (RateLimited("x", after_s=600), "in about 10 minutes"),
        (RateLimited("x", after_s=20_000), "in about 6 hours"),
        (RateLimited("x"), "in a minute"),
        (BadRequest("x", status=404), "does not know this model"),
        (BadRequest("x", status=400), "Nothing said here is lost"),
        (ContextOverflow("x"), "/compact"),
        (ConfigError("bad", file="/home/me/openclaw.json", key="a.b"), "A setting is wrong: a.b."),
        (UnknownName("model", "gtp", ("gpt",)), "Unknown model 'gtp' (did you mean gpt?)"),
        (SpendCapped("today's budget is used up", fix="raise it"), "Today's budget is used up"),
        (RunStopped("the run was ended"), "The run was ended."),
        (AllFailed((AuthFailed("x"), AuthFailed("y"))), "refused the key"),
        (
            AllFailed((AuthFailed("x"), Overloaded("y"), ProviderError("z"))),
            "(a key was refused, a service is overloaded, no answer came)",
        ),
    ],
)
def test_error_text_says_what_to_do(error: HomarusError, says: str) -> None:
    assert says in excuse(error)


def test_error_text_of_config_error_hides_file_path() -> None:
    assert "/home" not in excuse(ConfigError("bad", file="/home/me/openclaw.json", key="a.b"))
