"""Functions of the vectors that combine several of ours, which callers use separately."""

from collections.abc import Mapping

from homarus.config.json5_document import Value
from homarus.config.tree_edit import differing_paths
from homarus.config.variables import missing_variable_error, missing_variables, substitute


def diff_config_paths(prev: Value, next_: Value) -> list[str]:
    """Return the paths at which two trees differ, as text."""
    return [".".join(map(str, path)) if path else "<root>" for path in differing_paths(prev, next_)]


def resolve_env_vars(tree: Value, env: Mapping[str, str]) -> Value:
    """Substitute the variables of a tree. Raises ConfigError for one that is not set."""
    for path, name in missing_variables(tree, env):
        raise missing_variable_error(path, name)
    return substitute(tree, env)
