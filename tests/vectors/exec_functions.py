"""Adapters of the functions for commands: chains, words, patterns, safe bins, settings."""

from collections.abc import Sequence
from typing import Final

from homarus.config.schema import Config
from homarus.policy.decision import decide_tool_call
from homarus.policy.exec_settings import ExecSettings, resolve_exec_settings
from homarus.policy.tool_call import CallerFacts, ExecEvaluation, ToolCallFacts, ToolDeclaration
from homarus.tools.exec.allowlist import match_path
from homarus.tools.exec.arg_policy import Place
from homarus.tools.exec.executable import Executable, HashedFile
from homarus.tools.exec.grammar import NotUnderstood, parse_command
from homarus.tools.exec.safe_bins import is_safe_bin
from tests.vectors.cases import Adapter, Json, NotApplicable


def split_chain(command: str) -> Json:
    found = parse_command(command)
    if isinstance(found, NotUnderstood) or len(found) == 1:
        return None
    return [" | ".join(map(_join, pipeline)) for _, pipeline in found]


def _join(words: Sequence[str]) -> str:
    return " ".join(word if word.isalnum() else f'"{word}"' for word in words)


def analyze(command: str) -> Json:
    found = parse_command(command)
    if isinstance(found, NotUnderstood):
        return {"ok": False, "reason": f"unsupported shell token: {found.token}", "argvs": []}
    argvs = [list(words) for _, pipeline in found for words in pipeline]
    return {"ok": True, "argvs": argvs}


def match_allowlist(patterns: list[str], program: Json) -> Json:
    path = program.get("resolvedPath")
    found = next((each for each in patterns if path and match_path(each, path)), None)
    return found and {"pattern": found}


def is_safe_bin_usage(argv: list[str], path: str) -> bool:
    file = HashedFile(path, -1, (0, 0, 0, 0, 0), "", is_script=False)
    executable = Executable(argv[0], path, file, is_looked_up=True, in_workspace=False)
    return is_safe_bin(executable, argv[1:], Place("/ws", "/ws", "/usr/bin"))


def requires_approval(ask: Json) -> bool:
    is_satisfied = ask["allowlistSatisfied"]
    found = ExecEvaluation(ask["analysisOk"], ("allowlist:x",) if is_satisfied else ("",))
    call = ToolCallFacts(ToolDeclaration("exec"), exec=found, effects=frozenset({"exec"}))
    caller = CallerFacts("main", "agent:main:main", exec=ExecSettings(ask["security"], ask["ask"]))
    return decide_tool_call(call, caller).action == "ask"


def _settings(**given: str) -> ExecSettings:
    """Return the settings of a config and an approvals file together."""
    own = {name: value for name, value in given.items() if not name.startswith("file_")}
    file = {name.removeprefix("file_"): given[name] for name in given.keys() - own.keys()}
    config = Config.model_validate({"tools": {"exec": own}})
    return resolve_exec_settings(config, [{"defaults": file}], "main", {})


TABLE: Final[dict[str, Adapter]] = {
    "split_command_chain": split_chain,
    "analyze_shell_command_ok": analyze,
    "match_allowlist": match_allowlist,
    "is_safe_bin_usage": is_safe_bin_usage,
    "requires_exec_approval": requires_approval,
    "min_security": lambda one, other: _settings(security=one, file_security=other).security,
    "max_ask": lambda one, other: _settings(ask=one, file_ask=other).ask,
}
_WHOLE = "Exec: a command that our small grammar understands whole runs as a plan"
_SAFE_BINS = "exec security: a command is judged by its parsed argv; jq and sort are no safe bins"
NOT_APPLICABLE: Final = {
    'split_command_chain("a && \'unclosed")': NotApplicable(
        "a part that is not understood makes the complete command not understood", _WHOLE
    ),
    'analyze_shell_command_ok("echo \\"$HOME\\"")': NotApplicable(
        "a variable is not understood, because it would not be expanded", _WHOLE
    ),
    'is_safe_bin_usage(["jq", ".foo"], "/usr/bin/jq")': NotApplicable(
        "jq can read variables and files", _SAFE_BINS
    ),
    'is_safe_bin_usage(["jq", ".foo", "secret.json"], "/usr/bin/jq")': NotApplicable(
        "jq can read variables and files", _SAFE_BINS
    ),
    'is_safe_bin_usage(["sort", "-"], "/usr/bin/sort")': NotApplicable(
        "sort can run a program and write files", _SAFE_BINS
    ),
}
