"""Globs: what they match, and that no pattern is slow."""

import time
from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import ToolError
from homarus.tools.glob_pattern import compile_glob, expand_braces


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.md", ["a.md", "x/y/a.md", ".md"], ["a.mdx", "a.md/b"]),
        ("a?c", ["abc", "x/abc"], ["ac", "abbc"]),
        ("[ab].txt", ["a.txt", "x/b.txt"], ["c.txt"]),
        ("[!ab].txt", ["c.txt"], ["a.txt"]),
        ("src/*.py", ["src/a.py"], ["a.py", "src/x/a.py", "x/src/a.py"]),
        ("**/*.py", ["a.py", "x/a.py", "x/y/a.py"], ["a.pyc"]),
        ("src/**/t.py", ["src/t.py", "src/a/b/t.py"], ["t.py", "x/src/t.py"]),
        ("docs/**", ["docs/a", "docs/a/b"], ["doc/a"]),
        ("*.{js,ts}", ["a.js", "x/a.ts"], ["a.j", "a.{js,ts}"]),
        ("./a", ["a", "x/a"], ["b"]),
        ("{a}", ["{a}"], ["a"]),
        ("{a", ["{a"], ["a"]),
    ],
)
def test_glob_matches_as_expected(pattern: str, yes: list[str], no: list[str]) -> None:
    wanted = compile_glob(pattern)
    assert [path for path in yes if not wanted(path)] == []
    assert [path for path in no if wanted(path)] == []


@given(st.lists(st.lists(st.sampled_from("abc*"), min_size=2, max_size=3), max_size=4))
def test_expand_braces_gives_every_combination_once_in_order(groups: list[list[str]]) -> None:
    pattern = "-".join("{" + ",".join(group) + "}" for group in groups)
    assert list(expand_braces(pattern)) == ["-".join(choice) for choice in product(*groups)]


@given(st.text("{},ab/*[]!-?.\\", max_size=20), st.text("ab/.", max_size=10))
def test_glob_any_pattern_compiles(pattern: str, path: str) -> None:
    if pattern and len(list(islice(expand_braces(pattern), 65))) <= 64:
        compile_glob(pattern)(path)
    else:
        with pytest.raises(ToolError):
            compile_glob(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 200 + "b", "**/" * 150 + "x", "{" * 400, "{a,b}" * 90, "{a," * 150 + "}" * 50],
)
def test_glob_malicious_pattern_is_fast(pattern: str) -> None:
    began = time.process_time()
    try:
        wanted = compile_glob(pattern)
        for _ in range(20):
            wanted("/".join(["a" * 200] * 50))
    except ToolError:
        pass
    assert time.process_time() - began < 2
