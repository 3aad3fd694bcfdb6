"""Write docs/reference, and a man page, from the program: `python docs/generate.py [--check]`.

A test runs `--check`: a command, key, tool, event or error that is missing there fails it.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from homarus.agent.commands.catalog import COMMANDS, RESETS
from homarus.agent.commands.listing import command_handlers
from homarus.channels.registry import available_channels, channel_label, load_channel
from homarus.cli.command_group import command_help
from homarus.cli.main import GROUPS, group
from homarus.config.channels import AccountSettings
from homarus.config.ignored_settings import UNREAD_KEYS, WITHOUT_EFFECT
from homarus.config.json_schema import described_schema
from homarus.config.known_keys import OWN_KEYS
from homarus.config.memory import MemoryConfig, MemorySearchConfig
from homarus.config.schema import Config
from homarus.core import errors, event, message
from homarus.gateway.methods import METHODS, UNIMPLEMENTED
from homarus.plugins import hooks as plugin_hooks
from homarus.tools.catalog import builtin_tools
from homarus.tools.tool import Tool

REFERENCE = Path(__file__).parent / "reference"
EXAMPLES = Path(__file__).parent / "examples" / "tools"
MAN = "homarus.1"
MADE_BY = "<!-- Written by docs/generate.py from the program itself. Do not edit. -->"


def pages() -> dict[str, str]:
    """Return every page of the reference: file name → text."""
    made = {
        "commands.md": commands(),
        "chat-commands.md": chat_commands(),
        "config.md": config(),
        "errors.md": errors_page(),
        "events.md": events(),
        "hooks.md": hooks(),
        "protocol.md": protocol(),
        "tools.md": tools(),
        **{f"tools/{tool.name}.md": tool_page(tool) for tool in builtin_tools()},
    }
    page = f'.\\" {MADE_BY[5:-4]}\n{man_page()}\n'
    return {
        **{name: f"{MADE_BY}\n\n{text.rstrip()}\n" for name, text in made.items()},
        MAN: page,
    }


# Commands


def commands() -> str:
    root = root_context()
    parts = [
        f"# Commands\n\n{_command(root)}",
        "`homarus help COMMAND` shows the same in a terminal.",
    ]
    for title, rows in GROUPS.items():
        links = [(f"[{name}](#homarus-{name})", line) for name, (_, line) in rows.items()]
        parts.append(f"**{title}**\n\n{_table(('command', 'meaning'), links)}")
    return "\n\n".join([*parts, *map(_command, below(root))])


def root_context() -> click.Context:
    return click.Context(group, info_name="homarus", **group.context_settings)


def below(ctx: click.Context) -> Iterator[click.Context]:
    """Return every command below this one that help shows."""
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None
            if not command.hidden:
                inner = click.Context(command, info_name=name, parent=ctx)
                yield inner
                yield from below(inner)


def _command(ctx: click.Context) -> str:
    text, lines = command_help(ctx.command)
    title = f"## {ctx.command_path}\n\n" if ctx.parent else ""
    shown = "\n".join(f"$ {line}" for line in lines)
    rows = [(f"`{flag}`", meaning) for flag, meaning in parameters(ctx)]
    options = _table(("option", "meaning"), rows)
    return f"{title}{text}\n\n```\n{usage(ctx)}\n```\n\n```console\n{shown}\n```\n\n{options}"


def usage(ctx: click.Context) -> str:
    return " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])


def parameters(ctx: click.Context) -> list[tuple[str, str]]:
    """Return the arguments and options of a command as help shows them."""
    found = (param.get_help_record(ctx) for param in ctx.command.get_params(ctx))
    return [record for record in found if record]


# The man page


def man_page() -> str:
    """Return homarus(1) as roff."""
    root = root_context()
    text, lines = command_help(group)
    parts = [
        '.TH HOMARUS 1 "" "Homarus" "User Commands"',
        ".SH NAME",
        f"homarus \\- {_roff(text.removeprefix('Homarus: ').rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_roff(usage(root))}",
        ".SH DESCRIPTION",
        "Agents live in a folder of Markdown, and answer in the terminal, in a browser page and in",
        "chats. Each command below has its own help:",
        ".B homarus help COMMAND",
        ".SH OPTIONS",
        *_man_options(root),
    ]
    for title, rows in GROUPS.items():
        parts.append(f".SH {_roff(title.upper())}")
        for ctx in below(root):
            if ctx.command_path.split()[1] in rows:
                parts += _man_command(ctx)
    parts += [".SH EXAMPLES", *_man_examples(lines), ".SH FILES", *_man_rows(MAN_FILES)]
    parts += [".SH ENVIRONMENT", *_man_rows(MAN_ENVIRONMENT)]
    parts += [".SH EXIT STATUS", *_man_rows(MAN_STATUS)]
    return "\n".join(parts)


MAN_FILES = (
    ("~/.openclaw/openclaw.json", "The configuration, as JSON5."),
    ("~/.openclaw/homarus.json", "Settings that OpenClaw does not know."),
    ("~/.openclaw/workspace", "The workspace of the default agent."),
    ("~/.openclaw/agents", "Sessions and credentials of each agent."),
    ("~/.openclaw/state.sqlite", "The database of sessions and messages."),
)
MAN_ENVIRONMENT = (
    ("OPENCLAW_STATE_DIR", "The state directory instead of ~/.openclaw."),
    ("OPENCLAW_CONFIG_PATH", "The configuration file."),
    ("OPENCLAW_PROFILE", "The same as --profile."),
    ("OPENCLAW_GATEWAY_TOKEN, OPENCLAW_GATEWAY_PASSWORD", "The secret of the gateway."),
)
MAN_STATUS = (
    ("0", "Success."),
    ("1", "The command failed."),
    ("2", "The command line or the configuration is wrong."),
    ("75", "The gateway cannot start now, and may later."),
    ("130", "Interrupted."),
)


def _man_command(ctx: click.Context) -> list[str]:
    text, lines = command_help(ctx.command)
    paragraphs = [_roff(_one_line(one)) for one in text.split("\n\n")]
    described = "\n.PP\n".join(paragraphs)
    options = [row for row in _man_options(ctx) if row]
    return [
        f".SS {_roff(usage(ctx))}", described, *options, ".PP", "Examples:", *_man_examples(lines)
    ]  # fmt: skip


def _man_options(ctx: click.Context) -> list[str]:
    rows = [(flag, text) for flag, text in parameters(ctx) if ctx.parent is None or text]
    return _man_rows([row for row in rows if ctx.parent is None or "--help" not in row[0]])


def _man_rows(rows: Sequence[tuple[str, str]]) -> list[str]:
    return [line for name, text in rows for line in (".TP", f".B {_roff(name)}", _roff(text))]


def _man_examples(lines: Sequence[str]) -> list[str]:
    return [".RS 4", ".nf", *map(_roff, lines), ".fi", ".RE"]


def _roff(text: str) -> str:
    """Return one line of text with the characters escaped that roff interprets."""
    escaped = "".join(_ROFF.get(ch, ch if ch.isascii() else f"\\[u{ord(ch):04X}]") for ch in text)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


_ROFF = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "~": "\\(ti", "^": "\\(ha"}


def chat_commands() -> str:
    built = {*command_handlers(), *RESETS}
    rows = [
        (
            ", ".join(f"`/{name}`" for name in (one.name, *one.aliases)),
            f"`{one.args}`" if one.args else "",
            one.help + ("" if one.name in built else " Not built yet."),
            "owner" if one.owner_only else "authorised",
        )
        for one in COMMANDS
    ]
    return (
        "# Chat commands\n\n"
        "A message that is one of these is obeyed, in every chat: see\n"
        "[Commands in a chat](../sessions.md).\n\n"
        + _table(("command", "arguments", "meaning", "who may"), rows)
    )


# Configuration


def config() -> str:
    schema = described_schema(Config)
    rows = [
        (f"`{path}`", kind, default) for path, kind, default in _keys(schema, schema["$defs"], "")
    ]
    return (
        "# Configuration keys\n\n"
        "`openclaw.json` in the state directory (`~/.openclaw`), read as JSON5. These keys are\n"
        "read and checked in full. The keys under [Without effect](#without-effect) are accepted\n"
        "too; `homarus doctor` names those that are set. `<name>` is a name of your own, `[]` for\n"
        "each entry of a list.\n\n"
        + _table(("key", "value", "default"), rows)
        + "\n\n"
        + _own_keys()
        + "\n\n"
        + _memory_keys()
        + "\n\n"
        + _channel_keys()
        + "\n\n"
        + _keys_without_effect()
    )


def _keys_without_effect() -> str:
    """Return the keys that are accepted and change nothing, and why that is safe."""
    rows = [
        (f"`{path.replace('<key>', '<name>')}`", reason)
        for path, reason in sorted({**WITHOUT_EFFECT, **UNREAD_KEYS}.items())
    ]
    text = (
        "These are accepted, with all keys below them that are not in the tables above, and\n"
        "change nothing. So are the settings of a channel without an adapter. A setting that\n"
        "restricts something is never ignored: it is obeyed, or what it restricts is\n"
        "[refused](../restrictions.md)."
    )
    return "\n\n".join(["## Without effect", text, _table(("key", "why"), rows)])


def _own_keys() -> str:
    """Return the keys and values that belong into `homarus.json`."""
    rows = []
    for line in OWN_KEYS:
        path, _, kind = line.partition(": ")
        shown = kind.replace(" strict", "").replace(" | ", ", ").replace("map", "object")
        rows.append((f"`{path.replace('<key>', '<name>')}`", shown.replace('"', "`")))
    text = (
        "These are not OpenClaw's, and are written to `homarus.json` next to `openclaw.json`\n"
        "([Configuration](../configuration.md)). Where OpenClaw has a key and not the value, only\n"
        "that value is."
    )
    return "\n\n".join(["## homarus.json", text, _table(("key", "value"), rows)])


def _memory_keys() -> str:
    """Return the keys of `memory` and of an agent's `memorySearch`."""
    text = (
        "`memorySearch` stands in `agents.defaults`, and in an entry of `agents.list` on top of\n"
        "that. See [Memory](../memory.md)."
    )
    head, parts = ("key", "value", "default"), ["## Memory", text]
    for section, path in ((MemorySearchConfig, "memorySearch"), (MemoryConfig, "memory")):
        parts.append(_table(head, list(_settings_keys(section, path))))
    return "\n\n".join(parts)


