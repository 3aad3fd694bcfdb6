"""`image`: pictures by path, URL and data: URL, as far as the conversation may read them."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from homarus.config.schema import Config
from homarus.core.errors import BlockedUrlError, ToolDeniedError, ToolError
from homarus.core.message import Json
from homarus.policy.tool_call import TaintSource
from homarus.policy.workspace_access import FULL_ACCESS, session_access
from homarus.tools.builtin.image import tools
from homarus.tools.image_description import ImageAnswer, ImageAttempt, ImageQuestion
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import Tool, ToolContext, ToolOutput

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
SPEC_BYTES = 450


class Eye:
    """A port that answers without a model, and keeps what it was asked. A fake."""

    def __init__(self) -> None:
        self.questions: list[ImageQuestion] = []

    async def __call__(self, question: ImageQuestion) -> ImageAnswer:
        self.questions.append(question)
        failed = ImageAttempt("p", "first", "busy")
        return ImageAnswer(f"{len(question.images)} pictures", "p/second", (failed,))


class Caller:
    """Calls the tool of one agent in one conversation."""

    def __init__(self, workspace: Path, key: str = "agent:main:main", **config: Any) -> None:
        policy = {"fetch": {"ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]}}}
        self.config = Config.model_validate({"tools": {"web": policy} | config})
        self.eye = Eye()
        self.context = ToolContext(key, "main", workspace, describe_images=self.eye)

    def tool(self, **given: Any) -> Tool:
        context = ToolSourceContext("main", self.config, lambda _key: self.config.tools, **given)
        (made,) = tools(context)
        return made

    async def call(self, **args: Json) -> ToolOutput:
        output = await self.tool()(self.context, args)
        assert isinstance(output, ToolOutput)
        return output


@asynccontextmanager
async def server(body: bytes = PNG, status: str = "200 OK") -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def data_url(data: bytes = PNG) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def test_image_tool_is_small_and_in_no_group(tmp_path: Path) -> None:
    made = Caller(tmp_path).tool()
    spec = made.spec
    sent = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    assert len(json.dumps(sent, separators=(",", ":"))) <= SPEC_BYTES
    assert set(spec.parameters["properties"]) == {
        "prompt", "image", "images", "model", "maxBytesMb", "maxImages",
    }  # fmt: skip
    assert made.declaration.groups == () and not spec.parameters.get("required")


def test_image_tool_is_not_offered_without_a_model_for_pictures(tmp_path: Path) -> None:
    config = Caller(tmp_path).config
    context = ToolSourceContext(
        "main", config, lambda _key: config.tools, has_image_model=lambda: False
    )
    assert tools(context) == ()


async def test_image_of_the_workspace_is_untrusted_with_model_and_attempts(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    caller = Caller(tmp_path)
    output = await caller.call(image="a.png", prompt="What?", model="p/second")
    assert output.untrusted == TaintSource("file", "a.png")
    assert output.details == {
        "model": "p/second",
        "attempts": [{"provider": "p", "model": "first", "error": "busy"}],
        "image": "a.png",
    }
    (question,) = caller.eye.questions
    assert (question.prompt, question.model) == ("What?", "p/second")
    assert base64.b64decode(question.images[0].data) == PNG


async def test_images_of_all_kinds_are_asked_about_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    caller = Caller(tmp_path)
    async with server() as base:
        names = ["a.png", data_url(), f"{base}/x", f"file://{quote(str(tmp_path))}/a.png", "a.png"]
        output = await caller.call(image="a.png", images=names)
    assert output.untrusted and output.untrusted.kind == "web"
    assert base in output.untrusted.origin and "a.png" in output.untrusted.origin
    assert len(caller.eye.questions[0].images) == 4
    assert output.details and len(output.details["images"]) == 4


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "no picture is named"),
        ({"images": [f"{n}.png" for n in range(21)]}, "21 pictures are more than 20"),
        ({"images": ["a", "b"], "maxImages": 1}, "2 pictures are more than 1"),
        ({"images": ["a"] * 30, "maxImages": 50, "image": "gone.png"}, "does not exist|no such"),
        ({"image": "text.png"}, "text.png is not a picture"),
        ({"image": "big.png"}, "big.png is larger than 10 MB"),
        ({"image": "a.png", "maxBytesMb": 0.00001}, "a.png is larger than"),
        ({"image": data_url(PNG * 9), "maxBytesMb": 0.0001}, "the data: URL is larger than"),
        ({"image": "data:image/png;base64,%%%"}, "not valid base64"),
        ({"image": "data:nonsense"}, "damaged"),
        ({"image": "media://../outside/secret"}, "media:// is not a kind of address"),
        ({"image": "ftp://a.example/x.png"}, "ftp:// is not a kind of address"),
        ({"image": "../secret.png"}, "outside|leaves|not in the workspace"),
        ({"image": "/etc/passwd"}, "workspace"),
        ({"image": "file:///etc/passwd"}, "workspace"),
    ],
)
async def test_image_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, args: dict[str, Json], message: str
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "secret.png").write_bytes(PNG)
    (workspace / "a.png").write_bytes(PNG)
    (workspace / "text.png").write_text("words")
    (workspace / "big.png").write_bytes(PNG + b"\0" * 10_000_000)
    caller = Caller(workspace)
    with pytest.raises(ToolError, match=message):
        await caller.call(**args)
    assert not caller.eye.questions


async def test_byte_limit_of_the_config_is_not_raised_by_a_call(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    caller = Caller(tmp_path, media={"image": {"maxBytes": 10}})
    with pytest.raises(ToolError, match="larger than"):
        await caller.call(image="a.png", maxBytesMb=20)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "HTTP://localhost:8080/a.png",
        "http://[::1]/a.png",
        "http://10.0.0.1/a.png",
    ],
)
async def test_image_url_of_a_private_address_is_blocked(tmp_path: Path, url: str) -> None:
    caller = Caller(tmp_path)
    with pytest.raises(BlockedUrlError, match="public internet"):
        await caller.call(image=url)
    assert not caller.eye.questions


async def test_image_url_is_not_fetched_where_the_conversation_may_not(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    denied = replace(FULL_ACCESS, can_fetch=False)
    caller.context = replace(caller.context, run_access=denied)
    async with server() as base:
        with pytest.raises(ToolDeniedError, match="nothing is fetched"):
            await caller.call(image=f"{base}/a.png")
        off = Caller(tmp_path, web={"fetch": {"enabled": False}})
        with pytest.raises(ToolDeniedError, match=r"tools\.web\.fetch\.enabled"):
            await off.call(image=f"{base}/a.png")


async def test_image_file_is_not_read_where_read_is_denied(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    caller = Caller(tmp_path)
    caller.context = replace(caller.context, run_access=replace(FULL_ACCESS, can_attach=False))
    with pytest.raises(ToolDeniedError, match="may not be read"):
        await caller.call(image="a.png")


async def test_image_in_private_notes_is_hidden_from_other_chats(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "a.png").write_bytes(PNG)
    key = "agent:main:telegram:group:-1"
    caller = Caller(tmp_path, key)
    caller.context = replace(caller.context, run_access=session_access(key))
    with pytest.raises(ToolError):
        await caller.call(image="memory/a.png")
    owner = Caller(tmp_path)
    await owner.call(image="memory/a.png")
    assert len(owner.eye.questions) == 1


async def test_image_that_was_sent_is_read_by_its_conversation_alone(tmp_path: Path) -> None:
    workspace, inbox = tmp_path / "workspace", tmp_path / "media" / "inbound"
    workspace.mkdir()
    inbox.mkdir(parents=True)
    mine, other = inbox / "mine.png", inbox / "other.png"
    for each in (mine, other):
        each.write_bytes(PNG)
    caller = Caller(workspace)
    access = replace(FULL_ACCESS, get_media=lambda: frozenset({str(mine)}))
    caller.context = replace(caller.context, run_access=access)
    output = await caller.call(image=str(mine))
    assert output.untrusted == TaintSource("file", "mine.png")
    with pytest.raises(ToolError):
        await caller.call(image=str(other))


async def test_image_link_out_of_the_workspace_is_not_followed(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "secret.png").write_bytes(PNG)
    (workspace / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(ToolError):
        await Caller(workspace).call(image="link.png")


async def test_image_without_a_port_says_what_to_configure(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    caller = Caller(tmp_path)
    caller.context = replace(caller.context, describe_images=None)
    with pytest.raises(ToolError) as caught:
        await caller.call(image="a.png")
    assert "agents.defaults.imageModel.primary" in caught.value.fix


async def test_images_that_are_too_large_together_are_refused(tmp_path: Path) -> None:
    names: Sequence[str] = [f"{n}.png" for n in range(5)]
    for name in names:
        (tmp_path / name).write_bytes(PNG + b"\0" * 9_000_000)
    with pytest.raises(ToolError, match="larger than 40 MB together"):
        await Caller(tmp_path).call(images=list(names))
