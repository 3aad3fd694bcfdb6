"""The grammar of commands: understood completely, with a shell's meaning, or not at all."""

import shlex
import subprocess

import pytest

from homarus.tools.exec.grammar import MAX_CHARS, NotUnderstood, parse_command


@pytest.mark.parametrize(
    ("command", "chain"),
    [
        ("ls", [("", [["ls"]])]),
        ("  git\tstatus ", [("", [["git", "status"]])]),
        ("a | b && c || d; e", [
            ("", [["a"], ["b"]]), ("&&", [["c"]]), ("||", [["d"]]), (";", [["e"]]),
        ]),
        ("a|b", [("", [["a"], ["b"]])]),
        ("a;", [("", [["a"]])]),
        ("echo 'a b'\"c d\"e\\ f", [("", [["echo", "a bc de f"]])]),
        ('echo "a\\"b\\\\c\\d"', [("", [["echo", 'a"b\\c\\d']])]),
        ("echo '' \"\"", [("", [["echo", "", ""]])]),
        ("git diff HEAD~1 HEAD^", [("", [["git", "diff", "HEAD~1", "HEAD^"]])]),
        ("echo a#b x=1", [("", [["echo", "a#b", "x=1"]])]),
        ("echo '$(id)' \\$x \"it's!\"", [("", [["echo", "$(id)", "$x", "it's!"]])]),
    ],
)  # fmt: skip
def test_command_of_the_grammar_is_parsed(command: str, chain: object) -> None:
    found = parse_command(command)
    assert not isinstance(found, NotUnderstood)
    assert [(op, [list(words) for words in pipeline]) for op, pipeline in found] == chain


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ls > out", "a redirection"),
        ("cat < in", "a redirection"),
        ("ls 2>&1", "a redirection"),
        ("echo $HOME", "a variable"),
        ('echo "$HOME"', "a variable"),
        ("echo `id`", "a substitution"),
        ("ls *.md", "a file pattern"),
        ("ls a?", "a file pattern"),
        ("ls [ab]", "a file pattern"),
        ("cat ~/x", "a tilde"),
        ("x=~/a ls", "sets a variable"),
        ("ls --dir=~/x", "a tilde"),
        ("echo {a,b}", "a brace"),
        ("sleep 1 &", "a background command"),
        ("a & b", "a background command"),
        ("a |& b", "a background command"),
        ("a\nb", "a line break"),
        ("a\r\nb", "a line break"),
        ("ls # comment", "a comment"),
        ("A=1 ls", "sets a variable"),
        ("A+=1 ls", "sets a variable"),
        ("(ls)", "a subshell"),
        ("! ls", "an exclamation mark"),
        ("echo 'open", "a quote without its end"),
        ('echo "open', "a quote without its end"),
        ("echo \\", "a backslash at the end"),
        ("git status \\\n; id", "a line break"),
        ("cd sub && ls", "a part of the shell"),
        ("'eval' x", "a part of the shell"),
        ("if true; then id; fi", "a part of the shell"),
        ("time ls", "a part of the shell"),
        ("a && && b", "a command is missing"),
        ("a ; ; b", "a command is missing"),
        ("a ||", "a command is missing"),
        ("| a", "a command is missing"),
        ("", "it is empty"),
        ("'' x", "the name of a program is empty"),
        ("git status\u2028id", "U+2028"),
        ("git status\0; id", "U+0000"),
        ("a" * (MAX_CHARS + 1), "more than"),
        ("a " * 1500, "more than"),
        ("a;" * 60 + "a", "more than"),
    ],
)
def test_other_command_is_not_understood(command: str, reason: str) -> None:
    found = parse_command(command)
    assert isinstance(found, NotUnderstood) and reason in found.reason


def test_parsed_words_are_those_of_the_shell() -> None:
    commands = [
        "printf '%s\\n' a\\ b 'c  d' \"e\\\"f\" g\\'h \"i\\j\" HEAD~1 a#b x^y '*' \"a'b\"",
        'printf "%s\\n" "" \'\' "\\\\" \\\\ -n --x=y',
    ]
    for command in commands:
        found = parse_command(command)
        assert not isinstance(found, NotUnderstood)
        words = found[0][1][0]
        shown = subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, check=True
        )
        assert shown.stdout == "".join(f"{word}\n" for word in words[2:])
        assert words == tuple(shlex.split(command))