def _channel_keys() -> str:
    """Return the keys of a channel's section: those of all channels, and those of each."""
    every = list(_settings_keys(AccountSettings, "channels.<channel>"))
    text = (
        "Each channel of `channels` has these. With several accounts, each has its own of them\n"
        "under `channels.<channel>.accounts.<name>`, on top of the channel's. See\n"
        "[Channels](../channels/README.md)."
    )
    parts = ["## Channels", text, _table(("key", "value", "default"), every)]
    for name in available_channels():
        own = list(_settings_keys(load_channel(name).Settings, f"channels.{name}"))
        parts += [f"### {channel_label(name)}", _table(("key", "value", "default"), own)]
    return "\n\n".join(parts)


def _settings_keys(settings: type[BaseModel], path: str) -> Iterator[tuple[str, str, str]]:
    schema = described_schema(settings)
    for key, kind, default in _keys(schema, schema.get("$defs", {}), path):
        yield f"`{key}`", kind, default


def _keys(
    node: Mapping[str, Any], defs: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str, str]]:
    for name, spec in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, _kind(spec, defs), _default(spec)
        yield from _inside(spec, defs, here)


def _inside(
    spec: Mapping[str, Any], defs: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str, str]]:
    for one in _alternatives(spec, defs):
        yield from _keys(one, defs, path)
        if isinstance(one.get("additionalProperties"), dict):
            yield from _inside(one["additionalProperties"], defs, f"{path}.<name>")
        if "items" in one:
            yield from _inside(one["items"], defs, f"{path}[]")


