"""Have models transcribe the audio of messages, one after the other, until one answers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from homarus.agent.media.image_models import MediaModel
from homarus.agent.services import ResolveConnection
from homarus.agent.usage_recorder import ProviderCall
from homarus.core.clock import Clock
from homarus.core.errors import ProviderError, ToolError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Usage
from homarus.core.text import one_line
from homarus.providers.transcription import TranscriptionRequest, transcribe_audio

DEFAULT_MODELS: Final = {"openai": "gpt-4o-mini-transcribe", "groq": "whisper-large-v3-turbo"}
_MAX_ERROR_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Transcriber:
    """Asks models for the words of a recording, for one run.

    What a call costs is not known: its usage record has no cost, and spend limits do not see it.
    """

    resolve_connection: ResolveConnection
    agent_id: str
    clock: Clock

    async def transcribe(
        self,
        content: bytes,
        mime: str,
        models: Sequence[MediaModel],
        on_call: Callable[[ProviderCall], None],
    ) -> str:
        """Return the first transcript. Raises ToolError that names every model and its failure."""
        failures = list[str]()
        for model in models:
            provider, _, name = model.ref.partition("/")
            name = name or DEFAULT_MODELS.get(provider, "")
            try:
                text = await self._ask(model, provider, name, content, mime)
            except (ProviderError, UserError) as exc:
                reason = str(exc)
            except TimeoutError:
                reason = f"no answer within {model.timeout_s:g} s"
            else:
                on_call(ProviderCall(provider, name, Usage()))
                return text[: model.max_chars] if model.max_chars else text
            reason = one_line(reason, _MAX_ERROR_CHARS)
            on_call(ProviderCall(provider, name, Usage(), reason))
            failures.append(f"{model.ref}: {reason}")
        raise ToolError(f"no model transcribed it: {'; '.join(failures)}")

    async def _ask(
        self, model: MediaModel, provider: str, name: str, content: bytes, mime: str
    ) -> str:
        if model.refusal:
            raise UserError(model.refusal)
        if not name:
            raise UserError(f"no model of {provider} is named", fix="set model in its entry")
        request = TranscriptionRequest(name, content, mime, model.language, model.prompt)
        async with asyncio.timeout(model.timeout_s):
            connection = await self.resolve_connection(
                self.agent_id, provider, model.profile if model.is_profile_locked else ""
            )
            if model.base_url:
                connection = connection.at(model.base_url)
            text = await transcribe_audio(connection, request, self.clock)
        if not text:
            raise UserError("it heard no words")
        return text
