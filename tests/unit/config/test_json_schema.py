import json

from homarus.config.json_schema import config_json_schema

# What `config schema` and `config.schema` have always called the parts of the config.
NAMES = """
AgentDefaults AgentEntry AgentMcp AgentSubagents AgentToAgent Agents AllTools ApplyPatch
ApprovalForwarding ApprovalTarget Approvals Auth AuthProfile Binding BindingMatch BlockChunk
BlockCoalesce Broadcast Browser BrowserProfile Commands Compaction Compat Container ContextPruning
ControlUi Cooldowns Cost CrossContext Detectors DocumentLimits Elevated Endpoint Endpoints Env
Exec FileTools Firecrawl Gateway GatewayAuth Grok GroupChat HardClear Http HumanDelay Identity
InboundWait Logging LoginClient LoopDetection Maintenance Marker Mcp McpServer McpToolFilter Media
MediaAttachments MediaKind MediaModel MediaScope MemoryFlush MessageTool Messages Meta ModelChoice
ModelEntry Models PdfLimits Peer Perplexity ProviderEntry ProviderModel Queue QueueByChannel
RateLimit Reload Remote Reset ResetByType ResponsesEndpoint Sandbox SandboxBrowser SandboxNetwork
SandboxPrune SandboxTools Searxng SecretSource SendMatch SendPolicy SendRule Session
SessionExchange SessionTools ShellEnv SkillEntry SkillInstall SkillLimits SkillLoad Skills
SnapshotDefaults SoftTrim Spend SsrfPolicy SubagentTools Subagents Tls ToolFilter ToolNames
ToolProfile Tools TrustedProxy Ulimit WebFetch WebSearch WebTools
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
