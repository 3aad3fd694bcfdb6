"""The text that a person gets when a run has no answer: what happened, and what helps.

Only an error's class and our own figures are used, never a vendor's text: that may contain JSON,
an address or part of a key, and a whole group may read the reply. The log has it. Pure.
"""

from collections.abc import Callable, Mapping

from homarus.core.errors import (
    AllAttemptsFailedError,
    AnswerTooLongError,
    AuthError,
    BadRequestError,
    BillingError,
    ConfigError,
    ContentFilterError,
    ContextOverflowError,
    CorruptDataError,
    DiskFullError,
    HomarusError,
    ImageTooLargeError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    RunCrashedError,
    RunLimitError,
    StoreError,
    StreamError,
    ThinkingUnsupportedError,
    UnreachableError,
    UserError,
)
from homarus.core.text import one_line

_MAX_CHARS = 400

_SENTENCES: Mapping[type[HomarusError], str] = {
    ContextOverflowError: (
        "This conversation has grown beyond what the model can hold, and could not be shortened "
        "enough. If your last message was very long, send it in parts. Otherwise /compact makes "
        "a summary, /model chooses a model that holds more, and /new starts afresh; nothing "
        "said here is lost."
    ),
    ImageTooLargeError: (
        "A picture is too large for the model, and is left out from now on. Send it smaller: under "
        "5 MB, and no side longer than 8,000 pixels."
    ),
    AuthError: (
        "The model's service refused the key or login. `homarus models status` shows which, "
        "`homarus models auth` mends it, and /model chooses another model until then."
    ),
    BillingError: (
        "The account at the model's service has no credit left. Top it up, or choose another "
        "model with /model."
    ),
    OverloadedError: (
        "The model's service is overloaded. Send it again in a few minutes, or choose another "
        "model with /model."
    ),
    ProviderTimeoutError: (
        "The answer took too long and was given up. Send it again, or ask for less."
    ),
    UnreachableError: (
        "The model's service cannot be reached. If it runs on your own machine, is it started? "
        "`homarus models status` says what was tried."
    ),
    AnswerTooLongError: (
        "The model's answer did not end, and was stopped. Try again, or choose another model with "
        "/model."
    ),
    StreamError: "The model's answer broke off in the middle. Try again.",
    ContentFilterError: (
        "The model's service refused to answer this. Say it in another way, or choose another "
        "model with /model. What was refused is left out from now on."
    ),
    ThinkingUnsupportedError: (
        "The model does not think that hard. Choose another level with /think."
    ),
    BadRequestError: (
        "The model's service did not accept this message, so it is left out from now on. Say it "
        "in another way; if that does not help, choose another model with /model or start afresh "
        "with /new. Nothing said here is lost."
    ),
    ProviderError: "The model did not answer. Try again, or choose another one with /model.",
    DiskFullError: (
        "There is no room left on the machine I run on, so nothing more can be kept. Free some "
        "space and write again."
    ),
    CorruptDataError: (
        "Something I had written down cannot be read any more. `homarus doctor` shows what, and "
        "how to mend it."
    ),
    StoreError: "I could not write this down, so I stopped. Try again; `homarus logs` has more.",
    RunCrashedError: "I ran into a fault of my own and stopped. `homarus logs` has the details.",
    HomarusError: "That did not work. `homarus logs` has the details.",
}
# The reason why a model failed, in a few words, for a list of several models.
_SHORT: Mapping[type[ProviderError], str] = {
    AuthError: "a key was refused",
    BillingError: "an account is empty",
    RateLimitError: "a limit was reached",
    OverloadedError: "a service is overloaded",
    ProviderTimeoutError: "no answer came in time",
    UnreachableError: "a service cannot be reached",
    AnswerTooLongError: "an answer did not end",
    StreamError: "an answer broke off",
    ContentFilterError: "a service refused the content",
    BadRequestError: "a request was not accepted",
}


def error_text(error: HomarusError) -> str:
    """Return the error text for the person who waits for an answer."""
    for kind, format_error in _FORMATTERS.items():
        if isinstance(error, kind):
            return format_error(error)
    kinds = (kind for kind in type(error).__mro__ if kind in _SENTENCES)
    return _SENTENCES[next(kinds, HomarusError)]


def _failed(error: HomarusError) -> str:
    """Describe several failed models, as one error when all failed the same way."""
    tried = error.tried if isinstance(error, AllAttemptsFailedError) else ()
    if len({type(each) for each in tried}) == 1:
        return error_text(tried[-1])
    reasons = dict.fromkeys(_short_reason(each) for each in tried)
    listed = f" ({', '.join(reasons)})" if reasons else ""
    return (
        f"None of the models I may use could answer{listed}. Try again in a few minutes; "
        "`homarus models status` says how each of them fares."
    )


def _short_reason(error: ProviderError) -> str:
    kinds = (_SHORT[kind] for kind in type(error).__mro__ if kind in _SHORT)
    return next(kinds, "no answer came")


def _limited(error: HomarusError) -> str:
    after_s = error.after_s if isinstance(error, RateLimitError) else None
    when = f"in {_duration(after_s)}" if after_s else "in a minute"
    return (
        f"The model's service takes no more requests for now. Try again {when}, or choose "
        "another model with /model."
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(1, round(seconds))} seconds"
    if seconds < 5_400:
        return f"about {round(seconds / 60)} minutes"
    return f"about {round(seconds / 3_600)} hours"


def _refused(error: HomarusError) -> str:
    status = error.status if isinstance(error, BadRequestError) else 0
    if status == 404:
        return "The model's service does not know this model. /model chooses another one."
    return _SENTENCES[BadRequestError]


def _misconfigured(error: HomarusError) -> str:
    key = one_line(error.key, 80) if isinstance(error, ConfigError) else ""
    return f"A setting is wrong{f': {key}' if key else ''}. `homarus doctor` says how to mend it."


def _own(error: HomarusError) -> str:
    """Return our own error message as a sentence."""
    text = one_line(str(error), _MAX_CHARS)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", ")")) else ".")


_FORMATTERS: Mapping[type[HomarusError], Callable[[HomarusError], str]] = {
    AllAttemptsFailedError: _failed,
    RateLimitError: _limited,
    ThinkingUnsupportedError: lambda _error: _SENTENCES[ThinkingUnsupportedError],
    BadRequestError: _refused,
    ConfigError: _misconfigured,
    UserError: _own,
    ProtocolError: _own,
    RunLimitError: _own,
}
