"""Make the catalog of skills when it is first used; nothing of it is imported before."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths

if TYPE_CHECKING:
    from homarus.skills.catalog import SkillCatalog


class SkillLoader:
    """Returns the catalog when called."""

    def __init__(self, get_loaded: Callable[[], LoadedConfig], paths: Paths) -> None:
        self._get_loaded, self._paths = get_loaded, paths
        self._catalog: SkillCatalog | None = None

    def __call__(self) -> "SkillCatalog":
        """Return the catalog of skills."""
        if self._catalog is None:
            from homarus.skills.catalog import SkillCatalog

            self._catalog = SkillCatalog(self._get_loaded, self._paths)
        return self._catalog
