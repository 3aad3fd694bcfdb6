"""The files of one run: its messages get what was read in them, and its tools may ask models.

A picture is described when the run's model cannot see it, as `tools.media.image` says. Documents
become text of the message. A file that cannot be read is named with the reason, and the run goes
on. What a model answered is stored at once together with its cost, and deleted when the message is
in the transcript: a run that is resumed after a crash asks and pays no second time.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from homarus.agent.agent import Agent
from homarus.agent.media.documents import (
    DocumentText,
    is_document,
    read_document,
    read_sent_file,
)
from homarus.agent.media.image_describer import ImageDescriber
from homarus.agent.media.image_models import (
    MediaModel,
    inbound_image_models,
    listed_models,
    tool_models,
)
from homarus.agent.run_journal import RunJournal
from homarus.agent.services import RunServices
from homarus.agent.usage_recorder import ProviderCall, to_usage_record
from homarus.config.media_schema import MediaAttachmentsConfig, MediaKindConfig
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.faults import fault_point
from homarus.core.media_text import MediaText, MediaTextKind, format_file_text, format_media_text
from homarus.core.message import Image, Inbound, Media, Message, Text
from homarus.core.text import one_line
from homarus.policy.session_rules import evaluate_rules
from homarus.providers.catalog import ModelInfo
from homarus.sessions.session import ExtraWrites
from homarus.store.base import Store, Transaction, TranscriptEntry
from homarus.tools.image_description import ImageAnswer, ImageQuestion

log = logging.getLogger(__name__)

KIND: Final = "mediaText"  # of store records: answers whose message is not in the transcript yet
MAX_STORED: Final = 200
DEFAULT_IMAGE_BYTES: Final = 10_000_000
DEFAULT_AUDIO_BYTES: Final = 20_000_000
_MAX_REASON_CHARS: Final = 200
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Item:
    """A picture of a message: its name for people, and its bytes in base64."""

    name: str
    image: Image
    has_path: bool


class RunMedia:
    """Reads the files of one run's messages, and asks models about pictures for its tools."""

    def __init__(
        self,
        services: RunServices,
        journal: RunJournal,
        agent: Agent,
        key: str,
        get_model: Callable[[], str],
    ) -> None:
        self._services, self._journal, self._key = services, journal, key
        self._get_model, self._agent_id = get_model, agent.id
        self._describer = ImageDescriber(
            services.connect, services.spend_limiter, agent.id, journal.run, agent.image_max_px
        )
        self._stored: list[str] = []  # ids of records that the transcript makes needless

    async def describe_images(self, question: ImageQuestion) -> ImageAnswer:
        """Answer a question of a tool; its cost is written with the tool's result."""
        models = tool_models(
            self._services.get_config(),
            question.model,
            self._get_model(),
            self._services.find_image_model,
        )
        on_call = self._journal.record_model_call
        return await self._describer.describe(question.images, models, on_call, question.prompt)

    async def read_files(self, inbound: Inbound, question: Message, model: ModelInfo) -> Message:
        """Return the user message with what was read in the files of the inbound message."""
        notes, outputs, blocks = list[str](), list[MediaText](), list[str]()
        if inbound.images and model.is_blind:
            outputs += await self._describe_pictures(inbound, notes)
        outputs += await self._transcribe(inbound, notes)
        pages = list[Image]()
        async for document in self._documents(inbound, model):
            if document.problem:
                notes.append(_note(document.name, document.problem))
            if document.text:
                blocks.append(format_file_text(document.name, document.mime, document.text))
            pages += document.images
        if not (outputs or blocks or notes or pages):
            return question
        first, *others = question.parts
        text = "\n".join([first.text if isinstance(first, Text) else "", *notes])
        text = "\n\n".join([format_media_text(text, outputs), *blocks])
        return replace(question, parts=(Text(text), *others, *pages))

    def with_cleanup(self, extra_writes: ExtraWrites) -> ExtraWrites:
        """Return writes that also delete the stored answers: the transcript has them now."""
        stored = tuple(self._stored)

        def write(transaction: Transaction, entries: Sequence[TranscriptEntry]) -> None:
            extra_writes(transaction, entries)
            for record in stored:
                transaction.delete_record(KIND, record)

        return write if stored else extra_writes

    async def _describe_pictures(self, inbound: Inbound, notes: list[str]) -> list[MediaText]:
        config = self._services.get_config()
        settings = config.tools.media.image
        if not self._is_allowed(settings, inbound):
            return []
        in_use = self._get_model()
        models = inbound_image_models(config, in_use, self._services.find_image_model)
        if not models:
            return []
        items = list(_pictures(inbound))
        chosen = select_attachments(items, settings.attachments, lambda item: item.has_path)
        notes += [
            _note(item.name, "tools.media.image.attachments leaves it out")
            for item in items
            if item not in chosen
        ]

        async def describe(item: _Item) -> str:
            fitting = [model for model in models if _fits(item.image, model)]
            if not fitting:
                raise ToolError("it is too large")

            async def ask(on_call: Callable[[ProviderCall], None]) -> str:
                answer = await self._describer.describe((item.image,), fitting, on_call)
                return answer.text

            return await self._answer_once("image", item.image.data.encode(), ask)

        return await self._read_all("image", chosen, describe, lambda item: item.name, notes)

    async def _read_all(
        self,
        kind: MediaTextKind,
        items: Sequence[_T],
        read: Callable[[_T], Awaitable[str]],
        get_name: Callable[[_T], str],
        notes: list[str],
    ) -> list[MediaText]:
        """Read files, a few at a time; one that fails becomes a note."""
        places = asyncio.Semaphore(self._services.get_config().tools.media.concurrency)

        async def read_one(item: _T) -> MediaText | str:
            try:
                async with places:
                    return MediaText(kind, await read(item), get_name(item))
            except (ToolError, OSError) as exc:
                reason = exc.message if isinstance(exc, ToolError) else "it cannot be read"
                log.warning("%s: a file of a message was not read: %s", self._key, reason)
                return _note(get_name(item), reason)

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(read_one(item)) for item in items]
        results = [task.result() for task in running]
        notes += [result for result in results if isinstance(result, str)]
        return [result for result in results if isinstance(result, MediaText)]

    async def _answer_once(
        self,
        kind: MediaTextKind,
        content: bytes,
        ask: Callable[[Callable[[ProviderCall], None]], Awaitable[str]],
    ) -> str:
        """Return the stored answer of an earlier attempt at the run, else ask and store it."""
        store = self._services.store
        record = f"{self._journal.run}:{kind}:{hashlib.sha256(content).hexdigest()[:32]}"
        found = await store.record(KIND, record)
        if found and isinstance(text := found.get("text"), str):
            self._stored.append(record)
            return text
        calls = list[ProviderCall]()
        try:
            text = await ask(calls.append)
        except BaseException:
            for call in calls:  # the failed attempts; the run's next transaction has them
                self._journal.record_model_call(call)
            raise
        now_ms = self._services.clock.now_ms()
        usage = [
            to_usage_record(each, self._journal.run, self._key, now_ms, purpose="media")
            for each in calls
        ]
        async with store.transaction() as transaction:
            transaction.put_record(KIND, record, {"text": text, "atMs": now_ms})
            transaction.add_usage(*usage)
        self._stored.append(record)
        await _delete_old(store)
        fault_point("media.described")
        return text

    async def _transcribe(self, inbound: Inbound, notes: list[str]) -> list[MediaText]:
        """Return what is said in the recordings of a message, if the config names a model."""
        config = self._services.get_config()
        settings = config.tools.media.audio
        files = [each for each in inbound.media if each.path and each.mime.startswith("audio/")]
        if not files or not self._is_allowed(settings, inbound):
            return []
        models = list(listed_models(config, settings, "audio"))
        if not models:
            return []
        from homarus.agent.media.transcriber import Transcriber  # only for audio

        services = self._services
        transcriber = Transcriber(services.resolve_connection, self._agent_id, services.clock)

        async def read(media: Media) -> str:
            limit = max(model.max_bytes or DEFAULT_AUDIO_BYTES for model in models)
            content = await asyncio.to_thread(read_sent_file, media.path, limit)
            fitting = [
                model
                for model in models
                if len(content) <= (model.max_bytes or DEFAULT_AUDIO_BYTES)
            ]
            if not fitting:
                raise ToolError("it is too large")

            async def ask(on_call: Callable[[ProviderCall], None]) -> str:
                return await transcriber.transcribe(content, media.mime, fitting, on_call)

            return await self._answer_once("audio", content, ask)

        chosen = select_attachments(files, settings.attachments, lambda media: bool(media.path))
        return await self._read_all("audio", chosen, read, _media_name, notes)

    async def _documents(self, inbound: Inbound, model: ModelInfo) -> AsyncIterator[DocumentText]:
        """Yield the documents of a message, as far as a quarter of the window has room."""
        limits = self._services.get_config().gateway.http.endpoints.responses.files
        left = model.window  # in characters; a token has about four
        for media in inbound.media:
            if not is_document(media):
                continue
            max_chars = min(left, limits.max_chars)
            sees = model.sees_images
            document = await read_document(media, limits, max_chars, with_images=sees)
            if document is not None:
                left = max(0, left - len(document.text))
                yield document

    def _is_allowed(self, settings: MediaKindConfig, inbound: Inbound) -> bool:
        """Return whether the files of a message may be read, by its kind's settings."""
        scope = settings.scope
        action = evaluate_rules(
            scope.rules,
            scope.default,
            self._key,
            channel=inbound.address.channel.lower(),
            chat_type=inbound.metadata.kind,
        )
        return settings.enabled and action == "allow"


