"""The table of our functions by the name of OpenClaw's function.

An adapter only converts names and values: camelCase to our names, values to JSON and back. A
missing key in a result means "undefined".
"""

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast
from zoneinfo import ZoneInfo

from pydantic.alias_generators import to_snake

from homarus.agent.commands import catalog as commands
from homarus.agent.context import memory_flush, pruning
from homarus.agent.prompt import injection
from homarus.agent.reply import blocks, reply_cleaner, typing_policy
from homarus.agent.reply import reply_parser as replies
from homarus.channels import chunk, markup
from homarus.channels.registry import find_traits
from homarus.config import frontmatter, model_refs, schema, timezone, tree_edit
from homarus.config.schema import ContextPruningConfig, QueueConfig, SoftTrimConfig
from homarus.core import fences, session_keys, silent_reply, units
from homarus.core.errors import HomarusError
from homarus.core.message import Message, Text, ToolResult
from homarus.core.text import utf16_len
from homarus.gateway import hook_requests, identity, nodes
from homarus.memory import chunking as notes
from homarus.memory import hybrid_scoring
from homarus.policy import access
from homarus.sessions import (
    directives,
    envelope,
    levels,
    queue_policy,
    reset,
    routing,
    send_policy,
    session,
    transcript,
    usage,
)
from homarus.skills import skill
from homarus.store.base import TranscriptEntry
from homarus.store.state_paths import transcript_file_name
from tests.vectors.cases import Adapter, Json, NotApplicable
from tests.vectors.config_functions import diff_config_paths, resolve_env_vars


def _stamped(text: str, ask: Json) -> str:
    at_ms = round(datetime.fromisoformat(ask["now"]).timestamp() * 1000)
    return envelope.with_timestamp(text, at_ms, ZoneInfo(ask["timezone"]))


def _enveloped(ask: Json) -> str:
    told = ask.get("envelope", {})
    line = envelope.header(
        ask["channel"],
        ask.get("from", ""),
        host=ask.get("host", ""),
        ip=ask.get("ip", ""),
        at_ms=ask.get("timestamp", 0),
        previous_ms=ask.get("previousTimestamp", 0),
        rules=envelope.EnvelopeOptions(
            zone=UTC if told.get("timezone") == "utc" else None,
            timestamp=told.get("includeTimestamp", True),
            elapsed=told.get("includeElapsed", True),
        ),
    )
    return f"{line} {ask['body']}"


def _injected(files: Json, limits: Json) -> Json:
    found = [
        injection.WorkspaceFile(
            file["name"], file["path"], file.get("content", ""), missing=file["missing"]
        )
        for file in files
    ]
    most, total = limits.get("maxChars", 20_000), limits.get("totalMaxChars", 150_000)
    shown = injection.inject(found, most, total)
    return [{"path": file.path, "content": file.text} for file in shown]


def _agent_key(key: str | None) -> Json:
    parsed = session_keys.parse_agent_key(key)
    return parsed and {"agentId": parsed.agent, "rest": parsed.rest}


def _store_key(ask: Json) -> Json:
    return session_keys.canonical_key(ask["requestKey"], ask["agentId"], main=ask.get("mainKey"))


def _peer_key(ask: Json) -> Json:
    return session_keys.peer_key(
        ask["agentId"],
        ask["channel"],
        ask["peerKind"],
        ask["peerId"],
        account=ask.get("accountId"),
        scope=ask.get("dmScope", "main"),
        main=ask.get("mainKey"),
        traits=find_traits(ask["channel"]),
        identity_links=ask.get("identityLinks"),
    )


def _thread_keys(ask: Json) -> Json:
    own_chat = ask.get("useSuffix") is False
    key = session_keys.thread_key(ask["baseSessionKey"], ask.get("threadId"), own_chat=own_chat)
    return {"sessionKey": key, "parentSessionKey": ask.get("parentSessionKey")}


