"""The backend that is always there: files, an index beside the state, words and vectors."""

from homarus.memory.base import Answer, Ask, Progress, Status, unseen
from homarus.memory.embed.base import Embedder
from homarus.memory.index import Report
from homarus.memory.library import Memory
from homarus.memory.place import Place


class Builtin:
    """An agent's notes in its own index."""

    def __init__(self, place: Place, embedder: Embedder | None = None) -> None:
        self._place, self._embedder = place, embedder
        self._memory = Memory(place.workspace, place.database, embedder, place.extra())

    def sync(self, *, force: bool = False, progress: Progress = unseen) -> Report:
        """Bring the index to what the files say."""
        return self._memory.sync(force=force)

    def search(self, text: str, ask: Ask) -> Answer:
        """Results by words, and by vectors where there are any."""
        found = self._memory.search(text, ask)
        model = self._embedder.model if self._embedder else None
        provider, name = (model.provider, model.name) if model else ("none", "")
        return Answer(tuple(found), provider=provider, model=name)

    def status(self) -> Status:
        """What is in the index."""
        held = self._memory.count()
        model = self._embedder.model if self._embedder else None
        return Status(
            agent=self._place.agent,
            workspace=str(self._place.workspace),
            database=str(self._place.database),
            backend="builtin",
            provider=model.provider if model else "none",
            model=model.name if model else "",
            files=held.files,
            lines=held.lines,
            chunks=held.chunks,
            vectors=held.vectors,
            generation=held.generation,
            sources=self._place.search.sources,
            dirty=False,
            tested=True,
        )

    def close(self) -> None:
        self._memory.close()
