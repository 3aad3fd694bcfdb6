"""Read the rules for arguments from `arg_rules.txt`, once."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from homarus.core.fast_dataclass import dataclass

_SECTION: Final = re.compile(r"^\[([a-z-]+)\]\n(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_RULE: Final = re.compile(r"^([^\s:#][^:\n]*):((?:.*\n)(?:[ ]{4}.*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ArgRule:
    """The operands and options that a program may be given."""

    operands: str
    flags: frozenset[str]
    values: frozenset[str]
    optional: frozenset[str]
    pairs: frozenset[str]  # options that take two values

    @property
    def has_numbers(self) -> bool:
        return "-#" in self.flags


@dataclass(frozen=True, slots=True)
class ArgRules:
    """The table: rules by program or by its first words, and sets of programs."""

    programs: Mapping[str, str]
    runners: Mapping[str, str]
    git: Mapping[str, str]
    git_writing: Mapping[str, str]
    denied: frozenset[str]
    interpreters: frozenset[str]
    wrappers: frozenset[str]
    project_runners: frozenset[str]
    usual_options: frozenset[str]


@cache
def arg_rules() -> ArgRules:
    """Return the table."""
    text = Path(__file__).with_name("arg_rules.txt").read_text(encoding="utf-8")
    found = dict(_SECTION.findall(text))

    def rules(section: str) -> Mapping[str, str]:
        return {name: " ".join(rule.split()) for name, rule in _RULE.findall(found[section])}

    def names(section: str) -> frozenset[str]:
        return frozenset(found[section].split())

    return ArgRules(
        rules("programs"),
        rules("runners"),
        rules("git"),
        rules("git-writing"),
        names("denied"),
        names("interpreters"),
        names("wrappers"),
        names("project-runners"),
        names("usual-options"),
    )


@cache
def parse_rule(text: str) -> ArgRule:
    """Return the rule that a line of the table says."""
    operands, *options = text.split()
    return ArgRule(
        operands,
        frozenset(each for each in options if each[-1] not in ":="),
        frozenset(each[:-1] for each in options if each.endswith(":") and not each.endswith("::")),
        frozenset(each[:-1] for each in options if each.endswith("=")),
        frozenset(each[:-2] for each in options if each.endswith("::")),
    )