def select_attachments(
    items: Sequence[_T], settings: MediaAttachmentsConfig, has_path: Callable[[_T], bool]
) -> list[_T]:
    """Return the files of a message that are read, in the order that the settings prefer."""
    ordered = list(items)
    if settings.prefer == "last":
        ordered.reverse()
    elif settings.prefer in {"path", "url"}:
        ordered.sort(key=lambda item: has_path(item) == (settings.prefer == "url"))
    count = settings.max_attachments or len(ordered) if settings.mode == "all" else 1
    return ordered[:count]


def _pictures(inbound: Inbound) -> Iterator[_Item]:
    """Yield the pictures of a message, with the names of their files as far as they are known."""
    files = [media for media in inbound.media if media.path and media.mime.startswith("image/")]
    known = files if len(files) == len(inbound.images) else []
    for at, image in enumerate(inbound.images):
        media = known[at] if known else Media()
        yield _Item(media.name or f"picture {at + 1}", image, bool(media.path))


def _media_name(media: Media) -> str:
    return media.name or media.kind


def _fits(image: Image, model: MediaModel) -> bool:
    return len(image.data) * 3 // 4 <= (model.max_bytes or DEFAULT_IMAGE_BYTES)


def _note(name: str, reason: str) -> str:
    plain = one_line(f"{name}: {reason}", _MAX_REASON_CHARS).replace("[", "(").replace("]", ")")
    return f"[media not described: {plain}]"


async def _delete_old(store: Store) -> None:
    """Delete the oldest stored answers of runs that never saved their message."""
    records = await store.records(KIND)
    if len(records) <= MAX_STORED:
        return
    by_age = sorted(records, key=lambda each: records[each].get("atMs") or 0)
    async with store.transaction() as transaction:
        for record in by_age[: len(records) - MAX_STORED]:
            transaction.delete_record(KIND, record)
