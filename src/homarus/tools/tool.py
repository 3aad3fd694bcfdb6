"""Turn typed async functions into tools that a model can call.

    @tool(group="fs")
    async def read(ctx: ToolContext, path: str, limit: int | None = None) -> str:
        '''Read a file of the workspace.'''

The signature is the schema, the docstring the model's manual. A tool returns text, or a ToolOutput
when it returns images or details.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    get_type_hints,
)

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from homarus.config.redaction import mask_known_secrets
from homarus.core.chat_action import ChatAction
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Extras, Image, Inbound, Json, Media, Poll, Text
from homarus.policy.approvals import ApprovalAnswer, ApprovalQuestion, Approvals
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import (
    CallerFacts,
    Effect,
    TaintSource,
    ToolCallFacts,
    ToolDecision,
    ToolDeclaration,
)
from homarus.policy.workspace_access import (
    WORKSPACE_SCOPE,
    FileScope,
    WorkspaceAccess,
    session_access,
)
from homarus.providers.base import ToolSpec
from homarus.store.base import SessionRecord

if TYPE_CHECKING:
    from homarus.tools.image_description import DescribeImages
    from homarus.tools.rooted_fs import RootedFs
    from homarus.tools.sandbox.session_sandbox import SessionSandbox


TIMEOUT_S = 120.0
_HIGH_MAXIMUM = 1_000  # a model seldom writes more


@dataclass(frozen=True, slots=True)
class NoApprovals:
    """The approvals where no person can be asked."""

    async def request(self, call_id: str, question: ApprovalQuestion) -> ApprovalAnswer:
        """Answer that no approver can be reached."""
        return ApprovalAnswer(None)


@dataclass(frozen=True, slots=True)
class SendResult:
    """The result of sending a message; `why` is the reason of a failure.

    `queued`: it is sent as soon as possible. `unknown`: it may have been delivered.
    """

    state: Literal["sent", "queued", "unknown", "failed"]
    message_id: str = ""
    why: str = ""


class Messenger(Protocol):
    """Lets a tool reach chats. Raises ToolError when a service cannot do something or fails."""

    def accounts(self) -> Sequence[tuple[str, str]]:
        """Return the running accounts as channel and account."""
        ...

    def resolve_address(
        self,
        target: str,
        *,
        channel: str = "",
        account: str = "",
        thread: str = "",
        here: Address | None = None,
    ) -> Address:
        """Resolve the address of a chat; missing parts are those of the current chat."""
        ...

    async def is_known_chat(self, agent: str, to: Address) -> bool:
        """Return whether an agent has used the chat, or its owner has named the chat or person."""
        ...

    async def attach(
        self, names: Sequence[str], workspace: Path, access: WorkspaceAccess
    ) -> tuple[Media, ...]:
        """Resolve files of the workspace by name, as far as the conversation may read them.

        Those that cannot be attached give a reason.
        """
        ...

    async def send(self, to: Address, text: str, extras: Extras, key: str) -> SendResult:
        """Send a message, once for one key, and wait a little for its receipt."""
        ...

    async def send_poll(self, to: Address, poll: Poll, extras: Extras, key: str) -> SendResult:
        """Send a poll, once for one key, and wait a little for its receipt."""
        ...

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        """React to a message; "" removes the reaction."""
        ...

    async def edit(self, to: Address, message_id: str, text: str) -> None: ...

    async def delete(self, to: Address, message_id: str) -> None: ...

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Json]:
        """Do an action of an operator, and return its result as clients get it."""
        ...


class SessionReader(Protocol):
    """Lets a tool read the records of sessions: settings, token counts, the last chat."""

    async def session(self, key: str) -> SessionRecord | None:
        """Return the record of one session."""
        ...

    async def sessions(
        self, *, agent: str | None = None, since_ms: int = 0, limit: int | None = None
    ) -> Sequence[SessionRecord]:
        """Return session records, newest first."""
        ...


class SkillAccess(Protocol):
    """What the skills of a conversation give to its commands."""

    def environment(self) -> Mapping[str, str]:
        """Return the variables for commands: those of the skills that the run uses."""
        ...

    def programs(self) -> frozenset[str]:
        """Return the programs that `autoAllowSkills` lets run without a question."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool knows about its run, and the ports through which it reaches other parts.

    What belongs to the agent and not to the run (its memory, its running commands) is a port of
    `ToolSourceContext`, which the tool is made with.

    `here` is the chat that is answered, `message_id` the message in it. `messenger` is None where
    no chat can be reached. `run_access` is what the senders of the run's messages may do with the
    workspace; without it, the session key decides. `docs` is the folder of the program's
    documentation, None where it may not be read. `session_name` is for headings. `sandbox` is that
    of the session, None for one without: file tools work on its files. `describe_images` has a
    model describe pictures; None where no model can be reached. `skills` are those of the
    conversation; None where there are none. `inbound` is the message that is answered, several as
    one; `get_taint` returns the untrusted content that the run has read. `leave_lane` gives up the
    run's place in its lane while a tool waits for another run.
    """

    session_key: str
    agent: str
    workspace: Path
    progress: Callable[[str], None] = field(default=lambda _text: None)
    here: Address | None = None
    message_id: str = ""
    run_id: str = ""
    call_id: str = ""
    messenger: Messenger | None = None
    sessions: SessionReader | None = None
    run_access: WorkspaceAccess | None = None
    docs: Path | None = None
    session_name: str = ""
    approvals: Approvals = NoApprovals()
    scope: FileScope = WORKSPACE_SCOPE
    get_caller: Callable[[], CallerFacts] | None = None
    sandbox: "SessionSandbox | None" = None
    describe_images: "DescribeImages | None" = None
    skills: SkillAccess | None = None
    inbound: Inbound | None = None
    get_taint: Callable[[], tuple[TaintSource, ...]] = tuple
    leave_lane: Callable[[], AbstractAsyncContextManager[None]] = nullcontext

    @property
    def caller(self) -> CallerFacts:
        """Return who makes the call, with the settings for commands that hold for it."""
        return self.get_caller() if self.get_caller else CallerFacts(self.agent, self.session_key)

    @property
    def access(self) -> WorkspaceAccess:
        return self.run_access or session_access(self.session_key)

    @property
    def files(self) -> "RootedFs":
        """The workspace, as far as this conversation may read and write it; the sandbox's own."""
        return self.sandbox.files(self.access) if self.sandbox else self.machine_files

    @property
    def machine_files(self) -> "RootedFs":
        """The agent's workspace, also in a session with a sandbox: for commands outside it."""
        from homarus.tools.rooted_fs import RootedFs

        return RootedFs(self.workspace, access=self.access)

    async def attach(self, names: Sequence[str]) -> tuple[Media, ...]:
        """Resolve files to be sent by their names, as far as the conversation may read them."""
        if self.messenger is None:
            return ()
        if self.sandbox:
            from homarus.tools.attachments import attach_from_sandbox

            return await attach_from_sandbox(
                self.messenger.attach, names, self.sandbox, self.access
            )
        return await self.messenger.attach(names, self.workspace, self.access)

    def folder_to_read(self, path: str) -> "tuple[RootedFs, str]":
        """Return the folder that a path is read from, and what its paths start with in results.

        It is the workspace, or for an absolute path what the scope and the access add to it.
        """
        from homarus.tools.file_scope import folder_to_read

        return folder_to_read(self, path)

    def folder_to_write(self, path: str) -> "tuple[RootedFs, str]":
        """Return the folder that a path is written in, and what its paths start with in results."""
        from homarus.tools.file_scope import folder_to_write

        return folder_to_write(self, path)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool's output with images for the model and details for people and programs.

    `untrusted` is where the content comes from, if others wrote it: then the model gets it between
    markers, and the run is marked.
    """

    content: tuple[Text | Image, ...]
    details: Mapping[str, Json] | None = None
    is_error: bool = False
    untrusted: TaintSource | None = None


Run: TypeAlias = Callable[..., Awaitable[str | ToolOutput]]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is ready to be decided, and then run exactly as it was decided.

    `facts` is what the policy sees, `question` what a person is asked if the policy asks; one that
    takes long to write may be given as a function. `run` executes the call; `close` releases what
    the preparation holds, whether or not the call was run.
    """

    facts: ToolCallFacts
    given_question: ApprovalQuestion | Callable[[], ApprovalQuestion]
    run: Callable[[], Awaitable[str | ToolOutput]]
    close: Callable[[], None] = lambda: None

    @property
    def question(self) -> ApprovalQuestion:
        """The question to a person; made from the same plan that is run."""
        given = self.given_question
        return given if isinstance(given, ApprovalQuestion) else given()