def _agent_route(ask: Json) -> Json:
    peer, parent = ask.get("peer") or {}, ask.get("parentPeer") or {}
    found = routing.resolve_route(
        schema.Config.model_validate(ask["cfg"]),
        routing.RouteQuery(
            ask["channel"],
            ask.get("accountId") or "",
            peer.get("kind", ""),
            peer.get("id", ""),
            parent.get("kind", ""),
            parent.get("id", ""),
            ask.get("guildId") or "",
            ask.get("teamId") or "",
            tuple(ask.get("memberRoleIds", ())),
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


def _level(name: str, extract: Any) -> Adapter:
    def adapter(text: str) -> Json:
        cleaned, setting = extract(text)
        return {
            "cleaned": cleaned,
            "hasDirective": setting is not None,
            name: setting and setting.value,
            "rawLevel": (setting and setting.raw) or None,
        }

    return adapter


def _status(text: str) -> Json:
    cleaned, found = directives.extract_status(text)
    return {"cleaned": cleaned, "hasDirective": found}


def _exec_fields(setting: directives.ExecDirective | None) -> dict[str, Json]:
    fields: dict[str, Json] = {}
    for name in ("host", "security", "ask", "node"):
        option = getattr(setting, name) if setting else None
        title = name.capitalize()
        fields[f"exec{title}"] = option and option.value
        fields[f"rawExec{title}"] = option and option.raw
        fields[f"invalid{title}"] = option is not None and option.value is None
    fields["hasExecOptions"] = any(
        fields[f"rawExec{n}"] for n in ("Host", "Security", "Ask", "Node")
    )
    return fields


def _exec(text: str) -> Json:
    cleaned, setting = directives.extract_exec(text)
    return {"cleaned": cleaned, "hasDirective": setting is not None, **_exec_fields(setting)}


def _queue_fields(setting: directives.QueueDirective | None) -> dict[str, Json]:
    found = setting or directives.QueueDirective()
    return {
        "queueMode": found.mode and found.mode.value,
        "rawMode": found.mode and found.mode.raw,
        "queueReset": found.reset,
        "debounceMs": found.debounce_ms and found.debounce_ms.value,
        "cap": found.cap and found.cap.value,
        "dropPolicy": found.drop and found.drop.value,
        "rawDebounce": found.debounce_ms and found.debounce_ms.raw,
        "rawCap": found.cap and found.cap.raw,
        "rawDrop": found.drop and found.drop.raw,
        "hasOptions": any((found.debounce_ms, found.cap, found.drop)),
    }


def _queue(text: str) -> Json:
    cleaned, setting = directives.extract_queue(text)
    return {"cleaned": cleaned, "hasDirective": setting is not None, **_queue_fields(setting)}


def _model_fields(setting: directives.ModelDirective | None) -> dict[str, Json]:
    return {
        "rawModel": (setting and setting.name) or None,
        "rawProfile": (setting and setting.profile) or None,
    }


def _drop(state: Json) -> Json:
    decision = queue_policy.apply_cap(state["items"], state["cap"], state["dropPolicy"])
    lines = list(state["summaryLines"])
    summarized = decision.dropped if state["dropPolicy"] == "summarize" else ()
    told = {
        **state,
        "items": list(decision.kept),
        "droppedCount": state["droppedCount"] + len(summarized),
        "summaryLines": lines + [queue_policy.summary_line(gone) for gone in summarized],
    }
    return {"ok": decision.is_accepted, "queue": told}


def _queue_summary(ask: Json) -> Json:
    state = ask["state"]
    count = state["droppedCount"] if state["dropPolicy"] == "summarize" else 0
    return queue_policy.summary_prompt(count, state["summaryLines"]) or None


def _queue_settings(ask: Json) -> Json:
    config = QueueConfig.model_validate(ask["cfg"].get("messages", {}).get("queue", {}))
    found = queue_policy.resolve_queue_settings(
        config, channel=ask.get("channel", ""), entry=ask.get("sessionEntry")
    )
    return {
        "mode": found.mode,
        "debounceMs": found.debounce_ms,
        "cap": found.cap,
        "dropPolicy": found.drop,
    }


def _model(text: str, options: Json = None) -> Json:
    cleaned, setting = directives.extract_model(
        text, (options or {}).get("aliases", ()), commands.is_command_name
    )
    return {"cleaned": cleaned, "hasDirective": setting is not None, **_model_fields(setting)}


def _directives(text: str, options: Json = None) -> Json:
    options = options or {}
    found = directives.parse_directives(
        text,
        model_aliases=options.get("modelAliases", ()),
        is_command=commands.is_command_name,
        allow_elevated=not options.get("disableElevated"),
        allow_status=options.get("allowStatusDirective") is not False,
    )
    answer: dict[str, Json] = {"cleaned": found.text, "hasStatusDirective": found.status}
    for name in ("think", "verbose", "reasoning", "elevated"):
        setting = getattr(found, name)
        answer[f"has{name.capitalize()}Directive"] = setting is not None
        answer[f"{name}Level"] = setting and setting.value
        answer[f"raw{name.capitalize()}Level"] = (setting and setting.raw) or None
    for key, value in _exec_fields(found.exec).items():
        answer[key.replace("invalid", "invalidExec")] = value
    renamed = {"rawMode": "rawQueueMode", "hasOptions": "hasQueueOptions"}
    for key, value in _queue_fields(found.queue).items():
        answer[renamed.get(key, key)] = value
    answer["hasExecDirective"] = found.exec is not None
    answer["hasQueueDirective"] = found.queue is not None
    answer["hasModelDirective"] = found.model is not None
    model = _model_fields(found.model)
    return answer | {
        "rawModelDirective": model["rawModel"],
        "rawModelProfile": model["rawProfile"],
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
    options = options or {}
    return chunk.chunk_by_newline(
        text,
        limit,
        split_long_lines=options.get("splitLongLines", True),
        trim_lines=options.get("trimLines", True),
    )


def _by_paragraph(text: str, limit: int, options: Json = None) -> Json:
    split = (options or {}).get("splitLongParagraphs", True)
    return chunk.chunk_by_paragraph(text, limit, split_long_paragraphs=split)


def _limit(config: Json, channel: str, account: str | None = None) -> Json:
    return chunk.text_chunk_limit(config.get("channels", {}), channel, account)


def _reply(raw: str, options: Json = None) -> Json:
    word = (options or {}).get("silentToken", silent_reply.SILENT_WORD)
    found = reply_cleaner.clean_reply(raw, silent_word=word)
    return {
        "text": found.text,
        "mediaUrls": found.media or None,
        "mediaUrl": found.media[0] if found.media else None,
        "replyToId": found.reply_to or None,
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
            asked["breakPreference"],
            by_paragraph=asked.get("flushOnParagraph", False),
        )
    )
    after = [[chunk.text for chunk in chunker.add(piece)] for piece in ask["appends"]]
    return {"afterEachAppend": after, "forced": [chunk.text for chunk in chunker.flush()]}


def _ack(text: str | None, options: Json) -> Json:
    found = silent_reply.strip_heartbeat_ack(
        text,
        heartbeat=options["mode"] == "heartbeat",
        max_chars=options.get("maxAckChars", silent_reply.ACK_MAX_CHARS),
    )
    return {"shouldSkip": found.skip, "text": found.text, "didStrip": found.found}


def _typing_mode(ask: Json) -> Json:
    return typing_policy.typing_mode(
        ask.get("configured"),
        group=ask["isGroupChat"],
        mentioned=ask["wasMentioned"],
        heartbeat=ask["isHeartbeat"],
    )


def _media(raw: str) -> Json:
    text, media = replies.split_media(raw)
    return {"text": text, "mediaUrls": media or None, "mediaUrl": media[0] if media else None}


def _abort_request(text: str, options: Json = None) -> Json:
    return commands.is_abort_request_text(text, (options or {}).get("botUsername"))


def _mention(ask: Json) -> access.MentionState:
    return access.MentionState(
        required=ask["requireMention"],
        detectable=ask["canDetectMention"],
        mentioned=ask["wasMentioned"],
        implied=ask.get("implicitMention", False),
        elsewhere=ask.get("hasAnyMention", False),
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
        is_command=ask["isGroup"] and ask["allowTextCommands"] and ask["hasControlCommand"],
        may_command=ask["commandAuthorized"],
    )
    told = _mention_gate({**ask, "implicitMention": ordered or ask.get("implicitMention", False)})
    return {**told, "shouldBypassMention": ordered}


def _may_command(ask: Json) -> bool:
    rolls = [
        access.AllowlistMatch(roll["configured"], roll["allowed"]) for roll in ask["authorizers"]
    ]
    otherwise = ask.get("modeWhenAccessGroupsOff", "allow")
    return access.may_command(rolls, grouped=ask["useAccessGroups"], otherwise=otherwise)


def _active(config: Json, heartbeat: Json, at_ms: int) -> bool:
    hours = heartbeat["activeHours"]
    theirs = config.get("agents", {}).get("defaults", {}).get("userTimezone", "")
    return timezone.is_within_hours(
        hours["start"], hours["end"], hours.get("timezone", theirs), at_ms
    )


def _duration(text: str, options: Json = None) -> Json:
    return units.parse_duration_ms(text, (options or {}).get("defaultUnit", "ms"))


def _size(text: str, options: Json = None) -> Json:
    return units.parse_byte_size(text, (options or {}).get("defaultUnit", "b"))


def _model_ref(text: str, default: str) -> Json:
    found = model_refs.parse_model_ref(text, default)
    return found and {"provider": found.provider, "model": found.model}


def _merge(base: Json, patch: Json, options: Json = None) -> Json:
    by_id = bool((options or {}).get("mergeObjectArraysById"))
    return tree_edit.apply_merge_patch(base, patch, by_id)


def _answer(ask: Callable[[], Json]) -> Json:
    try:
        return {"ok": True, "value": ask()}
    except HomarusError as error:
        return {"ok": False, "error": error.message}


def _wake(payload: Json) -> Json:
    return _answer(lambda: asdict(hook_requests.parse_wake(payload)))


def _hook_key(rules: Json, source: Any, key: str | None = None) -> Json:
    allowed = hook_requests.HookKeyRules(rules.get("req", False), tuple(rules.get("pre", ())))
    return _answer(lambda: hook_requests.hook_session_key(allowed, source, key))


def _hook_agent(allowed: list[str], agent: str | None) -> Json:
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
    kind = nodes.device_kind(node.get("platform", ""), node.get("deviceFamily", ""))
    rules = config.get("gateway", {}).get("nodes", {})
    allowed = nodes.allowed_commands(
        kind, rules.get("allowCommands", ()), rules.get("denyCommands", ())
    )
    return {command: command in allowed for command in commands}


def _elevated_mode(level: str) -> Json:
    return levels.elevated_mode(cast("levels.ElevatedLevel", level))


def _pruned(messages: Json, settings: Json, window: int) -> Json:
    given = {to_snake(key): value for key, value in settings.items()}
    trim = {to_snake(key): value for key, value in given.pop("soft_trim", {}).items()}
    rules = ContextPruningConfig.model_construct(
        **given, soft_trim=SoftTrimConfig.model_construct(**trim)
    )  # not checked: OpenClaw's function accepts ratios that its config does not
    entries = [
        TranscriptEntry(str(at), None, "message", 0, {"message": m})
        for at, m in enumerate(messages)
    ]
    said = [message for entry in entries if (message := transcript.decode_message(entry))]
    cuts = pruning.prune(said, rules, window)
    return [_shown(pruning.apply_pruning(message, cuts, rules)) for message in said]


def _shown(message: Message) -> Json:
    text = "".join(part.text for part in message.parts if isinstance(part, Text | ToolResult))
    return {"role": "toolResult" if message.role == "tool" else message.role, "text": text}


def _flush(ask: Json) -> Json:
    return memory_flush.is_near(
        ask["entry"],
        window=ask["contextWindowTokens"],
        reserve=ask["reserveTokensFloor"],
        soft=ask["softThresholdTokens"],
    )


def _rule(given: Json) -> schema.ResetConfig:
    # Not checked: OpenClaw's function accepts hours that its config does not.
    return schema.ResetConfig.model_construct(
        **{to_snake(name): value for name, value in given.items()}
    )


def _reset_policy(ask: Json) -> Json:
    given = ask["sessionCfg"]
    by_type: Json = {kind: _rule(rule) for kind, rule in given.get("resetByType", {}).items()}
    config = schema.SessionConfig.model_construct(
        idle_minutes=given.get("idleMinutes"),
        reset=_rule(given["reset"]) if "reset" in given else None,
        reset_by_type=schema.ResetByTypeConfig.model_construct(**by_type) if by_type else None,
    )
    own = _rule(ask["resetOverride"]) if "resetOverride" in ask else None
    found = reset.reset_policy(config, ask["resetType"], own=own)
    return {"mode": found.mode, "atHour": found.at_hour, "idleMinutes": found.idle_minutes}


def _freshness(ask: Json) -> Json:
    given = ask["policy"]
    policy = reset.ResetPolicy(given["mode"], given["atHour"], given.get("idleMinutes"))
    found = reset.freshness(ask["updatedAt"], ask["now"], policy, ZoneInfo("UTC"))
    return {
        "fresh": found.is_fresh,
        "dailyResetAt": found.began_ms,
        "idleExpiresAt": found.expires_ms,
    }


def _send_policy(ask: Json) -> Json:
    given = ask["cfg"].get("session", {}).get("sendPolicy", {})
    return send_policy.send_policy(
        schema.SendPolicyConfig.model_validate(given),
        ask.get("sessionKey", ""),
        ask.get("entry"),
        channel=ask.get("channel", ""),
        chat_type=ask.get("chatType", ""),
    )


def _label(raw: Json) -> Json:
    try:
        return {"ok": True, "label": session.parse_session_label(raw)}
    except HomarusError as error:
        return {"ok": False, "error": str(error)}


def _signal(text: str) -> Json:
    found = markup.signal(text, "off")
    return {"text": found.text, "styles": [asdict(style) for style in found.styles]}


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
    decay = ask.get("temporalDecay", {})
    weights = hybrid_scoring.HybridWeights(
        ask["vectorWeight"],
        ask["textWeight"],
        decay["halfLifeDays"] if decay.get("enabled") else 0.0,
    )
    vector, keyword = ([_hit(one) for one in ask[side]] for side in ("vector", "keyword"))
    return [
        {
            "path": hit.path,
            "startLine": hit.start_line,
            "endLine": hit.end_line,
            "score": hit.score,
            "snippet": hit.snippet,
            "source": hit.source,
        }
        for hit in hybrid_scoring.merge(vector, keyword, weights, ask.get("nowMs", 0))
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
    "inject_timestamp": _stamped,
    "format_agent_envelope": _enveloped,
    "build_bootstrap_context_files": _injected,
    "prune_context_messages": _pruned,
    # sessions
    "resolve_session_reset_policy": _reset_policy,
    "resolve_session_reset_type": lambda ask: reset.reset_type(ask["sessionKey"]),
    "evaluate_session_freshness": _freshness,
    "resolve_send_policy": _send_policy,
    "parse_session_label": _label,
    "transcript_file_name": lambda *ask: f"/s/{transcript_file_name(*ask)}",
    "resolve_fresh_total_tokens": usage.last_prompt_tokens,
    # inline_directives
    "extract_think": _level("thinkLevel", directives.extract_think),
    "extract_verbose": _level("verboseLevel", directives.extract_verbose),
    "extract_reasoning": _level("reasoningLevel", directives.extract_reasoning),
    "extract_elevated": _level("elevatedLevel", directives.extract_elevated),
    "extract_notice": _level("noticeLevel", directives.extract_notice),
    "extract_status": _status,
    "extract_exec": _exec,
    "extract_queue": _queue,
    "extract_model": _model,
    "parse_inline_directives": _directives,
    # frontmatter_and_fences
    "parse_fence_spans": _fences,
    "parse_frontmatter_block": frontmatter.parse_frontmatter,
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
    "convert_markdown_tables": markup.convert_tables,
    # block_chunker
    "block_chunker": _chunker,
    # heartbeat_and_silent_tokens
    "strip_heartbeat_token": _ack,
    "is_heartbeat_content_effectively_empty": silent_reply.is_blank_checklist,
    "is_silent_reply_text": silent_reply.is_silent_text,
    # reply_text
    "parse_reply_directives": _reply,
    "split_media_from_output": _media,
    "strip_reasoning_tags": lambda text: reply_cleaner.clean_reply(text).text,
    "is_abort_trigger": commands.is_abort_trigger,
    "is_abort_request_text": _abort_request,
    "normalize_command_body": commands.normalize_command_body,
    "has_control_command": commands.has_control_command,
    "has_inline_command_tokens": commands.has_inline_command_tokens,
    # misc
    "should_run_memory_flush": _flush,
    "parse_duration_ms": _duration,
    "resolve_mention_gating": _mention_gate,
    "resolve_mention_gating_with_bypass": _command_gate,
    "resolve_command_authorized": _may_command,
    "announce_idempotency_key": session_keys.announce_key,
    "is_within_active_hours": _active,
    "parse_byte_size": _size,
    "parse_model_ref": _model_ref,
    "normalize_provider_id": model_refs.normalize_provider_id,
    "apply_queue_drop_policy": _drop,
    "build_queue_summary_prompt": _queue_summary,
    "build_queue_summary_line": queue_policy.summary_line,
    "resolve_queue_settings": _queue_settings,
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
}

# By call (`fn(args)`): internal steps of OpenClaw that are not visible outside.
NOT_APPLICABLE: dict[str, NotApplicable] = {}
