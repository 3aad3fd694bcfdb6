"""The table of our functions by the name of OpenClaw's function.

An adapter only converts names and values: camelCase to our names, values to JSON and back. A
missing key in a result means "undefined".
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

from homarus.agent.commands import catalog as commands
from homarus.agent.reply import blocks, reply_cleaner, typing_policy
from homarus.agent.reply import reply_parser as replies
from homarus.channels import chunk, markup
from homarus.channels.registry import find_traits
from homarus.config import model_refs, schema, timezone, tree_edit
from homarus.core import fences, session_keys, silent_reply, units
from homarus.core.errors import HomarusError
from homarus.core.text import utf16_len
from homarus.gateway import hook_requests, identity, nodes
from homarus.memory import chunking as notes
from homarus.memory import hybrid_scoring
from homarus.policy import access
from homarus.sessions import levels, queue_policy, routing, usage
from homarus.skills import frontmatter, skill
from homarus.store.state_paths import transcript_file_name
from tests.vectors import (
    directive_functions,
    exec_functions,
    policy_functions,
    schedule_functions,
    session_functions,
)
from tests.vectors.cases import Adapter, Json, NotApplicable, get
from tests.vectors.config_functions import diff_config_paths, resolve_env_vars

OPENCLAW_ACK_MAX_CHARS = 300  # the default of its function; ours is configured as 30


def _agent_key(key: str | None) -> Json:
    parsed = session_keys.parse_agent_key(key)
    return parsed and {"agentId": parsed.agent, "rest": parsed.rest}


def _store_key(ask: Json) -> Json:
    agent = get(ask, "agentId", "")
    return session_keys.canonical_key(ask.get("requestKey"), agent, main=ask.get("mainKey"))


def _peer_key(ask: Json) -> Json:
    return session_keys.peer_key(
        get(ask, "agentId", ""),
        get(ask, "channel", ""),
        get(ask, "peerKind", "direct"),
        get(ask, "peerId", ""),
        account=ask.get("accountId"),
        scope=get(ask, "dmScope", "main"),
        main=ask.get("mainKey"),
        traits=find_traits(get(ask, "channel", "")),
        identity_links=ask.get("identityLinks"),
    )


def _thread_keys(ask: Json) -> Json:
    own_chat = ask.get("useSuffix") is False
    thread = get(ask, "threadId", "").strip()
    key = session_keys.thread_key(ask["baseSessionKey"], thread, own_chat=own_chat)
    return {"sessionKey": key, "parentSessionKey": ask.get("parentSessionKey") if thread else None}


def _agent_route(ask: Json) -> Json:
    peer, parent = ask.get("peer") or {}, ask.get("parentPeer") or {}
    found = routing.resolve_route(
        schema.Config.model_validate(get(ask, "cfg", {})),
        routing.RouteQuery(
            ask["channel"],
            ask.get("accountId") or "",
            peer.get("kind", ""),
            peer.get("id", ""),
            parent.get("kind", ""),
            parent.get("id", ""),
            ask.get("guildId") or "",
            ask.get("teamId") or "",
            tuple(get(ask, "memberRoleIds", ())),
            traits=find_traits(ask["channel"]),
        ),
    )
    return {
        "agentId": found.agent,
        "channel": found.channel,
        "accountId": found.account,
        "sessionKey": found.key,
        "mainSessionKey": found.main_key,
        "matchedBy": found.matched_by,
    }


def _fences(text: str) -> Json:
    return [
        {
            "start": utf16_len(text[: fence.start]),
            "end": utf16_len(text[: fence.end]),
            "openLine": fence.open_line,
            "marker": fence.marker,
            "indent": fence.indent,
        }
        for fence in fences.find_fences(text)
    ]


def _invocation(matter: Json) -> Json:
    found = skill.read_invocation(matter)
    return {"userInvocable": found.by_user, "disableModelInvocation": not found.by_model}


def _metadata(matter: Json) -> Json:
    found = skill.read_metadata(matter)
    return found and {
        "always": found.always,
        "emoji": found.emoji or None,
        "homepage": found.homepage or None,
        "skillKey": found.skill_key or None,
        "primaryEnv": found.primary_env or None,
        "os": found.os or None,
        "requires": found.requires
        and {
            "bins": found.requires.bins,
            "anyBins": found.requires.any_bins,
            "env": found.requires.env,
            "config": found.requires.config,
        },
        "install": [_install(install) for install in found.install] or None,
    }


def _install(found: skill.Install) -> Json:
    return {
        "kind": found.kind,
        "id": found.id or None,
        "label": found.label or None,
        "bins": found.bins or None,
        "os": found.os or None,
        "formula": found.formula or None,
        "package": found.package or None,
        "module": found.module or None,
        "url": found.url or None,
        "archive": found.archive or None,
        "extract": found.extract,
        "stripComponents": found.strip_components,
        "targetDir": found.target_dir or None,
    }


def _by_newline(text: str, limit: int, options: Json = None) -> Json:
    return chunk.chunk_by_newline(
        text,
        limit,
        split_long_lines=get(options, "splitLongLines", True),
        trim_lines=get(options, "trimLines", True),
    )


def _by_paragraph(text: str, limit: int, options: Json = None) -> Json:
    split = get(options, "splitLongParagraphs", True)
    return chunk.chunk_by_paragraph(text, limit, split_long_paragraphs=split)


def _limit(
    config: Json, channel: str | None = None, account: str | None = None, options: Json = None
) -> Json:
    default = get(options, "fallbackLimit", chunk.DEFAULT_LIMIT)
    return chunk.text_chunk_limit(
        get(config, "channels", {}), channel or "", account, default=default
    )


def _reply(raw: str, options: Json = None) -> Json:
    word = get(options, "silentToken", silent_reply.SILENT_WORD)
    found = reply_cleaner.clean_reply(raw, silent_word=word)
    current = get(options, "currentMessageId", None)
    return {
        "text": found.text,
        "mediaUrls": found.media or None,
        "mediaUrl": found.media[0] if found.media else None,
        "replyToId": found.reply_to or (current if found.reply_to_current else None),
        "replyToCurrent": found.reply_to_current,
        "replyToTag": found.reply_to_current or bool(found.reply_to),
        "audioAsVoice": found.as_voice or None,
        "isSilent": found.silent,
    }


def _chunker(ask: Json) -> Json:
    asked = ask["chunking"]
    chunker = blocks.Chunker(
        blocks.ChunkLimits(
            asked["minChars"],
            asked["maxChars"],
            get(asked, "breakPreference", "paragraph"),
            by_paragraph=get(asked, "flushOnParagraph", False),
        )
    )
    after = [[chunk.text for chunk in chunker.add(piece)] for piece in ask["appends"]]
    return {"afterEachAppend": after, "forced": [chunk.text for chunk in chunker.flush()]}


def _ack(text: str | None = None, options: Json = None) -> Json:
    found = silent_reply.strip_heartbeat_token(
        text,
        heartbeat=get(options, "mode", "message") == "heartbeat",
        max_chars=_ack_chars(get(options, "maxAckChars", OPENCLAW_ACK_MAX_CHARS)),
    )
    return {"shouldSkip": found.skip, "text": found.text, "didStrip": found.found}


def _ack_chars(value: Json) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return OPENCLAW_ACK_MAX_CHARS


def _typing_mode(ask: Json) -> Json:
    return typing_policy.typing_mode(
        ask.get("configured"),
        group=get(ask, "isGroupChat", False),
        mentioned=get(ask, "wasMentioned", False),
        heartbeat=get(ask, "isHeartbeat", False),
    )


def _media(raw: str) -> Json:
    found = replies.split_media(raw)
    return {
        "text": found.text,
        "mediaUrls": found.media or None,
        "mediaUrl": found.media[0] if found.media else None,
        "audioAsVoice": found.as_voice or None,
    }


def _abort_request(text: str | None = None, options: Json = None) -> Json:
    return commands.is_abort_request_text(text or "", get(options, "botUsername", None))


def _command_body(text: str, options: Json = None) -> Json:
    return commands.normalize_command_body(text, get(options, "botUsername", None))


def _control_command(text: str | None = None, _config: Json = None, options: Json = None) -> Json:
    return commands.has_control_command(text or "", get(options, "botUsername", None))


def _mention(ask: Json) -> access.MentionState:
    return access.MentionState(
        required=get(ask, "requireMention", False),
        detectable=get(ask, "canDetectMention", False),
        mentioned=get(ask, "wasMentioned", False),
        implied=get(ask, "implicitMention", False) or get(ask, "shouldBypassMention", False),
        elsewhere=get(ask, "hasAnyMention", False),
    )


def _mention_gate(ask: Json) -> Json:
    found = _mention(ask)
    return {
        "effectiveWasMentioned": access.is_addressed(found),
        "shouldSkip": access.is_unaddressed(found),
    }


def _command_gate(ask: Json) -> Json:
    ordered = access.is_unmentioned_command(
        _mention(ask),
        is_command=all(
            get(ask, name, False) for name in ("isGroup", "allowTextCommands", "hasControlCommand")
        ),
        may_command=get(ask, "commandAuthorized", False),
    )
    return {
        **_mention_gate({**ask, "shouldBypassMention": ordered}),
        "shouldBypassMention": ordered,
    }


def _may_command(ask: Json) -> bool:
    rolls = [
        access.AllowlistMatch(get(roll, "configured", False), get(roll, "allowed", False))
        for roll in get(ask, "authorizers", ())
    ]
    otherwise = get(ask, "modeWhenAccessGroupsOff", "allow")
    grouped = get(ask, "useAccessGroups", False)
    return access.may_command(rolls, grouped=grouped, otherwise=otherwise)


def _active(config: Json, heartbeat: Json, at_ms: int) -> bool:
    hours = get(heartbeat, "activeHours", {})
    defaults = get(get(config, "agents", {}), "defaults", {})
    return timezone.is_within_hours(
        get(hours, "start", ""),
        get(hours, "end", ""),
        timezone.hours_zone_name(hours.get("timezone"), defaults.get("userTimezone")),
        at_ms,
    )


def _duration(text: Json = None, options: Json = None) -> Json:
    return units.parse_duration_ms(_text(text), get(options, "defaultUnit", "ms"))


def _size(text: Json = None, options: Json = None) -> Json:
    return units.parse_byte_size(_text(text), get(options, "defaultUnit", "b"))


def _text(value: Json) -> str:
    return "" if value is None else str(value)


def _of_text(function: Callable[..., Json]) -> Adapter:
    """Return an adapter that takes null and an absent argument as an empty text."""
    return lambda text=None, *rest: function(text or "", *rest)


def _of_any(function: Callable[[str | None], Json]) -> Adapter:
    """Return an adapter that takes what is no text as null."""
    return lambda value=None: function(value if isinstance(value, str) else None)


def _model_ref(text: str, default: str | None = None) -> Json:
    found = model_refs.parse_model_ref(text, default or "")
    return found and {"provider": found.provider, "model": found.model}


def _merge(base: Json, patch: Json, options: Json = None) -> Json:
    by_id = bool(get(options, "mergeObjectArraysById", False))
    return tree_edit.apply_merge_patch(base, patch, by_id)


def _answer(ask: Callable[[], Json]) -> Json:
    try:
        return {"ok": True, "value": ask()}
    except HomarusError as error:
        return {"ok": False, "error": error.message}


def _wake(payload: Json) -> Json:
    return _answer(lambda: asdict(hook_requests.parse_wake(payload)))


def _hook_key(rules: Json, source: Any, key: str | None = None) -> Json:
    allowed = hook_requests.HookKeyRules(
        get(rules, "req", False), tuple(get(rules, "pre", ())), get(rules, "def", "")
    )
    return _answer(lambda: hook_requests.hook_session_key(allowed, source, key))


def _hook_agent(allowed: list[str] | None, agent: str | None = None) -> Json:
    return hook_requests.is_agent_allowed(allowed, agent, ("main", "hooks"), "main")


def _device_payload(ask: Json) -> Json:
    return identity.auth_payload(
        device_id=ask["deviceId"],
        client_id=ask["clientId"],
        client_mode=ask["clientMode"],
        role=ask["role"],
        scopes=ask["scopes"],
        signed_at_ms=ask["signedAtMs"],
        token=ask.get("token"),
        nonce=ask.get("nonce"),
    )


def _node_commands(config: Json, node: Json, commands: list[str]) -> Json:
    kind = nodes.device_kind(get(node, "platform", ""), get(node, "deviceFamily", ""))
    rules = get(get(config, "gateway", {}), "nodes", {})
    allowed = nodes.allowed_commands(
        kind, get(rules, "allowCommands", ()), get(rules, "denyCommands", ())
    )
    return {command: command in allowed for command in commands}


def _elevated_mode(level: str) -> Json:
    return levels.elevated_mode(cast("levels.ElevatedLevel", level))


def _signal(text: str) -> Json:
    found = markup.signal(text, "off")
    styles = [
        {"start": style.start, "length": style.length, "style": style.name}
        for style in found.styles
    ]
    return {"text": found.text, "styles": styles}


def _chunks(text: str, ask: Json) -> Json:
    return [
        {
            "startLine": found.start_line,
            "endLine": found.end_line,
            "text": found.text,
            "hash": hybrid_scoring.hash_text(found.text),
        }
        for found in notes.cut_chunks(text, ask["tokens"], ask["overlap"])
    ]


def _merged_hits(ask: Json) -> Json:
    decay = get(ask, "temporalDecay", {})
    weights = hybrid_scoring.HybridWeights(
        ask["vectorWeight"],
        ask["textWeight"],
        get(decay, "halfLifeDays", 30.0) if decay.get("enabled") else 0.0,
    )
    vector, keyword = ([_hit(one) for one in ask[side]] for side in ("vector", "keyword"))
    hits = hybrid_scoring.merge(vector, keyword, weights, get(ask, "nowMs", 0))
    mmr = get(ask, "mmr", {})
    if get(mmr, "enabled", False):
        hits = hybrid_scoring.diversify_hits(hits, get(mmr, "lambda", 0.7))
    return [
        {
            "path": hit.path,
            "startLine": hit.start_line,
            "endLine": hit.end_line,
            "score": hit.score,
            "snippet": hit.snippet,
            "source": hit.source,
        }
        for hit in hits
    ]


def _hit(told: Json) -> hybrid_scoring.Hit:
    where = (told["id"], told["path"], told["startLine"], told["endLine"])
    scores = (told.get("vectorScore", 0.0), told.get("textScore", 0.0))
    return hybrid_scoring.Hit(*where, told["snippet"], told["source"], *scores)


TABLE: dict[str, Adapter] = {
    # session_keys
    "parse_agent_session_key": _agent_key,
    "classify_session_key_shape": session_keys.key_form,
    "normalize_agent_id": session_keys.normalize_agent_id,
    "normalize_main_key": session_keys.normalize_main_key,
    "normalize_account_id": session_keys.normalize_account_id,
    "to_agent_store_session_key": _store_key,
    "to_agent_request_session_key": session_keys.key_without_agent,
    "build_agent_peer_session_key": _peer_key,
    "resolve_thread_session_keys": _thread_keys,
    "resolve_thread_parent_session_key": session_keys.thread_parent,
    "is_subagent_session_key": session_keys.is_subagent,
    "get_subagent_depth": session_keys.subagent_depth,
    "is_cron_session_key": session_keys.is_cron,
    "is_cron_run_session_key": session_keys.is_cron_run,
    "is_acp_session_key": session_keys.is_acp,
    # routing
    "resolve_agent_route": _agent_route,
    # levels
    "normalize_think_level": levels.think_level,
    "normalize_verbose_level": levels.verbose_level,
    "normalize_reasoning_level": levels.reasoning_level,
    "normalize_elevated_level": levels.elevated_level,
    "normalize_usage_display": levels.usage_display,
    "resolve_elevated_mode": _elevated_mode,
    "list_thinking_levels": levels.think_levels,
    "list_thinking_level_labels": levels.think_labels,
    "normalize_queue_mode": levels.queue_mode,
    "normalize_queue_drop": levels.queue_drop,
    # prompt_context
    "inject_timestamp": session_functions.inject_timestamp,
    "format_agent_envelope": session_functions.format_agent_envelope,
    "build_bootstrap_context_files": session_functions.build_bootstrap_context_files,
    "prune_context_messages": session_functions.prune_context_messages,
    # sessions
    "resolve_session_reset_policy": session_functions.resolve_session_reset_policy,
    "resolve_session_reset_type": session_functions.resolve_session_reset_type,
    "evaluate_session_freshness": session_functions.evaluate_session_freshness,
    "resolve_send_policy": session_functions.resolve_send_policy,
    "parse_session_label": session_functions.parse_session_label,
    "transcript_file_name": lambda *ask: f"/s/{transcript_file_name(*ask)}",
    "resolve_fresh_total_tokens": lambda entry=None: usage.last_prompt_tokens(entry),
    # inline_directives
    "extract_think": directive_functions.extract_think,
    "extract_verbose": directive_functions.extract_verbose,
    "extract_reasoning": directive_functions.extract_reasoning,
    "extract_elevated": directive_functions.extract_elevated,
    "extract_notice": directive_functions.extract_notice,
    "extract_status": directive_functions.extract_status,
    "extract_exec": directive_functions.extract_exec,
    "extract_queue": directive_functions.extract_queue,
    "extract_model": directive_functions.extract_model,
    "parse_inline_directives": directive_functions.parse_inline_directives,
    # frontmatter_and_fences
    "parse_fence_spans": _fences,
    "parse_frontmatter_block": frontmatter.read_texts,
    "resolve_skill_invocation_policy": _invocation,
    "resolve_openclaw_metadata": _metadata,
    # text_chunking
    "chunk_text": chunk.chunk_text,
    "chunk_markdown_text": chunk.chunk_markdown_text,
    "chunk_by_newline": _by_newline,
    "chunk_by_paragraph": _by_paragraph,
    "chunk_markdown_with_mode": chunk.chunk_markdown_with_mode,
    "resolve_text_chunk_limit": _limit,
    # markdown_formatting
    "markdown_to_telegram_html": lambda text: markup.render(text, "telegram", "off"),
    "markdown_to_slack_mrkdwn": lambda text: markup.render(text, "slack", "off"),
    "markdown_to_signal_text": _signal,
    "markdown_to_whatsapp": lambda text: markup.render(text, "whatsapp", "off"),
    "convert_markdown_tables": lambda text, mode=None: markup.convert_tables(text, mode or "off"),
    # block_chunker
    "block_chunker": _chunker,
    # heartbeat_and_silent_tokens
    "strip_heartbeat_token": _ack,
    "is_heartbeat_content_effectively_empty": _of_any(silent_reply.is_blank_checklist),
    "is_silent_reply_text": _of_text(silent_reply.is_silent_text),
    # reply_text
    "parse_reply_directives": _reply,
    "split_media_from_output": _media,
    "strip_reasoning_tags": _of_text(lambda text: reply_cleaner.clean_reply(text).text),
    "is_abort_trigger": _of_text(commands.is_abort_trigger),
    "is_abort_request_text": _abort_request,
    "normalize_command_body": _command_body,
    "has_control_command": _control_command,
    "has_inline_command_tokens": _of_text(commands.has_inline_command_tokens),
    # misc
    "should_run_memory_flush": session_functions.should_run_memory_flush,
    "parse_duration_ms": _duration,
    "resolve_mention_gating": _mention_gate,
    "resolve_mention_gating_with_bypass": _command_gate,
    "resolve_command_authorized": _may_command,
    "announce_idempotency_key": session_keys.announce_key,
    "is_within_active_hours": _active,
    "parse_byte_size": _size,
    "parse_model_ref": _model_ref,
    "normalize_provider_id": model_refs.normalize_provider_id,
    "apply_queue_drop_policy": session_functions.apply_queue_drop_policy,
    "build_queue_summary_prompt": session_functions.build_queue_summary_prompt,
    "build_queue_summary_line": _of_text(queue_policy.summary_line),
    "resolve_queue_settings": session_functions.resolve_queue_settings,
    "resolve_typing_mode": _typing_mode,
    # gateway
    "diff_config_paths": diff_config_paths,
    "apply_merge_patch": _merge,
    "resolve_config_env_vars": resolve_env_vars,
    "resolve_agent_id_from_model": session_keys.agent_of_model,
    "normalize_wake_payload": _wake,
    "resolve_hook_session_key": _hook_key,
    "is_hook_agent_allowed": _hook_agent,
    "build_device_auth_payload": _device_payload,
    "node_command_allowlist_has": _node_commands,
    # memory
    "chunk_markdown": _chunks,
    "is_memory_path": hybrid_scoring.is_memory_path,
    "normalize_rel_path": hybrid_scoring.normalize_path,
    "cosine_similarity": hybrid_scoring.cosine_similarity,
    "build_fts_query": hybrid_scoring.build_query,
    "bm25_rank_to_score": hybrid_scoring.rank_to_score,
    "merge_hybrid_results": _merged_hits,
    "jaccard_text_similarity": hybrid_scoring.text_similarity,
    "compute_mmr_score": lambda relevance, alike, balance: hybrid_scoring.mmr_score(
        relevance, alike, balance
    ),
    "temporal_decay_multiplier": lambda ask: hybrid_scoring.decay(
        ask["ageInDays"], ask["halfLifeDays"]
    ),
    "hash_text": hybrid_scoring.hash_text,
    # tool_policy
    "normalize_tool_name": policy_functions.resolve_tool_name,
    "expand_tool_groups": policy_functions.expand_tool_groups,
    "resolve_tool_profile_policy": policy_functions.resolve_profile,
    "is_tool_allowed_by_policy_name": policy_functions.is_tool_allowed,
    "resolve_subagent_tool_policy": policy_functions.resolve_subagent_policy,
    "merge_also_allow": policy_functions.extend_allow_list,
    "is_owner_only_tool": policy_functions.is_owner_only,
    "glob_match": policy_functions.matches_glob,
}

# By call (`fn(args)`): internal steps of OpenClaw that are not visible outside.
_OWN_NAMES = "000's tool names: memory_write and file_delete are tools, ui_* is the question card"
NOT_APPLICABLE: dict[str, NotApplicable] = {
    'expand_tool_groups(["group:web", "group:memory", "web_fetch"])': NotApplicable(
        "group:memory also has memory_write", _OWN_NAMES
    ),
    'expand_tool_groups(["group:openclaw"])': NotApplicable(
        "the program's own tools are also memory_write, ask_user and those of 2026.9", _OWN_NAMES
    ),
    'expand_tool_groups(["group:ui", "group:automation", "group:messaging", "group:nodes"])': (
        NotApplicable("group:ui also has ask_user, for ui_notify and others", _OWN_NAMES)
    ),
    'expand_tool_groups(["group:fs"])': NotApplicable(
        "group:fs also has file_delete, and ls, find, grep, which OpenClaw does not enable",
        _OWN_NAMES,
    ),
    'resolve_tool_profile_policy("minimal")': NotApplicable(
        "minimal is memory and session_status", "tool profiles and skill precedence"
    ),
}

TABLE |= exec_functions.TABLE | schedule_functions.TABLE
NOT_APPLICABLE |= exec_functions.NOT_APPLICABLE
