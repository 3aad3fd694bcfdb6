"""The message forms of `homarus agent`, the model that was asked for, and rejected messages."""

from collections.abc import Callable

import pytest

from tests.e2e.gateway import Gateway, change
from tests.e2e.program import Home

ECHO = "MOCK:echo"


def test_agent_accepts_argument_with_pipe_and_pipe_alone(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    asked = home.run("agent", f"{ECHO} both", "--model", "mock-1", text="data")
    assert asked.out == "both\n\ndata\n", "a bare name is that of the provider which lists it"
    assert home.run("agent", text=f"{ECHO} piped\n").out == "piped\n"


@pytest.mark.parametrize("with_gateway", [False, True], ids=["local", "gateway"])
def test_agent_requested_model_answers_or_fails(
    home: Home, model_url: str, start: Callable[..., Gateway], *, with_gateway: bool
) -> None:
    providers = {name: {"baseUrl": model_url, "apiKey": "sk-test"} for name in ("mine", "mock")}
    model = {"primary": "mine/a", "fallbacks": ["mock/b"]}
    change(home, models={"providers": providers}, agents={"defaults": {"model": model}})
    if with_gateway:
        start().wait_ready()
    once = f"MOCK:fail:404:1 {ECHO}"  # the first model does not exist, a second one answers
    refused = home.run("agent", f"{once} hi {with_gateway}", "--model", "mine/nope")
    assert (refused.status, refused.out) == (1, "") and "mine/nope" in refused.err
    if with_gateway:
        unknown = home.run("agent", "hi", "--model", "moc/b")
        assert unknown.status == 2 and "did you mean mock" in unknown.err
    answered = home.run("agent", f"{once} again {with_gateway}", "--json")
    result = answered.json["result"]
    assert result["payloads"][0]["text"] == f"again {with_gateway}", "the refused one is not sent"
    (attempt,) = result["meta"]["attempts"]
    assert (attempt["provider"], attempt["next"]) == ("mine", "mock/b")
    assert "mock/b was tried in its place" in answered.err


def test_chat_rejected_messages_are_not_sent_again(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    lines = ["MOCK:fail:401 one", "MOCK:fail:400 two", "MOCK:filtered three", f"{ECHO} four"]
    done = home.run("chat", text="\n".join([*lines, "/quit", ""]))
    assert done.out.count("⚠") == 3 and "\nfour\n" in done.out, done.out
    assert "left out of later requests" in done.out
    asked = [m for m in home.transcripts()[0] if m.get("message", {}).get("role") == "user"]
    assert len(asked) == 4, "all of them stay in the history"
