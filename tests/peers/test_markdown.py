"""The page's Markdown renderer, in the browser that runs it."""

import json
import re
from typing import Any

import pytest

from tests.peers.browser import Browser, Page
from tests.peers.gateway import Running

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs the browser

ATTRIBUTES = re.compile(r' (?:title|target|rel|tabindex|role|aria-label|type|disabled|src)="[^"]*"')
CASES = {
    "# One": "<h2>One</h2>",
    "### Three ##": "<h4>Three</h4>",
    "####### seven": "<p>####### seven</p>",
    "#tag": "<p>#tag</p>",
    "Title\n=====": "<h2>Title</h2>",
    "a\nb": "<p>a\nb</p>",
    "a\n\nb": "<p>a</p><p>b</p>",
    "*a* **b** ***c*** ~~d~~": (
        "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> <del>d</del></p>"
    ),
    "_a_ __b__ snake_case_name": "<p><em>a</em> <strong>b</strong> snake_case_name</p>",
    "**a *b* c** **5*3**": (
        "<p><strong>a <em>b</em> c</strong> <strong>5*3</strong></p>"
    ),
    "2 * 3 * 4 and ** and *": "<p>2 * 3 * 4 and ** and *</p>",
    r"\*a\* 1\. \q": r"<p>*a* 1. \q</p>",
    "`a` ``b ` c`` `d": "<p><code>a</code> <code>b ` c</code> `d</p>",
    "`<b>` & &amp; <b>x</b>": (
        "<p><code>&lt;b&gt;</code> &amp; &amp; &lt;b&gt;x&lt;/b&gt;</p>"
    ),
    "- a\n- b\n  - c\n    1. d\n- e": (
        "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p><ol><li><p>d</p></li></ol></li></ul></li>"
        "<li><p>e</p></li></ul>"
    ),
    "3. a\n4. b": '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>',
    "1. a\n\n2. b": '<ol class="loose"><li><p>a</p></li><li><p>b</p></li></ol>',
    "1. a\n  - b": "<ol><li><p>a</p><ul><li><p>b</p></li></ul></li></ol>",
    "- a\n+ b": "<ul><li><p>a</p></li></ul><ul><li><p>b</p></li></ul>",
    "In 2026. A year": "<p>In 2026. A year</p>",
    "- [x] a\n- [ ] b": (
        '<ul><li class="task"><input><p>a</p></li><li class="task"><input><p>b</p></li></ul>'
    ),
    "> a\n> > b\nc": "<blockquote><p>a</p><blockquote><p>b\nc</p></blockquote></blockquote>",
    "---\n***\n_ _ _": "<hr><hr><hr>",
    "So:\n| a | b |\n|:-|-:|\n| 1 \\| 2 | `c` |\n\nend": (
        '<p>So:</p><div class="table"><table><thead><tr><th>a</th><th class="end">b</th></tr>'
        '</thead><tbody><tr><td>1 | 2</td><td class="end"><code>c</code></td></tr></tbody></table>'
        "</div><p>end</p>"
    ),
    "a | b\n--- | ---\n1": (
        '<div class="table"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1'
        "</td></tr></tbody></table></div>"
    ),
    "a | b\n---": "<h3>a | b</h3>",
    "<https://a.example/x>": '<p><a href="https://a.example/x">https://a.example/x</a></p>',
    "(https://a.example/b_(c)), x": (
        '<p>(<a href="https://a.example/b_(c)">https://a.example/b_(c)</a>), x</p>'
    ),
    "**https://a.example**": (
        '<p><strong><a href="https://a.example/">https://a.example</a></strong></p>'
    ),
    '[*a*](https://a.example/ "t")': (
        '<p><span><a href="https://a.example/"><em>a</em></a><span class="aside"> (a.example)'
        "</span></span></p>"
    ),
    "[a](docs/a.md)": '<p><span>a<span class="aside"> (docs/a.md)</span></span></p>',
    "[mail](mailto:a@b.example)": (
        '<p><span><a href="mailto:a@b.example">mail</a><span class="aside"> (a@b.example)</span>'
        "</span></p>"
    ),
    "[a] (b) [c": "<p>[a] (b) [c</p>",
    "![chart](https://evil.example/?q=secret)": (
        '<p><span><a href="https://evil.example/?q=secret">Image: chart</a>'
        '<span class="aside"> (evil.example)</span></span></p>'
    ),
    "![dot](data:image/png;base64,AAAA)": '<p><img alt="dot"></p>',
    "[no footnote][^1]": "<p>[no footnote][^1]</p>",
}  # fmt: skip
UNSAFE = [
    "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,x)",
    "[a](vbscript:x)", "[a](file:///etc/passwd)", "[a](blob:x)", "<javascript:x>",
    "![a](javascript:x)", "![a](data:image/svg+xml;base64,AAAA)", "![a](data:text/html;base64,AA)",
    "[a](java\nscript:x)", "<img src=x onerror=alert(1)>", "<a href='evil'>a</a>",
]  # fmt: skip
LONG = [
    "[a](", "[", "![", "]", "*a ", "**a", "a* ", "_a", "`a``", "> ", ">", "- ", "  - a\n", "1. a\n",
    "http://", "http://%%%", "<http://", "[](<", '[a](b "', "|", "|a|b|\n|-|-|\n", "```\n", "``` ",
    "# ", "~~a", "[[a]", "*_[~~`", "&amp;", "\\", "a\n", "\t", "![](data:image/png;base64,AA",
    "\u202e", "- a\n\n", "> - ", "[a](b)",
]  # fmt: skip
DOCUMENT = """# Plan

Some *emphasis*, **more
of it** and `code`.

- one
  - two

    still two
- [ ] three

1. first
```python
def f():
\treturn "```"
```
2. second

| a | b |
|---|---|
| 1 | 2 |

> quoted
> - list

Setext
---
Last https://a.example/x) and [a](https://b.example "t").
~~~
open
"""


