"""Update one installed skill, or say why it stays as it is."""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from homarus.cli.skill_report import print_findings
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.skills.hub.prepared_skill import (
    PreparedSkill,
    SkillReference,
    new_demands,
    prepare_from_registry,
)
from homarus.skills.hub.registry_address import url_origin
from homarus.skills.hub.skill_files import read_skill_folder
from homarus.skills.hub.versions import find_version
from homarus.skills.lint import lint_skill

if TYPE_CHECKING:
    from homarus.cli.skills_hub import HubSession
    from homarus.skills.hub.installer import InstalledSkill, SkillInstaller
    from homarus.skills.hub.registry_client import RegistryClient

UpdateState: TypeAlias = Literal["updated", "current", "pinned", "edited", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """What the command line allows an update to do."""

    version: str = ""
    is_forced: bool = False
    is_unsafe_forced: bool = False
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True)
class SkillUpdate:
    """What became of one skill."""

    slug: str
    state: UpdateState
    version: str = ""
    before: str = ""
    reason: str = ""

    @property
    def is_failure(self) -> bool:
        return self.state == "failed"

    def encode(self) -> dict[str, Any]:
        """Return a row of `--json`."""
        return {
            "slug": self.slug,
            "state": self.state,
            "version": self.version,
            "before": self.before,
            "reason": self.reason,
        }

    def describe(self) -> str:
        """Return a line for people."""
        if self.state == "updated":
            return f"{self.slug}: {self.before} → {self.version}"
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.slug}: {self.state} at {self.version or 'an unknown version'}{reason}"


class SkillUpdater:
    """Updates the skills of one root from one registry, within `installer.changing`."""

    def __init__(
        self,
        session: "HubSession",
        installer: "SkillInstaller",
        client: "RegistryClient",
        options: UpdateOptions,
    ) -> None:
        self._session, self._installer = session, installer
        self._client, self._options = client, options

    async def update(self, slug: str) -> SkillUpdate:
        """Update a skill; a failure of one skill is its result."""
        found = self._installer.find(slug)
        if found is None:
            reason = "its folder is gone: homarus skills install it again"
            return SkillUpdate(slug, "skipped", reason=reason)
        try:
            return await self._update(found)
        except UserError as exc:
            return SkillUpdate(slug, "failed", found.version, reason=exc.message)

    async def _update(self, found: "InstalledSkill") -> SkillUpdate:
        if refusal := await self._find_refusal(found):
            return refusal
        owner = found.origin.owner if found.origin else ""
        known = await self._client.skill(found.slug, owner)
        wanted = self._options.version or known.latest
        if self._is_current(found, wanted) and not (found.is_edited and self._options.is_forced):
            return SkillUpdate(found.slug, "current", found.version)
        prepared = await prepare_from_registry(
            self._client, SkillReference(found.slug, owner), wanted
        )
        if prepared.report.blocks and not self._options.is_unsafe_forced:
            print_findings(prepared.report.blocks, err=True)
            reason = f"{wanted} is refused: {prepared.report.blocks[0].message}"
            return SkillUpdate(found.slug, "failed", found.version, reason=reason)
        if not self._is_accepted(found, prepared):
            return SkillUpdate(found.slug, "skipped", found.version, reason="as you decided")
        self._install(prepared)
        return SkillUpdate(found.slug, "updated", prepared.version, found.version)

    async def _find_refusal(self, found: "InstalledSkill") -> SkillUpdate | None:
        def kept(state: UpdateState, reason: str) -> SkillUpdate:
            return SkillUpdate(found.slug, state, found.version, reason=reason)

        locked = self._installer.lock.find(found.slug)
        if found.is_pinned:
            return kept("pinned", locked[1].pin_reason if locked else "")
        if found.origin is None:
            return kept("skipped", "it did not come from a registry")
        # The files are an agent's to write: an address in them is not one that the owner named.
        if url_origin(found.origin.registry) != url_origin(await self._client.base_url()):
            shown = one_line(found.origin.registry, 100)
            return kept("skipped", f"it came from {shown}; name that one with --registry")
        if found.is_edited and not self._options.is_forced:
            return kept("edited", "its files were changed here; --force replaces them")
        return None

    def _is_current(self, found: "InstalledSkill", wanted: str) -> bool:
        if wanted == found.version or not wanted:
            return True
        if self._options.version:
            return False
        here, there = find_version(found.version), find_version(wanted)
        return here is not None and there is not None and there <= here

    def _is_accepted(self, found: "InstalledSkill", prepared: PreparedSkill) -> bool:
        """Ask about a version that asks for more than the one that is installed."""
        before = lint_skill(read_skill_folder(found.folder))
        demands = new_demands(before, prepared.report)
        if not demands or self._options.is_confirmed:
            return True
        click.echo(f"{found.slug} {prepared.version} asks for more than before:", err=True)
        for line in demands:
            click.echo(f"  {one_line(line, 200)}", err=True)
        return click.confirm(f"Update {found.slug}?", err=True)

    def _install(self, prepared: PreparedSkill) -> None:
        from homarus.cli.skills_hub import install_prepared

        install_prepared(self._session, self._installer, prepared, "update")
