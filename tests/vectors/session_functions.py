"""Adapters of the functions for sessions, queues and the context of a model."""

from datetime import datetime
from typing import cast

from pydantic.alias_generators import to_snake

from homarus.agent.context import memory_flush, pruning
from homarus.agent.prompt import injection
from homarus.config import schema, timezone
from homarus.config.schema import ContextPruningConfig, QueueConfig, SoftTrimConfig
from homarus.core.errors import HomarusError
from homarus.core.message import Message, Text, ToolResult
from homarus.sessions import envelope, queue_policy, reset, send_policy, session, transcript
from homarus.sessions.directives import DirectiveValue, QueueDirective
from homarus.store.base import TranscriptEntry
from tests.vectors.cases import Json, get


def inject_timestamp(text: str, ask: Json = None) -> str:
    at_ms = round(datetime.fromisoformat(get(ask, "now", "")).timestamp() * 1000)
    zone = timezone.load_zone(get(ask, "timezone", "UTC"))
    return envelope.with_timestamp(text, at_ms, zone)


def format_agent_envelope(ask: Json) -> str:
    rules = get(ask, "envelope", {})
    own_zone = timezone.load_zone(get(rules, "userTimezone", ""))
    line = envelope.header(
        get(ask, "channel", ""),
        get(ask, "from", ""),
        host=get(ask, "host", ""),
        ip=get(ask, "ip", ""),
        at_ms=get(ask, "timestamp", 0),
        previous_ms=get(ask, "previousTimestamp", 0),
        rules=envelope.EnvelopeOptions(
            zone=envelope.resolve_envelope_zone(rules.get("timezone"), own_zone),
            timestamp=get(rules, "includeTimestamp", True),
            elapsed=get(rules, "includeElapsed", True),
        ),
    )
    return f"{line} {get(ask, 'body', '')}"


def build_bootstrap_context_files(files: Json, limits: Json = None) -> Json:
    found = [
        injection.WorkspaceFile(
            file["name"],
            file["path"],
            get(file, "content", ""),
            missing=get(file, "missing", False),
        )
        for file in files
    ]
    max_chars, total = get(limits, "maxChars", 20_000), get(limits, "totalMaxChars", 150_000)
    shown = injection.inject(found, max_chars, total)
    return [{"path": file.path, "content": file.text} for file in shown]


def apply_queue_drop_policy(state: Json) -> Json:
    cap, policy = state["cap"], state["dropPolicy"]
    decision = queue_policy.apply_cap(state["items"], cap, policy)
    after = {**state, "items": list(decision.kept)}
    if policy == "summarize" and decision.dropped:
        lines = [*get(state, "summaryLines", []), *map(queue_policy.summary_line, decision.dropped)]
        after["droppedCount"] = get(state, "droppedCount", 0) + len(decision.dropped)
        after["summaryLines"] = queue_policy.recent_summary_lines(lines, cap)
    return {"ok": decision.is_accepted, "queue": after}


def build_queue_summary_prompt(ask: Json) -> Json:
    state = ask["state"]
    count = state["droppedCount"] if state["dropPolicy"] == "summarize" else 0
    lines, noun, title = state["summaryLines"], get(ask, "noun", "message"), get(ask, "title", "")
    return queue_policy.summary_prompt(count, lines, noun=noun, title=title) or None


def resolve_queue_settings(ask: Json) -> Json:
    # Not checked: OpenClaw's function accepts numbers that its config does not.
    given = get(get(get(ask, "cfg", {}), "messages", {}), "queue", {})
    fields = {to_snake(name): value for name, value in given.items()}
    fields["by_channel"] = schema.QueueByChannelConfig.model_validate(get(given, "byChannel", {}))
    config = QueueConfig.model_construct(**fields)
    found = queue_policy.resolve_queue_settings(
        config,
        channel=get(ask, "channel", ""),
        entry=ask.get("sessionEntry"),
        inline=_inline_queue(ask.get("inlineMode"), get(ask, "inlineOptions", {})),
    )
    return {
        "mode": found.mode,
        "debounceMs": found.debounce_ms,
        "cap": found.cap,
        "dropPolicy": found.drop,
    }


