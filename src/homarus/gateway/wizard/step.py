"""The steps of a wizard, independent of where they are shown.

A wizard is a coroutine that asks a `Prompter` for the answer to one `WizardStep` after the other.
The terminal, the options of a command line and a client of the gateway are prompters.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Protocol, TypeAlias, TypeVar

from homarus.core.errors import HomarusError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import closest_names
from homarus.gateway.wizard.answers import WizardAnswers

StepType: TypeAlias = Literal[
    "note", "select", "text", "confirm", "multiselect", "progress", "action"
]
MAX_ANSWER_CHARS = 16_384
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepOption:
    """One answer that a `select` step offers."""

    value: str
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class WizardStep:
    """One step: something to show, or a question. `flag` is the option that answers it."""

    id: str
    type: StepType
    title: str = ""
    message: str = ""
    options: tuple[StepOption, ...] = ()
    initial: Json = None
    placeholder: str = ""
    sensitive: bool = False
    flag: str = ""

    def encode(self) -> dict[str, Json]:
        """Return the step as clients of the gateway receive it."""
        step: dict[str, Json] = {"id": self.id, "type": self.type, "executor": "gateway"}
        if self.options:
            step["options"] = [
                {"value": each.value, "label": each.label}
                | ({"hint": each.hint} if each.hint else {})
                for each in self.options
            ]
        fields = {
            "title": self.title,
            "message": self.message,
            "initialValue": self.initial,
            "placeholder": self.placeholder,
            "sensitive": self.sensitive,
        }
        return step | {
            name: value for name, value in fields.items() if value not in ("", None, False)
        }


class Prompter(Protocol):
    """Show steps to a person, or answer them from options.

    With `is_interactive` False an answer cannot be corrected: an error ends the wizard.
    """

    is_interactive: bool

    async def ask(self, step: WizardStep) -> Json:
        """Return the answer to a step; a note returns when it was shown."""
        ...

    def show_progress(self, step: WizardStep) -> None:
        """Show what the wizard does now; the next step follows when it is done."""
        ...

    def reject(self, step: WizardStep, error: HomarusError) -> None:
        """Show why an answer is not accepted; the step is asked again. It may raise the error."""
        ...


class Dialog:
    """Ask steps of a prompter, check the answers and save them until their section is finished."""

    def __init__(self, prompter: Prompter, answers: WizardAnswers) -> None:
        self._prompter, self.answers = prompter, answers

    @property
    def is_interactive(self) -> bool:
        return self._prompter.is_interactive

    async def note(self, title: str, message: str) -> None:
        """Show a text."""
        await self._prompter.ask(WizardStep("note", "note", title, message))

    def progress(self, message: str) -> None:
        """Show what is being done."""
        self._prompter.show_progress(WizardStep("progress", "progress", message=message))

    async def select(self, step: WizardStep) -> str:
        """Return the value of the chosen option."""

        def parse(answer: Json) -> str:
            values = [option.value for option in step.options]
            if isinstance(answer, str) and answer in values:
                return answer
            near = closest_names(str(answer), values)
            fix = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(values)}"
            raise UserError(f"{str(answer)[:60]!r} is not offered", fix=fix)

        return await self._ask(replace(step, type="select"), parse)

    async def confirm(self, step: WizardStep) -> bool:
        """Return whether the person agrees."""

        def parse(answer: Json) -> bool:
            if not isinstance(answer, bool):
                raise UserError("the answer must be yes or no")
            return answer

        return await self._ask(replace(step, type="confirm"), parse)

    async def text(self, step: WizardStep, parse: Callable[[str], str] = str.strip) -> str:
        """Return a text as `parse` returns it; `parse` raises UserError to have it asked again."""

        def parse_text(answer: Json) -> str:
            if not isinstance(answer, str) or len(answer) > MAX_ANSWER_CHARS:
                raise UserError("the answer must be a text")
            if "${" in answer:  # in the config it would be the value of a variable
                raise UserError("the answer cannot name a variable with ${")
            return parse(answer)

        return await self._ask(replace(step, type="text"), parse_text)

    async def secret(self, step: WizardStep, parse: Callable[[str], str]) -> str:
        """Return a secret; it is not echoed and not saved with the other answers."""
        return await self.text(replace(step, sensitive=True), parse)

    async def _ask(self, step: WizardStep, parse: Callable[[Json], T]) -> T:
        saved = None if step.sensitive else self.answers.find(step.id)
        if saved is None:
            saved = self.answers.pop_preset(step.id)
        if saved is not None:
            try:
                return self._save(step, parse(saved))
            except UserError as exc:  # what was possible then is not offered now
                self.answers.forget(step.id)
                self._prompter.reject(step, exc)
        while True:
            answer = await self._prompter.ask(step)
            try:
                value = parse(answer)
            except UserError as exc:
                self._prompter.reject(step, exc)
                continue
            return self._save(step, value)

    def _save(self, step: WizardStep, value: T) -> T:
        if not step.sensitive and self.answers.find(step.id) != value:
            self.answers.save(step.id, value)
        return value
