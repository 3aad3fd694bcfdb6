"""`${NAME}` in settings, and where the variables come from.

The process's own environment wins; then `.env` in the state directory; then `env` of the config.
"""

import re
from collections.abc import Iterator, Mapping

from homarus.config.document import KeyPath, Value
from homarus.config.edit import show_path
from homarus.core.errors import ConfigError

_REFERENCE = re.compile(r"(\$?)\$\{([A-Z_][A-Z0-9_]*)\}")
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*", re.DOTALL)
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')\s*(?:#.*)?""")


def resolve_env_vars(tree: Value, env: Mapping[str, str]) -> Value:
    """The tree with its variables filled in; one that is not set is an error."""
    for path, name in missing_variables(tree, env):
        raise missing(path, name)
    return substitute(tree, env)


def missing(path: KeyPath, name: str) -> ConfigError:
    """The complaint about a variable nobody set."""
    fix = f"export {name}, or set env.vars.{name}"
    return ConfigError(f"the variable {name} is not set", key=show_path(path), fix=fix)


def substitute(tree: Value, env: Mapping[str, str]) -> Value:
    """Fill in what is set, and leave the rest as it is written. `$${NAME}` means `${NAME}`."""
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
    """Where a variable is meant that is unset or empty."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from missing_variables(value, env, (*path, key))
    elif isinstance(tree, list):
        for at, value in enumerate(tree):
            yield from missing_variables(value, env, (*path, at))
    elif isinstance(tree, str) and "${" in tree:
        for escaped, name in _REFERENCE.findall(tree):
            if not escaped and not env.get(name):
                yield path, name


def config_variables(tree: Mapping[str, Value], env: Mapping[str, str]) -> dict[str, str]:
    """The variables a config sets: those of `env.vars`, and the plain texts beside it."""
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
    """`NAME=value` lines; quotes and `export` as a shell has them. Also: lines that are neither."""
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


def _env_value(said: str) -> str:
    quoted = _QUOTED.fullmatch(said)
    if quoted:
        double = quoted[1] is not None
        return re.sub(r"\\(.)", _escape, quoted[1]) if double else quoted[2]
    return re.split(r"(?:^|\s)#", said, maxsplit=1)[0].rstrip()


def _escape(found: re.Match[str]) -> str:
    return {"n": "\n", "r": "\r", "t": "\t"}.get(found[1], found[1])
