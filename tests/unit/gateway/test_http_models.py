"""`/v1/models`: the agents as models."""

from pathlib import Path

import pytest

from homarus.core.message import Json
from tests.unit.gateway.api_harness import api, pair_device

AGENTS: Json = {"list": [{"id": "main"}, {"id": "ops", "default": True}]}


async def test_models_endpoint_lists_the_agents(tmp_path: Path) -> None:
    async with api(tmp_path, "chatCompletions", agents=AGENTS) as (client, stage):
        got = (await client.get("/v1/models")).json
        reader = client.with_token(pair_device(stage, "read"))
        assert (await reader.get("/v1/models")).status == 200
    assert got["object"] == "list"
    assert [each["id"] for each in got["data"]] == ["openclaw", "openclaw:main", "openclaw:ops"]
    row = got["data"][0]
    assert (row["object"], row["owned_by"]) == ("model", "openclaw") and row["created"] > 0


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("openclaw", 200),
        ("openclaw:main", 200),
        ("openclaw/ops", 200),
        ("OpenClaw:Ops", 200),
        ("openclaw/default", 200),
        ("agent:main", 200),
        ("agent:", 404),
        ("openclaw:nobody", 404),
        ("openclaw:main/../ops", 404),
        ("gpt-5", 404),
    ],
)
async def test_model_endpoint_finds_an_agent_by_its_names(
    name: str, status: int, tmp_path: Path
) -> None:
    async with api(tmp_path, "responses", agents=AGENTS) as (client, _stage):
        got = await client.get(f"/v1/models/{name}")
    assert got.status == status
    if status == 200:
        assert got.json["id"] == name.lower()
    else:
        assert got.error["code"] == "model_not_found"


async def test_models_endpoint_is_off_with_the_tools_alone(tmp_path: Path) -> None:
    async with api(tmp_path, "toolsInvoke") as (client, _stage):
        assert (await client.get("/v1/models")).error["code"] == "endpoint_disabled"
