"""The limits of `gateway.http.endpoints.responses` for bodies, images and files."""

import base64
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import Json
from tests.unit.gateway.api_harness import ApiClient, ApiResponseView, api

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 64).decode()
DATA = f"data:image/png;base64,{PNG}"
URL = "https://files.example/a.png"


async def send(client: ApiClient, *parts: Json) -> ApiResponseView:
    message = {"role": "user", "content": list(parts)}
    return await client.post("/v1/responses", {"model": "openclaw", "input": [message]})


def image(url: str) -> Json:
    return {"type": "input_image", "image_url": url}


def document(url: str) -> Json:
    return {"type": "input_file", "file_url": url}


async def refusal(folder: Path, limits: dict[str, Any], *parts: Json) -> ApiResponseView:
    gateway = {"http": {"endpoints": {"responses": {"enabled": True, **limits}}}}
    async with api(folder, gateway=gateway) as (client, _stage):
        return await send(client, *parts)


@pytest.mark.parametrize(
    ("limits", "part", "status", "text"),
    [
        ({"maxUrlParts": 0}, image(URL), 400, "at most 0 parts"),
        ({"images": {"allowUrl": False}}, image(URL), 400, "allowUrl is false"),
        ({"files": {"allowUrl": False}}, document(URL), 400, "allowUrl is false"),
        ({"images": {"urlAllowlist": ["other.example"]}}, image(URL), 400, "not on the list"),
        ({"files": {"urlAllowlist": ["*.files.example"]}}, document(URL), 400, "not on the list"),
        ({"images": {"allowedMimes": ["image/jpeg"]}}, image(DATA), 400, "image/png"),
        ({"images": {"allowedMimes": []}}, image(DATA), 400, "image/png"),
        ({"images": {"maxBytes": 20}}, image(DATA), 413, "20 bytes"),
        ({"maxBodyBytes": 200}, image(DATA * 2), 413, "200 bytes"),
    ],
)
async def test_responses_limit_that_is_exceeded_is_refused(
    limits: dict[str, Any], part: Json, status: int, text: str, tmp_path: Path
) -> None:
    got = await refusal(tmp_path, limits, part)
    assert got.status == status, got.body
    assert text in str(got.error["message"])


async def test_responses_limit_of_images_is_not_that_of_files(tmp_path: Path) -> None:
    limits = {"images": {"allowUrl": False}, "files": {"urlAllowlist": ["other.example"]}}
    got = await refusal(tmp_path, limits, document(URL))
    assert "not on the list" in str(got.error["message"])
