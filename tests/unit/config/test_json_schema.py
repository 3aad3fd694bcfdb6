import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from homarus.channels.registry import available_channels, load_channel
from homarus.config.channels import AccountSettings
from homarus.config.json_schema import (
    channel_json_schema,
    config_json_schema,
    described_schema,
    inline_references,
    key_descriptions,
    published_name,
)
from homarus.config.memory import MemoryConfig, MemorySearchConfig
from homarus.config.schema import Config

# What `config schema` and `config.schema` have always called the parts of the config.
NAMES = """
ActiveHours AgentDefaults AgentEntry AgentMcp AgentSubagents AgentToAgent Agents AllTools ApplyPatch
ApprovalForwarding ApprovalTarget Approvals Auth AuthProfile Binding BindingMatch BlockChunk
BlockCoalesce Broadcast Browser BrowserProfile Commands Compaction Compat Container ContextPruning
ControlUi Cooldowns Cost Cron CrossContext Detectors Diagnostics DocumentLimits Elevated Endpoint
Endpoints Env
Exec FileTools Firecrawl Gateway GatewayAuth GithubHook GmailHook Grok GroupChat HardClear Heartbeat
HookMapping HookMatch HookTransform Hooks Http HttpTools HumanDelay Identity ImageLimits InboundWait
InternalHookEntry InternalHookHandler InternalHookLoad InternalHooks Logging LoginClient
LoopDetection Maintenance Marker Mcp McpServer McpToolFilter Media MediaAttachments MediaKind
MediaModel MediaScope MemoryFlush MessageTool Messages Meta Misfire ModelChoice ModelEntry Models
Nodes Otel PdfLimits Peer Perplexity ProviderEntry ProviderModel Queue QueueByChannel RateLimit
Reload Remote Reset ResetByType ResponsesEndpoint Sandbox SandboxBrowser SandboxNetwork
SandboxPrune SandboxTools
Searxng SecretSource SendMatch SendPolicy SendRule Session SessionExchange SessionTools ShellEnv
SkillEntry SkillInstall SkillLimits SkillLoad Skills SnapshotDefaults SoftTrim Spend SsrfPolicy
SubagentTools Subagents Tls ToolFilter ToolNames ToolProfile Tools TrustedProxy Ulimit WebFetch
WebSearch WebTools
"""


def test_config_schema_definitions_keep_published_names() -> None:
    schema = config_json_schema()
    definitions = schema["$defs"]
    assert list(definitions) == NAMES.split()
    assert schema["title"] == "Config"
    titles = {name: each["title"] for name, each in definitions.items() if "title" in each}
    assert titles == {name: name for name in NAMES.split() if name not in {"ModelChoice", "Ulimit"}}


def test_config_schema_references_resolve() -> None:
    schema = config_json_schema()
    text = json.dumps(schema)
    refs = {part.partition('"')[0] for part in text.split("#/$defs/")[1:]}
    assert refs <= set(schema["$defs"])
    assert len(refs) > 50


SECTIONS: list[type[BaseModel]] = [
    Config,
    MemoryConfig,
    MemorySearchConfig,
    AccountSettings,
    *(load_channel(name).Settings for name in available_channels()),
]


def find_undescribed(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the keys without a description, of a schema without references."""
    if not isinstance(schema, dict):
        return
    for key, spec in schema.get("properties", {}).items():
        forms = [spec, *spec.get("anyOf", ())]
        if not any(form.get("description") for form in forms):
            yield f"{path}.{key}"
        yield from find_undescribed(spec, f"{path}.{key}")
    for inner in (
        schema.get("items"),
        schema.get("additionalProperties"),
        *schema.get("anyOf", ()),
    ):
        yield from find_undescribed(inner, path)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_has_a_description(section: type[BaseModel]) -> None:
    """A new key needs a line in config/key_descriptions.txt, or a section with a docstring."""
    assert list(find_undescribed(inline_references(described_schema(section)))) == []


def test_every_description_belongs_to_a_key() -> None:
    known: dict[str, set[str]] = {}
    for section in SECTIONS:
        schema = described_schema(section)
        for name, part in ((section.__name__, schema), *schema.get("$defs", {}).items()):
            published = published_name(name)
            for form in (part, *part.get("anyOf", ())):
                known.setdefault(published, set()).update(form.get("properties", ()))
    unknown_names = set(key_descriptions()) - set(known)
    assert unknown_names == set()
    # A line that several objects share is used by at least one of them.
    lines = {(key, text) for texts in key_descriptions().values() for key, text in texts.items()}
    used = {
        (key, text)
        for name, texts in key_descriptions().items()
        for key, text in texts.items()
        if key in known[name]
    }
    assert lines - used == set()


def test_descriptions_are_sentences_in_the_words_of_the_config() -> None:
    for name, texts in key_descriptions().items():
        for key, text in texts.items():
            assert text[0].isupper() or text[0] in "`01", (name, key)
            assert text.endswith("."), (name, key)
    described = config_json_schema()["$defs"]["Logging"]["description"]
    assert "`consoleLevel`" in described
    assert "console_level" not in described


def test_channel_schema_has_the_descriptions_of_its_accounts() -> None:
    schema = channel_json_schema(load_channel("irc").Settings)
    account = schema["properties"]["accounts"]["additionalProperties"]
    assert account["properties"]["host"]["description"].startswith("The server")
    assert account["properties"]["dmPolicy"]["description"].startswith("Who may write")