def _alternatives(spec: Mapping[str, Any], defs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in spec:
        yield from _alternatives(defs[spec["$ref"].rsplit("/", 1)[-1]], defs)
    elif "anyOf" in spec:
        for one in spec["anyOf"]:
            yield from _alternatives(one, defs)
    else:
        yield spec


def _kind(spec: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """Return the types of a value and its description, else that of the object that it is."""
    text = spec.get("description")
    if not text:
        described = (
            one["description"] for one in _alternatives(spec, defs) if "description" in one
        )
        text = next(described, "")
    return _types(spec, defs, _types if text else _kind) + (f": {_one_line(text)}" if text else "")


def _types(
    spec: Mapping[str, Any], defs: Mapping[str, Any], describe_entry: Callable[..., str] = _kind
) -> str:
    names = list[str]()
    for one in _alternatives(spec, defs):
        if "enum" in one:
            names.append(" · ".join(f"`{value}`" for value in one["enum"]))
        elif "const" in one:
            names.append(f"`{one['const']}`")
        elif one.get("type") == "array":
            names.append(f"list of {describe_entry(one['items'], defs)}")
        elif one.get("type") != "null":
            names.append(_TYPES.get(one.get("type", ""), "anything"))
    return " or ".join(dict.fromkeys(names))


_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
}


def _default(spec: Mapping[str, Any]) -> str:
    value = spec.get("default")
    return (
        f"`{json.dumps(value)}`" if value not in (None, [], {}, "") and "$ref" not in spec else ""
    )


# Tools


def tools() -> str:
    rows = [
        (f"[{tool.name}](tools/{tool.name}.md)", f"`{tool.group}`", _first_sentence(tool))
        for tool in builtin_tools()
    ]
    return (
        "# Tools\n\nWhat a model may call. Which calls are allowed is decided by the\n"
        "[policy](../policy.md).\n\n" + _table(("tool", "group", "what it does"), rows)
    )


def _first_sentence(tool: Tool) -> str:
    return _one_line(tool.spec.description.partition("\n\n")[0])


def tool_page(tool: Tool) -> str:
    known = f"Group `{tool.group}`"
    if tool.aliases:
        known += f"; also called {', '.join(f'`{alias}`' for alias in tool.aliases)}"
    if tool.declaration.is_owner_only:
        known += "; only for the owner"
    required = set(tool.spec.parameters.get("required", []))
    rows = [
        (f"`{name}`", _argument(spec), "yes" if name in required else "no")
        for name, spec in tool.spec.parameters.get("properties", {}).items()
    ]
    return (
        f"# {tool.name}\n\n{known}.\n\n{_quoted(tool.spec.description)}\n\n"
        + _table(("argument", "value", "required"), rows)
        + f"\n\n## Example\n\n{_tool_example(tool.name)}"
    )


def _tool_example(name: str) -> str:
    """Return the example of a tool, which tests/docs/test_tool_examples.py runs."""
    example = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    args = json.dumps(example["args"], indent=2, ensure_ascii=False)
    files = "".join(
        f"\n\nThe workspace has `{path}`:\n\n{_fenced(text)}"
        for path, text in example.get("files", {}).items()
    )
    return (
        f"{example['about']}{files}\n\n{_fenced(args, 'json')}\n\n"
        f"The result contains:\n\n{_fenced(example['result'])}"
    )


def _fenced(text: str, language: str = "") -> str:
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
    return f"{fence}{language or 'text'}\n{text.rstrip(chr(10))}\n{fence}"


def _argument(spec: Mapping[str, Any]) -> str:
    kind = _kind({k: v for k, v in spec.items() if k != "description"}, {})
    text, default = _one_line(spec.get("description", "")), _default(spec)
    return kind + (f": {text}" if text else "") + (f" (default {default})" if default else "")


# Events


CALL = message.ToolCall("call_1", "read", {"path": "notes.md"})
FACTS: tuple[event.EventData, ...] = (
    event.RunStarted(),
    event.TextAdded("Hello"),
    event.ThinkingAdded("…"),
    event.AttemptFailed("openai", "gpt-5.2", "overloaded", "the model is busy", "retry", 2.0),
    event.ToolStarted(CALL),
    event.ToolProgressed(CALL, "half of it"),
    event.ToolEnded(message.ToolResult("call_1", "read", (message.Text("all of it"),))),
    event.MessageSaved(message.user_message("Hello")),
    event.CompactionStarted(),
    event.CompactionEnded(),
    event.ErrorNoted("the search index is being rebuilt"),
    event.CommandAnswered("Thinking: high"),
    event.RunEnded(),
    event.RunEnded(error="the model did not answer"),
    event.RunSuspended(("a1b2c3d4",)),
    event.ApprovalRequested(
        "3f2a", "exec", {"command": "ls"}, 1_800_000_000_000, 1_800_086_400_000
    ),
    event.ApprovalResolved("3f2a", "allowed", "allow-once", "telegram:42"),
)


def events() -> str:
    payloads, rows = event.EventEncoder(), list[tuple[str, ...]]()
    for fact in FACTS:
        seen = payloads.encode(event.Event("run", "agent:main:main", 1, 1_800_000_000_000, fact))
        text = _one_line(type(fact).__doc__ or "")
        name = f"`{type(fact).__name__}`"
        data = f"`{json.dumps(seen['data'])}`" if seen else ""
        rows.append((name, text, f"`{seen['stream']}`" if seen else "none", data))
    return (
        "# Events\n\n"
        "What a run tells about itself. On the wire each is an envelope `{runId, seq, stream, ts,\n"
        "data, sessionKey}`: `seq` starts at 1 in each run and grows by one; `ts` counts\n"
        "milliseconds. A reader that is too slow loses the oldest deltas first and is told how\n"
        "many.\n\n" + _table(("event", "meaning", "stream", "`data`"), rows)
    )


# Hooks


def hooks() -> str:
    text = inspect.getdoc(plugin_hooks) or ""
    first, _, rest = text.partition("\n\n")
    code, _, manual = rest.partition("\n\nA hook is")
    rows = [
        (
            f"`{name}`",
            ", ".join(f"`{arg}`" for arg in _arguments(spec)),
            _one_line(spec.__doc__ or ""),
        )
        for name, spec in vars(plugin_hooks.HookSpecs).items()
        if inspect.isfunction(spec)
    ]
    return (
        f"# Hooks\n\n{_one_line(first.removesuffix(' This file is the manual.'))}\n\n"
        f"```python\n{inspect.cleandoc(code)}\n```\n\nA hook is{manual}\n\n"
        + _table(("hook", "arguments", "when, and what it may answer"), rows)
    )


def _arguments(spec: Callable[..., object]) -> list[str]:
    return list(inspect.signature(spec).parameters)[1:]


# Errors


def all_errors() -> list[type[errors.HomarusError]]:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    return [kind for kind in kinds if issubclass(kind, errors.HomarusError)]


def errors_page() -> str:
    rows = [
        (
            f"`{kind.code}`",
            f"`{kind.__name__}`",
            _one_line(kind.__doc__ or ""),
            str(kind.exit_status),
        )
        for kind in sorted(all_errors(), key=lambda kind: kind.code)
    ]
    return (
        "# Errors\n\n"
        "A command that fails prints what happened and what to do, and never a traceback. With\n"
        '`--json` it prints `{"ok": false, "error": {"type": "cli_error", "code", "message",\n'
        '"fix"}}`; a run of `agent` that failed adds its `runId` and `result`. Beside\n'
        "these codes there are `user.usage` (a wrong option, exit 2) and `system`\n"
        "(the operating system refused, exit 1).\n\n"
        + _table(("code", "class", "meaning", "exit"), rows)
    )


# The gateway's methods


def protocol() -> str:
    """Return the page about the gateway's methods."""
    parts = [
        "# Protocol",
        "Requests a client of the [gateway](../gateway.md) may make. Params are strict.",
        "Admin covers every scope, write covers read.",
    ]
    for name in sorted(METHODS):
        found = METHODS[name]
        parts += [
            f"## {name}",
            f"Scope: {found.scope}. {_one_line(inspect.getdoc(found.run) or '')}",
        ]
        schema = found.params.model_json_schema(by_alias=True)
        defs = schema.get("$defs", {})
        required = set(schema.get("required", ()))
        rows = [
            (f"`{key}`", _kind(spec, defs), "yes" if key in required else "")
            for key, spec in schema.get("properties", {}).items()
        ]
        if rows:
            parts.append(_table(("param", "type", "required"), rows))
    parts += ["## Not built yet", "These answer `UNAVAILABLE`, and say why:"]
    missing = [(f"`{name}`", why) for name, why in sorted(UNIMPLEMENTED.items())]
    parts.append(_table(("method", "why"), missing))
    return "\n\n".join(parts)


# Markdown


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in [list(head), ["---"] * len(head), *cells]]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def main() -> int:
    made = pages()
    there = {p.relative_to(REFERENCE).as_posix() for p in REFERENCE.rglob("*") if p.is_file()}
    stale = there ^ set(made)
    stale |= {
        n for n, t in made.items() if n not in stale and (REFERENCE / n).read_text("utf-8") != t
    }
    if "--check" in sys.argv[1:]:
        if stale:
            names = ", ".join(sorted(stale))
            print(f"docs/reference is out of date ({names}): run python docs/generate.py")
        return 1 if stale else 0
    for name in stale:
        if name in made:
            (REFERENCE / name).parent.mkdir(parents=True, exist_ok=True)
            (REFERENCE / name).write_text(made[name], encoding="utf-8")
        else:
            (REFERENCE / name).unlink()
        print(f"wrote docs/reference/{name}" if name in made else f"removed docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
