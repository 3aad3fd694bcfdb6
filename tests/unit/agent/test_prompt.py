from homarus.agent.prompt import system_prompt
from homarus.agent.workspace import WorkspaceFile
from homarus.providers.base import ToolSpec

TOOLS = (ToolSpec("read", "Read a file.\nMore.", {}), ToolSpec("exec", "Run a command.", {}))
FILES = (WorkspaceFile("AGENTS.md", "Be kind."),)


def prompt(window: int = 200_000, tools: tuple[ToolSpec, ...] = TOOLS) -> str:
    return system_prompt(name="Ada", workspace="/w", files=FILES, tools=tools, window=window)


def test_the_prompt_names_agent_tools_workspace_and_files() -> None:
    text = prompt()
    for piece in ("You are Ada", "- read: Read a file.", "/w", "### AGENTS.md\nBe kind."):
        assert piece in text
    assert "More." not in text


def test_the_prompt_is_the_same_bytes_every_time() -> None:
    assert prompt() == prompt()


def test_a_small_model_gets_a_few_sentences_and_no_files() -> None:
    text = prompt(window=4_096)
    assert len(text) < 900  # about 300 tokens
    assert "demo" in text and "AGENTS.md" not in text


def test_no_tools_means_no_section_about_them() -> None:
    assert "## Tools" not in prompt(tools=())
