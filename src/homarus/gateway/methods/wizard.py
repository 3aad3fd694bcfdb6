"""Methods for the onboarding wizard: a client shows its steps and sends the answers.

One wizard runs at a time. It changes the config as `config.apply` does, under the same rules for
clients, and offers no service: the gateway runs already.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from homarus.config.config_files import ConfigTexts
from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name

if TYPE_CHECKING:
    from homarus.gateway.wizard.services import ConfigEdit, WizardServices
    from homarus.gateway.wizard.session import WizardSession
    from homarus.gateway.wizard.step import Prompter


class WizardStartParams(Params):
    """The mode, and the workspace that the wizard proposes."""

    mode: Literal["local", "remote"] | None = None
    workspace: Annotated[str, Field(max_length=4_096)] | None = None


class WizardAnswerParams(Params):
    """The answer to one step; a step that only shows something has no value."""

    step_id: Name
    value: Json = None


class WizardNextParams(Params):
    """A wizard, and the answer to its current step."""

    session_id: Name
    answer: WizardAnswerParams | None = None


class WizardSessionParams(Params):
    """A wizard."""

    session_id: Name


@method("wizard.start", scope="admin", params=WizardStartParams)
async def start(call: MethodCall, params: WizardStartParams) -> Json:
    """Start the onboarding wizard and return its first step."""
    from homarus.gateway.wizard.answers import WizardAnswers
    from homarus.gateway.wizard.flow import WizardFlow
    from homarus.gateway.wizard.session import WizardSession

    if params.mode == "remote":
        raise InvalidRequestError(
            "the wizard of a gateway sets up that gateway", fix="leave the mode out"
        )
    running = call.gateway.wizard
    if running and running.status == "running":
        if not running.is_idle:
            raise UnavailableError("wizard already running")
        await running.cancel()
    answers = WizardAnswers()  # in memory: a client's wizard ends with its session
    if params.workspace:
        answers.preset("workspace.path", params.workspace)
    services = _services(call)
    session = WizardSession(call.services.clock)

    def onboard(prompter: "Prompter") -> Awaitable[None]:
        return WizardFlow(prompter, services, answers).onboard()

    call.gateway.start("wizard", lambda: session.run(onboard))
    call.gateway.wizard = session
    return {"sessionId": session.id, **await session.next()}


@method("wizard.next", scope="admin", params=WizardNextParams)
async def next_(call: MethodCall, params: WizardNextParams) -> Json:
    """Answer the current step of a wizard and return the next one."""
    answer = (params.answer.step_id, params.answer.value) if params.answer else None
    return await _find(call, params.session_id).next(answer)


@method("wizard.cancel", scope="admin", params=WizardSessionParams)
async def cancel(call: MethodCall, params: WizardSessionParams) -> Json:
    """End a wizard; what it wrote stays."""
    session = _find(call, params.session_id)
    await session.cancel()
    call.gateway.wizard = None
    return {"status": session.status}


@method("wizard.status", scope="admin", params=WizardSessionParams)
async def status(call: MethodCall, params: WizardSessionParams) -> Json:
    """The status of a wizard, and why it failed."""
    state = _find(call, params.session_id).describe()
    return {name: state[name] for name in ("status", "error") if name in state}


def _find(call: MethodCall, session_id: str) -> "WizardSession":
    session = call.gateway.wizard
    if session is None or session.id != session_id:
        raise InvalidRequestError("wizard not found")
    return session


def _services(call: MethodCall) -> "WizardServices":
    from homarus.config.protected_keys import check_client_workspace
    from homarus.gateway.client_changes import write_client_change
    from homarus.gateway.wizard.services import WizardServices

    services, watcher = call.services, call.gateway.config_watcher

    def check(texts: ConfigTexts) -> None:
        if watcher and not call.gateway.config_problem:
            watcher.check(texts)

    async def change_config(edit: "ConfigEdit") -> None:
        written = await asyncio.to_thread(write_client_change, services, edit, check=check)
        if written.changed and watcher:
            await watcher.check_now()

    async def describe_end() -> str:
        return "The gateway uses these settings now."

    return WizardServices(
        services.paths,
        services.loaded.env,
        change_config,
        describe_end,
        check_workspace=check_client_workspace,
        is_client=True,
    )
