"""Import a home: every kind in turn, into a state directory that no other process uses.

Each item is stored completely or not at all, and an item that is here is not added again. So a run
that was killed is continued by the next one, with the same result as a single run.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.config.config_files import read_text
from homarus.config.load import ConfigExamination, examine_config
from homarus.config.paths import Paths, expand, is_sqlite_home
from homarus.config.schema import Config
from homarus.core.errors import StateInUseError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import DEFAULT_AGENT
from homarus.importing.credential_import import CredentialImporter, read_profiles
from homarus.importing.cron_import import JOBS, CronImporter, read_jobs
from homarus.importing.database_source import (
    DatabaseSessions,
    StateDatabaseContent,
    find_agent_databases,
    open_database_sessions,
    read_database_profiles,
    read_state_database,
)
from homarus.importing.file_import import (
    FileImporter,
    SourceFile,
    count_notes,
    find_source_notes,
    open_note,
)
from homarus.importing.report import ImportReport, Kind
from homarus.importing.session_import import SessionImporter
from homarus.importing.session_source import (
    SessionFolder,
    is_transcript_name,
    read_folder,
    split_topic,
)
from homarus.importing.source_home import SourceHome, find_state, open_source, section
from homarus.importing.source_tree import RefusedSourceError, SourceTree
from homarus.providers.credentials import profile_file
from homarus.providers.profile_file import ProfileFile
from homarus.store.sqlite import SqliteStore, open_store
from homarus.store.state_paths import StatePaths

_IN_USE_FIX: Final = "homarus gateway stop"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What to import, and whether only to count it."""

    source: Path
    workspace: Path | None = None
    is_dry_run: bool = False


async def import_home(options: ImportOptions, paths: Paths, env: Mapping[str, str]) -> ImportReport:
    """Import a home into the state directory. Raises UserError, StoreError or OSError."""
    state = find_state(options.source)
    examined = examine_config(paths, env, read_text(paths.config), need_variables=False)
    if examined.config is None:
        raise UserError(
            f"the config {paths.config} is wrong, so it is not known where things go",
            fix="homarus config validate",
        )
    report = ImportReport(str(state), str(paths.state), is_dry_run=options.is_dry_run)
    home = open_source(state, report, options.workspace)
    target = _ImportTarget(paths, examined, examined.config, home.tree.root)
    target.check_apart([one.tree.root for one in home.workspaces])
    try:
        store = open_store(paths.state, read_only=options.is_dry_run)
    except StateInUseError as exc:
        raise StateInUseError(
            f"nothing can be imported while a gateway runs: {exc.message}", fix=_IN_USE_FIX
        ) from exc
    async with store:
        await _HomeImport(home, target, store, report, options.is_dry_run).run()
    return report


@dataclass(slots=True)
class _ImportTarget:
    """The places that an import writes to."""

    paths: Paths
    examined: ConfigExamination
    config: Config
    source: Path

    def check(self, path: Path) -> Path:
        """Return the path behind links. Raises UserError if it is in the source."""
        place = Path(os.path.realpath(path))
        if place.is_relative_to(self.source):
            raise UserError(
                f"{path} is inside the source {self.source}, which is never written",
                fix="give Homarus a state directory and workspaces of its own",
            )
        return place

    def check_apart(self, read: list[Path]) -> None:
        """Check that no place is in the source, and no folder that is read in the target."""
        state = Path(os.path.realpath(self.paths.state))
        if state == self.source:
            raise UserError(
                f"{self.source} is the home that Homarus uses: there is nothing to import",
                fix="homarus sessions lists what is in it",
            )
        if is_sqlite_home(state):
            raise UserError(
                f"{state} is a home of OpenClaw 2026.9, which does not start next to the files"
                " that an import adds",
                fix="set OPENCLAW_STATE_DIR to a new folder, and import into that",
            )
        for place in (state, self.paths.config, self.cron_file):
            self.check(place)
        for agent in agent_ids(self.config):
            self.check(self.workspace(agent))
        for folder in {self.source, *read}:
            if folder.is_relative_to(state):
                raise UserError(
                    f"{folder} is inside the state directory {state}, which it would change",
                    fix="move it out of there first",
                )

    @property
    def cron_file(self) -> Path:
        named = section(self.examined.raw, "cron").get("store")
        return expand(named, self.paths.home) if isinstance(named, str) else self.paths.state / JOBS

    def workspace(self, agent: str) -> Path:
        if agent in agent_ids(self.config):
            return resolve_agent_settings(self.config, self.paths, agent).workspace
        return self.paths.default_workspace(agent, is_default=False)