@pytest.fixture(scope="module")
def renderer(browser: Browser, gateway: Running) -> Page:
    return browser.open(gateway.page)


def run(renderer: Page, text: str, script: str) -> Any:
    """Return the value of a script in which `m` is the module, `text` the text."""
    return renderer.run(
        f"import('/markdown.js').then(m => {{ const text = {json.dumps(text)}; {script} }})"
    )


def html_of(renderer: Page, text: str) -> str:
    script = "const box = m.element('div', m.markdown(text)); return box.innerHTML;"
    found: str = run(renderer, text, script)
    return found


@pytest.mark.parametrize("text", CASES)
def test_markdown_becomes_elements(renderer: Page, text: str) -> None:
    assert ATTRIBUTES.sub("", html_of(renderer, text)) == CASES[text]


@pytest.mark.parametrize("text", UNSAFE)
def test_markdown_unsafe_targets_and_html_stay_text(renderer: Page, text: str) -> None:
    html = html_of(renderer, text)
    assert not re.search(r"<(?:a|img|script)\b", html)
    shown = run(renderer, text, "return m.element('div', m.markdown(text)).textContent;")
    assert shown == text


def test_markdown_link_opens_apart_from_the_page(renderer: Page) -> None:
    html = html_of(renderer, "https://a.example/")
    assert 'rel="noopener noreferrer nofollow"' in html and 'target="_blank"' in html


def test_markdown_code_block_has_language_and_copy_button(renderer: Page) -> None:
    text = "```sh\n\techo <b>\n```\nafter"
    html = html_of(renderer, text)
    assert "<span>sh</span>" in html and "<code>\techo &lt;b&gt;</code>" in html
    assert re.search(r'<button type="button" class="copy">Copy</button>', html)
    assert html.endswith("<p>after</p>")


def test_markdown_control_and_bidi_characters_are_written_out(renderer: Page) -> None:
    shown = run(
        renderer,
        "a\u202eb\x07 [\u2066x](https://a.example/) `\x1b[31m` \u0645\u06cc\u200c\u062e",
        "return m.element('div', m.markdown(text)).textContent;",
    )
    assert shown == (
        "a⟨U+202E⟩b⟨U+0007⟩ ⟨U+2066⟩x (a.example) ⟨U+001B⟩[31m \u0645\u06cc\u200c\u062e"
    )


def test_markdown_stream_shows_what_the_whole_text_shows(renderer: Page) -> None:
    differing = run(
        renderer,
        DOCUMENT,
        """const box = m.element('div'), view = new m.MarkdownView(box), found = [];
        for (let end = 1; end <= text.length; end++) {
          view.show(text.slice(0, end));
          const whole = m.element('div', m.markdown(text.slice(0, end)));
          if (box.innerHTML !== whole.innerHTML) found.push(text.slice(0, end));
        }
        view.show('another'); found.push(box.innerHTML);
        return found;""",
    )
    assert differing == ["<p>another</p>"]


def test_markdown_stream_does_not_make_complete_blocks_again(renderer: Page) -> None:
    is_same = run(
        renderer,
        "one\n\ntwo\n\nthr",
        """const box = m.element('div'), view = new m.MarkdownView(box);
        view.show(text); const first = box.firstChild; view.show(text + 'ee');
        return [first === box.firstChild, box.childElementCount];""",
    )
    assert is_same == [True, 3]


@pytest.mark.parametrize("unit", LONG)
def test_markdown_time_is_linear_in_the_length(renderer: Page, unit: str) -> None:
    short_ms, long_ms = run(
        renderer,
        unit,
        """const time = (length) => {
          const long = text.repeat(length / text.length), at = performance.now();
          m.markdown(long); return performance.now() - at;
        };
        time(4096);
        const short = Math.min(time(2 ** 17), time(2 ** 17));
        return [short, Math.min(time(2 ** 20), time(2 ** 20))];""",
    )
    # Eight times the length: quadratic work would take 64 times as long.
    assert float(long_ms) < 24 * float(short_ms) + 400


def test_markdown_nesting_is_bounded_and_can_be_laid_out(renderer: Page) -> None:
    texts = [
        ">" * 10_000 + "a", "- " * 10_000 + "a", "*a **b " * 5_000 + "b** a* " * 5_000,
        "[" * 10_000 + "a" + "](https://a.example)" * 100, "~~a *b " * 3_000 + "b* a~~ " * 3_000,
        "\n".join(" " * (2 * depth) + "- a" for depth in range(300)),
    ]  # fmt: skip
    for text in texts:
        depth = run(
            renderer,
            text,
            """const box = m.element('div', m.markdown(text)); document.body.append(box);
            box.getBoundingClientRect();
            let deepest = 0; const open = [[box, 0]];
            while (open.length) {
              const [node, depth] = open.pop(); deepest = Math.max(deepest, depth);
              for (const child of node.children) open.push([child, depth + 1]);
            }
            box.remove(); return deepest;""",
        )
        assert int(depth) < 60


def test_markdown_of_typed_text_changes_nothing_but_code_and_links(renderer: Page) -> None:
    html = run(
        renderer,
        "# no *title*\n\n  1. x <b>\nhttps://a.example/\n```\ncode\n```\nend",
        "return m.element('div', m.plain(text)).innerHTML;",
    )
    shown = ATTRIBUTES.sub("", html)
    assert shown.startswith("<p># no *title*\n\n  1. x &lt;b&gt;\n<a href=")
    assert "<code>code</code>" in shown and shown.endswith("<p>end</p>")
