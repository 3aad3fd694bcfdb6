"""Images for a model: scaled to the limit, or replaced by a note."""

import base64
import struct
import zlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pictures

from homarus.agent.context import image_scaling
from homarus.agent.context.image_scaling import (
    fit_image,
    fit_message,
    fit_result,
    has_images,
    image_size,
)
from homarus.core.message import (
    Address,
    Image,
    Inbound,
    Text,
    ToolCall,
    ToolResult,
    user_message,
)
from homarus.testing.fakes import ScriptedProvider, assistant_message
from tests.unit.agent.harness import Harness

KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}


def encoded(data: bytes, mime: str = "image/png") -> Image:
    return Image(base64.b64encode(data).decode(), mime)


def data_of(image: Image | Text) -> bytes:
    assert isinstance(image, Image)
    return base64.b64decode(image.data)


def png(width: int, height: int) -> bytes:
    """Return a valid PNG of one color, made without Pillow."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(40, 30), (3, 300)])
def test_image_size_is_read_from_each_header(kind: str, size: tuple[int, int]) -> None:
    for mode, extra in (("RGB", {}), ("RGBA", {}), ("RGB", {"lossless": True})):
        if mode == "RGBA" and kind == "JPEG":
            continue
        buffer = BytesIO()
        Pictures.new(mode, size).save(buffer, kind, **extra)
        assert image_size(buffer.getvalue()) == size


@given(st.binary(max_size=64), st.sampled_from([b"\xff\xd8", b"RIFFxxxxWEBPVP8 ", b"GIF89a", b""]))
def test_image_size_of_any_bytes_never_raises(data: bytes, start: bytes) -> None:
    image_size(start + data)


@pytest.mark.parametrize(("kind", "out"), [("JPEG", "image/jpeg"), ("WEBP", "image/jpeg")])
def test_fit_image_over_limit_is_scaled_in_proportion(kind: str, out: str) -> None:
    buffer = BytesIO()
    Pictures.new("RGB", (400, 100)).save(buffer, kind)
    made = fit_image(encoded(buffer.getvalue(), KINDS[kind]), 200)
    assert image_size(data_of(made)) == (200, 50)
    assert isinstance(made, Image) and made.mime == out


def test_fit_image_transparent_stays_png_and_default_is_1200() -> None:
    buffer = BytesIO()
    Pictures.new("RGBA", (1300, 130), (0, 0, 0, 0)).save(buffer, "PNG")
    made = fit_image(encoded(buffer.getvalue()), None)
    assert isinstance(made, Image) and made.mime == "image/png"
    assert image_size(data_of(made)) == (1200, 120)


def test_fit_image_within_limit_is_the_same_object() -> None:
    image = encoded(png(100, 50))
    assert fit_image(image, 100) is image
    broken = Image("no base64!", "image/png")
    assert fit_image(broken, 1) is broken


def test_fit_image_damaged_or_huge_becomes_a_note() -> None:
    cut = fit_image(encoded(png(300, 300)[:60]), 100)
    assert cut == Text("[image not shown: 300x300 pixels, damaged, and cannot be scaled]")
    bomb = bytearray(png(10, 10))
    bomb[16:24] = struct.pack(">II", 60_000, 60_000)
    bomb[29:33] = struct.pack(">I", zlib.crc32(bytes(bomb[12:29])))
    note = fit_image(encoded(bytes(bomb)), 100)
    assert isinstance(note, Text) and "60000x60000" in note.text


def test_run_scales_images_of_question_and_tool_result(tmp_path: Path) -> None:
    call = ToolCall("c1", "read", {"path": "wide.png"})
    harness = Harness(tmp_path, assistant_message("", call), assistant_message("seen"))
    harness.agent = replace(harness.agent, image_max_px=20)
    (harness.agent.workspace / "wide.png").write_bytes(png(40, 10))
    harness.run(
        Inbound("1", Address("t", "1"), "ann", "see", run_id="1", images=(encoded(png(50, 25)),))
    )
    assert isinstance(harness.provider, ScriptedProvider)
    question, _call, answer = harness.provider.requests[-1].messages
    image, [result] = question.parts[-1], answer.parts
    assert isinstance(image, Image) and isinstance(result, ToolResult)
    assert image_size(data_of(image)) == (20, 10)
    assert image_size(data_of(result.content[-1])) == (20, 5)


def test_fit_message_and_result_keep_their_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    small = encoded(png(1, 1))
    monkeypatch.setattr(image_scaling, "scale_image", lambda _data, _limit: small)
    image = encoded(png(30, 30))
    message = user_message("see", image)
    assert has_images(message) and not has_images(user_message("see"))
    assert fit_message(message, 20).parts == (Text("see"), small)
    result = ToolResult("1", "read", (Text("x.png"), image))
    assert fit_result(result, 20).content == (Text("x.png"), small)