# Prepares a call from its parsed arguments. Raises ToolError when it cannot be run at all.
PrepareCall: TypeAlias = Callable[..., Awaitable[PreparedCall]]
# Returns what a call with these parsed arguments would change outside the conversation.
FindEffects: TypeAlias = Callable[..., Awaitable[frozenset[Effect]]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A callable with a schema.

    `declaration` is what rules are matched against. `serial` tools run alone and in order; the
    others may run in parallel. An `idempotent` tool may be run again when its outcome is unknown.
    `get_spec` and `get_params` make the schema and the model of the arguments when they are first
    needed; without `get_params` the schema alone describes the arguments. `effects` are those that
    every call has; `find_effects` returns those of one call. `timeout_s` is the pipeline's timeout;
    None: the tool has its own. `output` is untrusted when others write what the tool returns.
    """

    declaration: ToolDeclaration
    get_spec: Callable[[], ToolSpec]
    get_params: Callable[[], type[BaseModel]] | None
    run: Run
    serial: bool
    idempotent: bool
    timeout_s: float | None = TIMEOUT_S
    prepare: PrepareCall | None = None
    effects: frozenset[Effect] = frozenset()
    find_effects: FindEffects | None = None
    output: Literal["trusted", "untrusted"] = "trusted"

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def spec(self) -> ToolSpec:
        return self.get_spec()

    @property
    def group(self) -> str:
        return next(iter(self.declaration.groups), "")

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.declaration.aliases

    def parse(self, args: Mapping[str, Json]) -> dict[str, Any]:
        """Return the arguments by their Python names. Raises ToolError with what is expected."""
        if self.get_params is None:
            from homarus.tools.json_schema import check_arguments

            return {"args": check_arguments(self.spec, args)}
        try:
            params = self.get_params().model_validate(args)
        except ValidationError as exc:
            raise ToolError(
                f"{self.name}: {_format_errors(exc)}", fix=format_signature(self.spec)
            ) from exc
        return {name: getattr(params, name) for name in type(params).model_fields}

    async def __call__(self, ctx: ToolContext, args: Mapping[str, Json]) -> str | ToolOutput:
        return await self.run(ctx, **self.parse(args))


P = ParamSpec("P")
_Returned: TypeAlias = str | ToolOutput | PreparedCall


class _Params(BaseModel):
    """Base of every tool's arguments: an unknown one is an error that the model can correct."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


def tool(
    *,
    group: str,
    serial: bool = False,
    idempotent: bool = False,
    name: str = "",
    aliases: tuple[str, ...] = (),
    timeout_s: float | None = TIMEOUT_S,
    owner_only: bool = False,
    effects: tuple[Effect, ...] | FindEffects = (),
    output: Literal["trusted", "untrusted"] = "trusted",
    implied_by: tuple[str, ...] = (),
) -> Callable[[Callable[Concatenate[ToolContext, P], Awaitable[_Returned]]], Tool]:
    """Turn `async def name(ctx, …) -> str | ToolOutput` into a Tool.

    `aliases` are its other names, in rules and in calls of models. An `owner_only` tool is for
    messages of the owner alone. `effects` are what every call of it changes outside the
    conversation, or a function that returns them for the arguments of one call. A function that
    returns a PreparedCall prepares a call, which is run after it was decided. `implied_by` are
    names in allow lists that allow this tool too.
    """

    def wrap(function: Callable[Concatenate[ToolContext, P], Awaitable[_Returned]]) -> Tool:
        called = name or function.__name__
        run: Any = function
        prepare = run if function.__annotations__.get("return") is PreparedCall else None

        @cache
        def get_params() -> type[BaseModel]:
            return _params_model(called, function)

        @cache
        def get_spec() -> ToolSpec:
            return ToolSpec(called, inspect.getdoc(function) or "", _schema(get_params()))

        return Tool(
            ToolDeclaration(
                called, (group,), aliases, is_owner_only=owner_only, implied_by=implied_by
            ),
            get_spec,
            get_params,
            _run_prepared(run) if prepare else run,
            serial,
            idempotent,
            timeout_s,
            prepare,
            effects=frozenset() if callable(effects) else frozenset(effects),
            find_effects=effects if callable(effects) else None,
            output=output,
        )

    return wrap


def _params_model(name: str, function: Callable[..., Any]) -> type[BaseModel]:
    """Return the model of a function's arguments after the context."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        p.name: (hints[p.name], ... if p.default is p.empty else p.default)
        for p in list(inspect.signature(function).parameters.values())[1:]
    }
    model: type[BaseModel] = create_model(name, __base__=_Params, **fields)
    return model


def _run_prepared(prepare: PrepareCall) -> Run:
    """Return a function that prepares a call and runs it when the tool's own rules allow it."""

    async def run(ctx: ToolContext, **values: Any) -> str | ToolOutput:
        prepared = await prepare(ctx, **values)
        try:
            await check_decision(ctx, prepared, decide_tool_call(prepared.facts, ctx.caller))
            return await prepared.run()
        finally:
            prepared.close()

    return run


async def check_decision(ctx: ToolContext, prepared: PreparedCall, decision: ToolDecision) -> None:
    """Ask for approval where the decision needs it. Raises ToolDeniedError without permission."""
    if decision.action == "deny":
        raise ToolDeniedError(decision.reason)
    if decision.action == "ask":
        question = prepared.question
        question = replace(
            question,
            detail=mask_known_secrets(question.detail),
            wire={name: _masked(value) for name, value in question.wire.items()},
            reason=question.reason or decision.reason,
            is_allowed_by_fallback=decision.is_allowed_by_fallback,
        )
        answer = await ctx.approvals.request(ctx.call_id, question)
        if not answer.is_allowed:
            name = prepared.facts.tool.name
            why = f"{name} denied: it needs approval and did not get it: {decision.reason}"
            raise ToolDeniedError(answer.why or why)


def _masked(value: Json) -> Json:
    if isinstance(value, list):
        return [_masked(each) for each in value]
    return mask_known_secrets(value) if isinstance(value, str) else value


def json_tool(
    spec: ToolSpec,
    run: Callable[[ToolContext, Mapping[str, Json]], Awaitable[str | ToolOutput]],
    *,
    groups: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    serial: bool = True,
    idempotent: bool = False,
    timeout_s: float | None = TIMEOUT_S,
    owner_only: bool = False,
    effects: tuple[Effect, ...] = (),
) -> Tool:
    """Return a tool whose arguments are described by a JSON schema, as servers and plugins do.

    `run(ctx, args)` gets the arguments as they were sent, after they were checked.
    """

    async def call(ctx: ToolContext, args: Mapping[str, Json]) -> str | ToolOutput:
        return await run(ctx, args)

    declaration = ToolDeclaration(spec.name, groups, aliases, is_owner_only=owner_only)
    flags = serial, idempotent, timeout_s, None, frozenset(effects)
    return Tool(declaration, lambda: spec, None, call, *flags)


def _schema(params: type[BaseModel]) -> dict[str, Json]:
    """Return the JSON schema without titles and without null as the value of absent arguments.

    What a model can guess is left out, because every request has the schemas of all tools: that
    other arguments are errors, that a flag is false by default, the type of listed values, that
    counts are not negative nor very high, and the shape of texts. The check of a call knows it all.
    """
    schema = params.model_json_schema()
    schema.pop("title", None)
    schema.pop("additionalProperties", None)
    properties = schema.setdefault("properties", {})
    for name, value in properties.items():
        value.pop("title", None)
        _drop_guessable(value)
        if value.get("default", ...) is False:
            del value["default"]
        kinds = [kind for kind in value.get("anyOf", ()) if kind != {"type": "null"}]
        if value.get("default", ...) is None:
            del value["default"]
            if len(kinds) == 1:
                del value["anyOf"]
                properties[name] = kinds[0] | value
    return schema


def _drop_guessable(value: dict[str, Json]) -> None:
    for kind in (value, *value.get("anyOf", ())):
        if "enum" in kind:
            kind.pop("type", None)
        if kind.get("minimum") in {0, 1}:
            del kind["minimum"]
        if kind.get("maximum", 0) >= _HIGH_MAXIMUM:
            del kind["maximum"]
        for limit in ("minLength", "maxLength", "pattern", "exclusiveMinimum"):
            kind.pop(limit, None)


def _format_errors(exc: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in error['loc']) or 'arguments'}: {error['msg']}"
        for error in exc.errors(include_url=False, include_input=False)[:5]
    )


def format_signature(spec: ToolSpec) -> str:
    """Return the arguments of a tool in one line."""
    required = spec.parameters.get("required") or ()
    names = [n if n in required else f"{n}?" for n in spec.parameters.get("properties") or ()]
    return f"arguments are {{{', '.join(names)}}}"
