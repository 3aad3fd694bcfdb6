"""Check what an index shows of the package: its description, its links, its classifiers."""

import re
import tomllib

from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hatch_build import absolute_links
from tests.style.rules import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
METADATA = ProjectMetadata(str(ROOT), PluginManager()).core
HOME = "https://github.com/homarus/homarus"


def targets(tokens: list[Token] | None) -> list[str]:
    """Return where the links and images of a text lead."""
    found = []
    for token in tokens or ():
        found += [str(token.attrs[name]) for name in ("href", "src") if name in token.attrs]
        found += targets(token.children)
    return found


def test_description_has_no_relative_link() -> None:
    assert METADATA.readme_content_type == "text/markdown"
    found = targets(MarkdownIt("commonmark").parse(METADATA.readme))
    relative = [target for target in found if not target.startswith(("https://", "#"))]
    assert len(found) > 10 and not relative


def test_description_links_lead_to_files_of_the_repository() -> None:
    found = re.findall(rf"{HOME}/blob/main/([^)#\s]+)", METADATA.readme)
    images = re.findall(
        r"raw\.githubusercontent\.com/homarus/homarus/main/([^)\s]+)", METADATA.readme
    )
    missing = [name for name in [*found, *images] if not (ROOT / name).exists()]
    assert found and images and not missing


def test_description_keeps_code_and_absolute_links() -> None:
    text = "[a](b.md) ![c](d.svg) [e](#f) [g](https://h) [i](mailto:j)\n```\n[k](l.md)\n```\n[m](n)"
    assert absolute_links(text, "https://github.com/o/r") == (
        "[a](https://github.com/o/r/blob/main/b.md)"
        " ![c](https://raw.githubusercontent.com/o/r/main/d.svg)"
        " [e](#f) [g](https://h) [i](mailto:j)\n```\n[k](l.md)\n```\n"
        "[m](https://github.com/o/r/blob/main/n)"
    )


def test_metadata_is_complete() -> None:
    expected = {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert set(PROJECT["urls"]) == expected
    assert all(url.startswith(HOME) for url in PROJECT["urls"].values())
    assert METADATA.authors and METADATA.license_expression == "MIT"
    assert len(METADATA.keywords) >= 5 and METADATA.description
    assert len(METADATA.description) < 80
    assert METADATA.classifiers  # an unknown one is an error of hatchling


def test_repository_urls_on_pages_are_those_of_the_project() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        named = re.findall(r"https://github\.com/homarus/[\w-]+", page.read_text(encoding="utf-8"))
        assert set(named) <= {HOME}, page


def test_wheel_includes_every_page_of_the_documentation() -> None:
    files = WheelBuilder(str(ROOT)).recurse_included_files()
    shipped = {file.distribution_path for file in files}
    docs = {name for name in shipped if name.startswith("homarus/docs/")}
    pages = {f"homarus/{page.relative_to(ROOT)}" for page in (ROOT / "docs").rglob("*.md")}
    assert docs == pages and "homarus/docs/index.md" in pages
    assert "homarus/app.py" in shipped and all(name.startswith("homarus/") for name in shipped)