def _inline_queue(mode: Json, options: Json) -> QueueDirective:
    values = (options.get(name) for name in ("debounceMs", "cap", "dropPolicy"))
    given = (None if value is None else DirectiveValue(value) for value in (mode, *values))
    return QueueDirective(*cast("tuple[Json, Json, Json, Json]", tuple(given)))


def prune_context_messages(messages: Json, settings: Json, window: int) -> Json:
    given = {to_snake(key): value for key, value in settings.items()}
    trim = {to_snake(key): value for key, value in given.pop("soft_trim", {}).items()}
    rules = ContextPruningConfig.model_construct(
        **given, soft_trim=SoftTrimConfig.model_construct(**trim)
    )  # not checked: OpenClaw's function accepts ratios that its config does not
    entries = [
        TranscriptEntry(str(at), None, "message", 0, {"message": m})
        for at, m in enumerate(messages)
    ]
    decoded = [message for entry in entries if (message := transcript.decode_message(entry))]
    cuts = pruning.prune(decoded, rules, window)
    return [_shown(pruning.apply_pruning(message, cuts, rules)) for message in decoded]


def _shown(message: Message) -> Json:
    text = "".join(part.text for part in message.parts if isinstance(part, Text | ToolResult))
    return {"role": "toolResult" if message.role == "tool" else message.role, "text": text}


def should_run_memory_flush(ask: Json) -> Json:
    return memory_flush.is_near(
        get(ask, "entry", {}),
        window=ask["contextWindowTokens"],
        reserve=ask["reserveTokensFloor"],
        soft=ask["softThresholdTokens"],
    )


def _rule(given: Json) -> schema.ResetConfig:
    # Not checked: OpenClaw's function accepts hours that its config does not.
    return schema.ResetConfig.model_construct(
        **{to_snake(name): value for name, value in given.items()}
    )


def resolve_session_reset_policy(ask: Json) -> Json:
    given = get(ask, "sessionCfg", {})
    by_type: Json = {
        kind: _rule(rule) for kind, rule in get(given, "resetByType", {}).items() if rule
    }
    config = schema.SessionConfig.model_construct(
        idle_minutes=given.get("idleMinutes"),
        reset=_rule(given["reset"]) if given.get("reset") is not None else None,
        reset_by_type=(
            schema.ResetByTypeConfig.model_construct(**by_type)
            if given.get("resetByType") is not None
            else None
        ),
    )
    own = _rule(ask["resetOverride"]) if ask.get("resetOverride") is not None else None
    found = reset.reset_policy(config, get(ask, "resetType", "direct"), own=own)
    return {"mode": found.mode, "atHour": found.at_hour, "idleMinutes": found.idle_minutes}


def resolve_session_reset_type(ask: Json) -> Json:
    is_group, is_thread = get(ask, "isGroup", False), get(ask, "isThread", False)
    return reset.reset_type(ask.get("sessionKey"), is_group=is_group, is_thread=is_thread)


def evaluate_session_freshness(ask: Json) -> Json:
    given = ask["policy"]
    policy = reset.ResetPolicy(
        given["mode"], get(given, "atHour", reset.AT_HOUR), given.get("idleMinutes")
    )
    found = reset.freshness(ask["updatedAt"], ask["now"], policy)
    return {
        "fresh": found.is_fresh,
        "dailyResetAt": found.began_ms,
        "idleExpiresAt": found.expires_ms,
    }


def resolve_send_policy(ask: Json) -> Json:
    given = get(get(get(ask, "cfg", {}), "session", {}), "sendPolicy", {})
    return send_policy.send_policy(
        schema.SendPolicyConfig.model_validate(given),
        get(ask, "sessionKey", ""),
        ask.get("entry"),
        channel=get(ask, "channel", ""),
        chat_type=get(ask, "chatType", ""),
    )


def parse_session_label(raw: Json) -> Json:
    try:
        return {"ok": True, "label": session.parse_session_label(raw)}
    except HomarusError as error:
        return {"ok": False, "error": str(error)}