@dataclass(slots=True)
class _HomeImport:
    """One run of an import."""

    home: SourceHome
    target: _ImportTarget
    store: SqliteStore
    report: ImportReport
    is_dry_run: bool
    _databases: dict[str, Path] = field(default_factory=dict)

    async def run(self) -> None:
        paths, check = self.target.paths, self.target.check
        cron = CronImporter(self.target.cron_file, self.report, self.is_dry_run, check)
        secrets = CredentialImporter(paths.state, self.report, self.is_dry_run, check)
        self._databases = find_agent_databases(self.home, self.report)
        before = await self._count(cron, secrets)
        await self._add_sessions()
        await self._add_notes()
        state = read_state_database(self.home.tree, self.report)
        cron.add([*read_jobs(self.home, self.report), *state.jobs])
        self._add_credentials(secrets, state)
        after = before if self.is_dry_run else await self._count(cron, secrets)
        for kind, counts in self.report.counts.items():
            counts.before = before[kind]
            counts.after = after[kind] + (counts.added if self.is_dry_run else 0)
        self._add_remarks()

    async def _count(self, cron: CronImporter, secrets: CredentialImporter) -> dict[Kind, int]:
        """Count what the target has of each kind. Damaged files of it raise StoreError."""
        agents = dict.fromkeys(
            [DEFAULT_AGENT, *agent_ids(self.target.config), *self.home.agents, *self._databases]
        )
        return {
            "sessions": await self.store.count_sessions(),
            "transcripts": await self._count_old(agents),
            "memory": count_notes(self.target.workspace(agent) for agent in agents),
            "cronJobs": cron.count(),
            "credentials": secrets.count_credentials(
                self._profile_file(agent).path for agent in agents
            ),
            "approvedSenders": secrets.count_senders(),
        }

    async def _add_sessions(self) -> None:
        importer = SessionImporter(
            self.store, StatePaths(self.target.paths.state), self.report, self.is_dry_run
        )
        for agent, path in self._session_folders():
            folder = read_folder(self.home.tree, path, agent, self.report)
            await self._add_source(importer, folder)
        for agent, file in self._databases.items():
            with open_database_sessions(file, agent, self.report) as database:
                if database:
                    await self._add_source(importer, database)

    def _session_folders(self) -> Iterator[tuple[str, str]]:
        """Yield the agents and their session folders, and the one that older versions had."""
        yield from ((agent, f"agents/{agent}/sessions") for agent in self.home.agents)
        yield self.home.default_agent, "sessions"

    async def _add_source(
        self, importer: SessionImporter, source: SessionFolder | DatabaseSessions
    ) -> None:
        for session in source.sessions:
            try:
                transcript = source.read(session)
            except RefusedSourceError as exc:
                for key in session.records:
                    self.report.add("sessions", "skipped", key, f"skipped: its transcript {exc}")
                continue
            await importer.add(session, transcript)
        # Transcripts of earlier conversations, which memory search reads.
        place = Path(StatePaths(self.target.paths.state).sessions_dir(source.agent))
        old = [SourceFile(name, place / name, place / name) for name in source.old]
        await self._files().add("transcripts", source.agent, source.open_old, old)

    async def _add_notes(self) -> None:
        for workspace in self.home.workspaces:
            place = self.target.workspace(workspace.agent)
            notes = find_source_notes(workspace, place)
            await self._files().add("memory", workspace.agent, open_note(workspace.tree), notes)

    def _files(self) -> FileImporter:
        return FileImporter(self.store, self.report, self.is_dry_run, self.target.check)

    def _add_credentials(self, secrets: CredentialImporter, state: StateDatabaseContent) -> None:
        tree = self.home.tree
        for agent in self.home.agents:
            found = read_profiles(tree, agent, self.home.default_agent, self.report)
            secrets.add_profiles(self._profile_file(agent), agent, found)
        for agent, file in self._databases.items():
            found = read_database_profiles(file, self.report)
            secrets.add_profiles(self._profile_file(agent), agent, found)
        shared = self._profile_file(DEFAULT_AGENT)  # other agents use its profiles, too
        secrets.add_profiles(shared, DEFAULT_AGENT, state.profiles)
        secrets.add_variables(tree)
        secrets.add_values(state.variables)
        secrets.add_logins(tree)
        secrets.add_senders(tree)
        for name, senders in state.allowed.items():
            secrets.add_allowed(name, senders)

    def _profile_file(self, agent: str) -> ProfileFile:
        target = self.target
        return profile_file(target.config, target.examined.env, target.paths, agent)

    async def _count_old(self, agents: Iterable[str]) -> int:
        """Count the transcripts in the target's folders that belong to no session."""
        claimed = {record.session_id for record in await self.store.sessions(bare=True)}
        paths, found = StatePaths(self.target.paths.state), 0
        for agent in agents:
            for name in SourceTree(Path(paths.sessions_dir(agent))).names("."):
                stem = name.partition(".jsonl")[0]
                ids = {stem, *(session_id for session_id, _ in split_topic(stem))}
                found += is_transcript_name(name) and not ids & claimed
        return found

    def _add_remarks(self) -> None:
        """Note what the user has to do: agents that the config lacks, and the config itself."""
        known = agent_ids(self.target.config)
        for agent in dict.fromkeys([*self.home.agents, *self._databases]):
            if agent not in known:
                text = f"is not in the config here: homarus agents add {agent}"
                self.report.note("agents", agent, text)
        if self.home.config:
            text = "not imported: settings, and keys in them, stay in the source's config"
            self.report.note("config", str(self.home.tree.root), text)
