"""The actions of a skill as values: what each is, what it uses, and the name of its tool. Pure."""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.policy.tool_call import Effect
from homarus.policy.tool_policy import normalize_tool_name
from homarus.skills.actions.json_select import SelectStep
from homarus.skills.actions.template import TextTemplate

FILE_NAME: Final = "actions.json"
DEFAULT_RESPONSE_BYTES: Final = 200_000
DEFAULT_TIMEOUT_S: Final = 30.0
BASE_DIR: Final = "baseDir"  # the folder of the skill, in the arguments of a command

HttpMethod: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
BodyKind: TypeAlias = Literal["json", "form", "text"]

MAX_NAME_CHARS: Final = 64  # of a tool
_SUFFIX_CHARS: Final = 8
_OTHER: Final = re.compile(r"[^a-z0-9_]+")
BodyTemplate: TypeAlias = Any  # JSON whose texts are TextTemplates


@dataclass(frozen=True, slots=True)
class HttpAction:
    """A request: the origin is fixed, the segments of the path and the query are templates."""

    method: HttpMethod
    origin: str
    path: tuple[TextTemplate, ...]
    query: tuple[tuple[str, TextTemplate], ...] = ()
    headers: tuple[tuple[str, TextTemplate], ...] = ()
    body: BodyTemplate = None
    body_kind: BodyKind = "json"
    max_bytes: int = DEFAULT_RESPONSE_BYTES
    timeout_s: float = DEFAULT_TIMEOUT_S
    select: tuple[SelectStep, ...] = ()

    @property
    def is_reading(self) -> bool:
        """Whether the request changes nothing at the service."""
        return self.method == "GET"


@dataclass(frozen=True, slots=True)
class CommandAction:
    """A command: each item of `argv` becomes arguments, or is left out with a missing value."""

    argv: tuple[tuple[TextTemplate, ...], ...]
    stdin: TextTemplate | None = None
    env: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def program(self) -> str:
        return self.argv[0][0].literal_start

    @property
    def uses_folder(self) -> bool:
        """Whether the folder of the skill is an argument."""
        return any(BASE_DIR in each.argument_names for item in self.argv for each in item)


@dataclass(frozen=True, slots=True)
class SkillAction:
    """One action of a skill. `digest` is of the definition as it is written."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    does: HttpAction | CommandAction
    effects: frozenset[Effect]
    digest: str
    definition: str

    @property
    def key_names(self) -> tuple[str, ...]:
        """The keys of the skill that the action uses."""
        return tuple(sorted(find_keys(self.does)))


@dataclass(frozen=True, slots=True)
class ActionFile:
    """The actions of one file, and why others of it were skipped."""

    actions: tuple[SkillAction, ...] = ()
    problems: tuple[str, ...] = ()


def make_action_name(skill: str, action: str, taken: Container[str] = ()) -> str:
    """Return the name of an action's tool; `taken` are the names that others have.

    A name that is too long, or taken, ends in a suffix that depends on the skill and the action
    alone: it is the same at every start.
    """
    plain = _OTHER.sub("_", normalize_tool_name(skill)).strip("_") or "skill"
    name = f"{plain}_{_OTHER.sub('_', normalize_tool_name(action))}"
    if len(name) <= MAX_NAME_CHARS and name not in taken:
        return name
    for attempt in range(1_000):
        digest = hashlib.sha256(f"{skill}\0{action}\0{attempt}".encode("utf-8", "surrogatepass"))
        suffix = f"_{digest.hexdigest()[: _SUFFIX_CHARS - 1]}"
        found = name[: MAX_NAME_CHARS - _SUFFIX_CHARS] + suffix
        if found not in taken:
            return found
    raise ValueError("every name is taken")


def describe_action(action: SkillAction) -> str:
    """Return what an action does in one line, without the values of arguments."""
    does = action.does
    if isinstance(does, CommandAction):
        texts = (_show(each) for item in does.argv for each in item)
        return f"runs {' '.join(texts)}"
    path = "/".join(_show(each) for each in does.path)
    return f"{does.method} {does.origin}/{path}"


def _show(template: TextTemplate) -> str:
    pieces = (each if isinstance(each, str) else f"{{{each.name}}}" for each in template.pieces)
    return "".join(pieces)


def list_templates(does: HttpAction | CommandAction) -> Iterable[TextTemplate]:
    """Yield the templates of a request or command."""
    if isinstance(does, CommandAction):
        yield from (each for item in does.argv for each in item)
        yield from (does.stdin,) if does.stdin else ()
        return
    yield from does.path
    yield from (each for _, each in (*does.query, *does.headers))
    yield from _body_templates(does.body)


def _body_templates(body: BodyTemplate) -> Iterable[TextTemplate]:
    if isinstance(body, TextTemplate):
        yield body
    elif isinstance(body, Mapping | list):
        for each in body.values() if isinstance(body, Mapping) else body:
            yield from _body_templates(each)


def find_keys(does: HttpAction | CommandAction) -> frozenset[str]:
    """Return the names of the keys that a request or command uses."""
    named = (name for template in list_templates(does) for name in template.key_names)
    return frozenset((*named, *(does.env if isinstance(does, CommandAction) else ())))
