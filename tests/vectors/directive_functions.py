"""Adapters of the functions for inline directives."""

from typing import Any

from homarus.agent.commands import catalog as commands
from homarus.sessions import directives
from tests.vectors.cases import Adapter, Json, get


def _level(name: str, extract: Any) -> Adapter:
    def adapter(text: str | None = None) -> Json:
        cleaned, setting = extract(text or "")
        return {
            "cleaned": cleaned,
            "hasDirective": setting is not None,
            name: setting and setting.value,
            "rawLevel": (setting and setting.raw) or None,
        }

    return adapter


def extract_status(text: str | None = None) -> Json:
    cleaned, found = directives.extract_status(text or "")
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
        fields[f"rawExec{n}"] is not None for n in ("Host", "Security", "Ask", "Node")
    )
    return fields


def extract_exec(text: str | None = None) -> Json:
    cleaned, setting = directives.extract_exec(text or "")
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


def extract_queue(text: str | None = None) -> Json:
    cleaned, setting = directives.extract_queue(text or "")
    return {"cleaned": cleaned, "hasDirective": setting is not None, **_queue_fields(setting)}


def _model_fields(setting: directives.ModelDirective | None) -> dict[str, Json]:
    if setting is None or setting == directives.ModelDirective():
        return {"rawModel": None, "rawProfile": None}
    return {"rawModel": setting.name, "rawProfile": setting.profile or None}


def extract_model(text: str | None = None, options: Json = None) -> Json:
    cleaned, setting = directives.extract_model(
        text or "", get(options, "aliases", ()), commands.is_command_name
    )
    return {"cleaned": cleaned, "hasDirective": setting is not None, **_model_fields(setting)}


def parse_inline_directives(text: str, options: Json = None) -> Json:
    found = directives.parse_directives(
        text,
        model_aliases=get(options, "modelAliases", ()),
        is_command=commands.is_command_name,
        allow_elevated=not get(options, "disableElevated", False),
        allow_status=get(options, "allowStatusDirective", True),
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


extract_think = _level("thinkLevel", directives.extract_think)
extract_verbose = _level("verboseLevel", directives.extract_verbose)
extract_reasoning = _level("reasoningLevel", directives.extract_reasoning)
extract_elevated = _level("elevatedLevel", directives.extract_elevated)
extract_notice = _level("noticeLevel", directives.extract_notice)
