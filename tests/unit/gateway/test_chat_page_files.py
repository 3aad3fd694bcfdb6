"""The chat page's files, without a browser: nothing in them can turn words into code."""

import re
from importlib.resources import files

import pytest

PAGE = files("homarus.gateway").joinpath("static")
FILES = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir()}
SCRIPTS = [name for name in FILES if name.endswith(".js")]


def test_page_html_contains_no_inline_script_or_style() -> None:
    html = FILES["index.html"]
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:", html)


def test_page_references_are_all_files_of_the_page() -> None:
    asked = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', FILES["index.html"])
    for name in SCRIPTS:
        asked += [path.removeprefix("./") for path in re.findall(r"from '([^']+)'", FILES[name])]
    assert asked and set(asked) <= FILES.keys()


@pytest.mark.parametrize("name", SCRIPTS)
def test_page_scripts_never_turn_text_into_html_or_code(name: str) -> None:
    doors = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    assert not re.search(doors, FILES[name])


def test_page_url_sets_no_gateway_and_token_only_in_fragment() -> None:
    together = "".join(FILES[name] for name in SCRIPTS)
    assert re.findall(r"URLSearchParams\((.+?)\)\)?(\.\w+\([^)]*\))", together) == [
        ("location.search", ".get('session')"),
        ("location.hash.slice(1", ".get('token')"),
    ]
    assert together.count("location.hash") == 2  # where it is read, and where it is taken away
    assert together.count("location.search") == 2  # likewise
