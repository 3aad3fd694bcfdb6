"""Substitute `${NAME}` in the config.

The process environment wins over `.env` in the state directory, and that over `env` of the config.
"""

import re
from collections.abc import Iterator, Mapping

from homarus.config.json5_document import KeyPath, Value
from homarus.config.tree_edit import format_path
from homarus.core.errors import ConfigError

_REFERENCE = re.compile(r"(\$?)\$\{([A-Z_][A-Z0-9_]*)\}")
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*", re.DOTALL)
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')\s*(?:#.*)?""")


def missing_variable_error(path: KeyPath, name: str) -> ConfigError:
    """Return the ConfigError for a `${NAME}` that is not set."""
    fix = f"export {name}, or set env.vars.{name}"
    return ConfigError(f"the variable {name} is not set", key=format_path(path), fix=fix)


def references(text: str) -> list[str]:
    """Return the names of the variables that would be substituted in a text."""
    found = _REFERENCE.findall(text) if "${" in text else ()
    return [name for escaped, name in found if not escaped]


def iter_references(tree: Value) -> Iterator[str]:
    """Yield the names of all variables that a tree names."""
    if isinstance(tree, str):
        yield from references(tree)
    elif isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from iter_references(value)


def substitute(tree: Value, env: Mapping[str, str]) -> Value:
    """Substitute variables that are set, and keep others as text. `$${NAME}` means `${NAME}`."""
    if isinstance(tree, dict):
        return {key: substitute(value, env) for key, value in tree.items()}
    if isinstance(tree, list):
        return [substitute(value, env) for value in tree]
    if not isinstance(tree, str) or "${" not in tree:
        return tree

    def replace(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        return env.get(found[2]) or found[0]

    return _REFERENCE.sub(replace, tree)


def missing_variables(
    tree: Value, env: Mapping[str, str], path: KeyPath = ()
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path and name of every variable that is unset or empty."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from missing_variables(value, env, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from missing_variables(value, env, (*path, index))
    elif isinstance(tree, str):
        yield from ((path, name) for name in references(tree) if not env.get(name))


def config_variables(tree: Mapping[str, Value], env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a config sets: `env.vars`, and the strings next to it."""
    section = tree.get("env")
    if not isinstance(section, dict):
        return {}
    inner = section.get("vars")
    found = {**section, **(inner if isinstance(inner, dict) else {})}
    return {
        key: substitute(value, env)
        for key, value in found.items()
        if isinstance(value, str) and not any(missing_variables(value, env))
    }


def read_env_file(text: str) -> tuple[dict[str, str], tuple[int, ...]]:
    """Parse `NAME=value` lines with quotes and `export`; also return the invalid line numbers."""
    found: dict[str, str] = {}
    bad: list[int] = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        assignment = _ASSIGNMENT.fullmatch(line)
        if assignment and "\0" not in line:
            found[assignment[1]] = _env_value(assignment[2])
        else:
            bad.append(number)
    return found, tuple(bad)


def _env_value(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        double = quoted[1] is not None
        return re.sub(r"\\(.)", _escape, quoted[1]) if double else quoted[2]
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()


def _escape(found: re.Match[str]) -> str:
    return {"n": "\n", "r": "\r", "t": "\t"}.get(found[1], found[1])
