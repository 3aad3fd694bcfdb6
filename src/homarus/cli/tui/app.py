"""The full-screen interface: what is on the screen, and what its keys do."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from homarus.cli.chat_history import ChatHistoryFile
from homarus.cli.text_layout import printable
from homarus.cli.tui.approval_panel import ApprovalPanel
from homarus.cli.tui.attachments import MAX_FILES, expand, find_path, format_size, read_file
from homarus.cli.tui.bars import BarState, draw_header, draw_status, read_row
from homarus.cli.tui.blocks import AnswerBlock
from homarus.cli.tui.command import TuiOptions
from homarus.cli.tui.command_list import CommandList, ListedCommand, match_commands
from homarus.cli.tui.composer import Composer, Draft
from homarus.cli.tui.help_screen import HelpScreen
from homarus.cli.tui.link import GatewayLink, OpenClient, open_connection
from homarus.cli.tui.palette import THEME
from homarus.cli.tui.picker import PickerScreen
from homarus.cli.tui.search_bar import SearchBar
from homarus.cli.tui.session_view import SessionView, Severity
from homarus.cli.tui.transcript import Transcript
from homarus.config.paths import Paths
from homarus.core.errors import HomarusError, UserError
from homarus.core.message import Json
from homarus.core.tasks import task_group
from homarus.core.text import one_line

_FRAME_S: Final = 1 / 20  # a hundred events in a frame are drawn once
_TWICE_S: Final = 2.0
_NARROW: Final = 60  # columns
PLACEHOLDER: Final = "Message  (Enter sends, / commands, F1 help)"
_LEAVE: Final = ("/quit", "/exit")
_NOTICE_S: Final[Mapping[Severity, float]] = {"information": 3, "warning": 10, "error": 10}


async def run_tui(options: TuiOptions, env: Mapping[str, str]) -> None:
    """Run the interface until the person leaves; raises the error of a connection that fails."""
    warnings: list[str] = []
    connect = partial(
        open_connection, options.gateway, is_local=options.is_local, warn=warnings.append
    )
    history = ChatHistoryFile(Paths.find(env).state)
    async with task_group() as group:
        app = TuiApp(options, connect, history, group, warnings)
        try:
            await app.run_async()
        finally:
            app.disconnect()
    if app.failure:
        raise app.failure


class TuiApp(App[None]):
    """One screen: header, conversation, question, input, status."""

    CSS_PATH = "tui.tcss"
    TITLE = "homarus"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", show=False),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+d", "leave", show=False, priority=True),
        Binding("ctrl+q", "nothing", show=False, priority=True),
        Binding("ctrl+p", "pick_session", show=False, priority=True),
        Binding("ctrl+g", "pick_agent", show=False, priority=True),
        Binding("ctrl+l", "pick_model", show=False, priority=True),
        Binding("ctrl+r", "pick_thinking", show=False, priority=True),
        Binding("ctrl+t", "toggle_thinking", show=False, priority=True),
        Binding("ctrl+o", "toggle_tools", show=False, priority=True),
        Binding("ctrl+f", "search", show=False, priority=True),
        Binding("ctrl+y", "copy_answer", show=False, priority=True),
        Binding("f1", "help", show=False, priority=True),
        Binding("f2", "answer", show=False, priority=True),
        Binding("pageup", "scroll(-1)", show=False, priority=True),
        Binding("pagedown", "scroll(1)", show=False, priority=True),
        Binding("ctrl+home", "scroll_start", show=False, priority=True),
        Binding("ctrl+end", "scroll_end", show=False, priority=True),
    ]
    # What a modal screen leaves alone.
    _ON_MAIN: ClassVar = frozenset(
        {"interrupt", "pick_session", "pick_agent", "pick_model", "pick_thinking", "search",
         "help", "answer", "scroll", "scroll_start", "scroll_end", "escape"}
    )  # fmt: skip

    def __init__(
        self,
        options: TuiOptions,
        connect: OpenClient,
        history: ChatHistoryFile,
        group: asyncio.TaskGroup,
        warnings: list[str],
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        answer_delay_s: float | None = None,
    ) -> None:
        super().__init__()
        self.register_theme(THEME)
        self.theme = THEME.name
        self._options, self._history = options, history
        self._group: asyncio.TaskGroup = group
        self._warnings, self._now_ms = warnings, now_ms
        self._answer_delay_s = answer_delay_s
        self.link = GatewayLink(connect)
        self.view = SessionView(self.link, options, self._draw_soon, self._say)
        self.failure: HomarusError | None = None
        self._linking: asyncio.Task[None] | None = None
        self._is_drawing = self._is_draw_scheduled = False
        self._interrupted_s = 0.0
        self._busy_since_s = 0.0
        self._tick = 0
        self._found_key = ""
        self._notice_timer: Timer | None = None

    # What is on the screen

    def compose(self) -> ComposeResult:
        yield Static(id="header", markup=False)
        yield Transcript()
        delay = {} if self._answer_delay_s is None else {"delay_s": self._answer_delay_s}
        yield ApprovalPanel(now_ms=self._now_ms, **delay)
        yield CommandList()
        yield SearchBar()
        yield Static(id="notice", markup=False)
        with Vertical(id="input"):
            yield Static(id="files", markup=False)
            with Horizontal(id="line"):
                yield Static("› ", id="prompt", markup=False)
                yield Composer(self._history.load())
        yield Static(id="status", markup=False)

    def on_mount(self) -> None:
        # Textual makes every task start at once; the parts of this program do not expect that.
        asyncio.get_running_loop().set_task_factory(None)
        self.query_one("#files").display = self.query_one("#notice").display = False
        self.composer.focus()
        self.composer.placeholder = PLACEHOLDER
        self.set_interval(0.25, self._on_tick)
        self.panel.fit(*self.size)
        self._draw()
        self.call_after_refresh(self._connect)

    @property
    def _is_open(self) -> bool:
        """Whether there is a screen: events may arrive while the program ends."""
        return self.is_running and bool(self.screen_stack)

    @property
    def composer(self) -> Composer:
        return self.screen_stack[0].query_one(Composer)

    @property
    def transcript(self) -> Transcript:
        return self.screen_stack[0].query_one(Transcript)

    @property
    def panel(self) -> ApprovalPanel:
        return self.screen_stack[0].query_one(ApprovalPanel)

    @property
    def commands(self) -> CommandList:
        return self.screen_stack[0].query_one(CommandList)

    # The connection

    def _connect(self) -> None:
        self._linking = self._group.create_task(self._keep_connected())

    async def _keep_connected(self) -> None:
        try:
            await self.link.run(self)
        except HomarusError as exc:
            self.failure = exc
            self.exit()

    def disconnect(self) -> None:
        """Close the connection; what runs in this process is stopped."""
        if self._linking:
            self._linking.cancel()

    def connected(self, hello: Mapping[str, Json]) -> None:
        for each in self._warnings:
            self._say(each, "warning")
        self._warnings.clear()
        self._group.create_task(self._start(hello))

    async def _start(self, hello: Mapping[str, Json]) -> None:
        await self.view.open(hello)

    def received(self, name: str, payload: Json) -> None:
        self.view.on_event(name, payload, self._group)

    def disconnected(self, reason: str) -> None:
        self.view.on_disconnected()
        self._draw_soon()

    # Drawing

    def _draw_soon(self) -> None:
        """Draw with the next frame."""
        if not self._is_draw_scheduled and self._is_open:
            self._is_draw_scheduled = True
            self.set_timer(_FRAME_S, self._draw)

    def _draw(self) -> None:
        self._is_draw_scheduled = False
        if not self._is_open:
            return
        conversation = self.view.conversation
        if self.transcript.is_at_end:
            conversation.forget_old()
        self.transcript.show_blocks(conversation.get_blocks())
        waiting = self.view.pending.of_session(conversation.key)
        panel = self.panel
        had = panel.pending
        panel.show_question(waiting[0] if waiting else None, len(waiting))
        if panel.pending is not had:
            self._place_focus()
        self._draw_files()
        self._draw_bars()

    def _place_focus(self) -> None:
        """Go to a new question, unless something is being typed; back when it is answered."""
        if self.panel.pending is None:
            if not self.screen_stack[0].query_one(SearchBar).display:
                self.composer.focus()
        elif not self.composer.text and len(self.screen_stack) == 1:
            self.panel.focus()

    def _draw_bars(self) -> None:
        if not self._is_open:
            return
        state = self._bar_state()
        main = self.screen_stack[0]
        columns = self.size.width
        main.query_one("#header", Static).update(draw_header(state, columns))
        main.query_one("#status", Static).update(draw_status(state, columns))

    def _bar_state(self) -> BarState:
        view, conversation = self.view, self.view.conversation
        waiting = view.describe_waiting()
        if waiting and not self._busy_since_s:
            self._busy_since_s = time.monotonic()
        elif not waiting:
            self._busy_since_s = 0.0
        seconds = int(time.monotonic() - self._busy_since_s) if waiting else 0
        link = "connected" if self.link.is_connected else "lost" if view.is_open else "connecting"
        fields: Any = read_row(conversation.row)
        return replace(
            BarState(
                agent=view.agent_name,
                session=view.session_name,
                thinking=conversation.thinking,
                link="lost" if link == "lost" else "connected" if view.is_open else "connecting",
                is_local=self._options.is_local,
                total_tokens=view.spent_tokens,
                cost_usd=view.spent_usd,
                waiting=waiting,
                waiting_s=seconds,
                tick=self._tick,
                elsewhere=view.pending.count_elsewhere(conversation.key),
            ),
            **fields,
        )

    def _draw_files(self) -> None:
        shown = self.screen_stack[0].query_one("#files", Static)
        files = self.view.files
        shown.display = bool(files)
        if files:
            names = " · ".join(f"{each.name} ({format_size(each.size)})" for each in files)
            text = f"📎 {names} · Backspace removes"
            shown.update(Content(printable(one_line(text, max(20, self.size.width - 2)))))

    def _on_tick(self) -> None:
        self._tick += 1
        if self.view.describe_waiting() or not self.link.is_connected:
            self._draw_bars()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw_resized)

    def _draw_resized(self) -> None:
        is_narrow = self.size.width < _NARROW
        self.composer.placeholder = "Message" if is_narrow else PLACEHOLDER
        self.panel.fit(*self.size)
        self._draw_files()
        self._draw_bars()

    def _say(self, text: str, severity: Severity = "information") -> None:
        """Show a line of the program for a moment."""
        if not self._is_open:
            return
        notice = self.screen_stack[0].query_one("#notice", Static)
        notice.update(Content(printable(one_line(text, 400))))
        notice.set_class(severity == "error", "-error")
        notice.set_class(severity == "warning", "-warning")
        notice.display = True
        if self._notice_timer:
            self._notice_timer.stop()
        self._notice_timer = self.set_timer(_NOTICE_S[severity], self._end_notice)

    def _end_notice(self) -> None:
        if self._is_open:
            self.screen_stack[0].query_one("#notice").display = False

    # Messages of the widgets

    @on(Composer.Typed)
    def _on_typed(self) -> None:
        text = self.composer.text
        found = match_commands(text, self.view.commands)
        if len(found) == 1 and found[0].name == text:
            found = []
        self.commands.show_matches(found, self.size.width)
        self.composer.has_list = bool(found)

    @on(Composer.Moved)
    def _on_moved(self, event: Composer.Moved) -> None:
        self.commands.move(event.step)

    @on(Composer.Completed)
    def _on_completed(self) -> None:
        if chosen := self.commands.chosen:
            self._take(chosen)
        else:
            self.action_answer()

    @on(Composer.Submitted)
    async def _on_submitted(self, event: Composer.Submitted) -> None:
        chosen, text = None if event.is_cleared else self.commands.chosen, event.text
        if chosen and text != chosen.name and text not in chosen.aliases:
            self._take(chosen)
            if chosen.args:
                return
            text = chosen.name
        if not event.is_cleared:
            self.composer.forget()
            self._close_commands()
        await self._submit(text, event.draft)

    async def _submit(self, text: str, draft: Draft) -> None:
        plain = text.strip()
        word, _, rest = plain.partition(" ")
        if word in _LEAVE:
            self.exit()
        elif word == "/attach":
            await self.attach(rest.strip())
        elif plain or self.view.files:
            await self._send(text, draft)

    async def _send(self, text: str, draft: Draft) -> None:
        try:
            await self.view.check_command(text)
        except HomarusError as exc:
            self._say_error(exc)
            self.composer.put_back(draft)
            return
        self._history.add(text)
        self.composer.add_history(text)
        self.transcript.follow()
        self._group.create_task(self.view.send(text.strip()))

    @on(Composer.Pasted)
    async def _on_pasted(self, event: Composer.Pasted) -> None:
        path = find_path(event.text)
        if path is not None and self.composer.text.strip() == event.text.strip():
            self.composer.forget()
            await self.attach(str(path))

    @on(Composer.EmptyBackspace)
    def _on_backspace(self) -> None:
        if self.view.files:
            self.view.files.pop()
            self._draw_files()

    async def attach(self, text: str) -> None:
        """Read a file for the next message."""
        path = find_path(text) or expand(text)
        try:
            if len(self.view.files) >= MAX_FILES:
                raise UserError(f"a message has at most {MAX_FILES} files", fix="send it first")
            self.view.files.append(await asyncio.to_thread(read_file, path))
        except HomarusError as exc:
            self._say_error(exc)
        self._draw_files()

    @on(ApprovalPanel.Answered)
    async def _on_answered(self, event: ApprovalPanel.Answered) -> None:
        with suppress(HomarusError):
            try:
                await self.view.pending.answer(event.pending, event.decision)
            except HomarusError as exc:
                self._say_error(exc)
        self.view.update_waiting()
        self._draw()

    @on(ApprovalPanel.Left)
    def _on_left(self) -> None:
        self.composer.focus()

    @on(Transcript.NeedsOlder)
    def _on_needs_older(self) -> None:
        self._group.create_task(self._load_older())

    async def _load_older(self) -> None:
        await self.view.conversation.load_older()

    @on(SearchBar.Wanted)
    async def _on_search(self, event: SearchBar.Wanted) -> None:
        bar = self.screen_stack[0].query_one(SearchBar)
        bar.show_state("…")
        conversation = self.view.conversation
        key = await conversation.search(event.text, self._found_key, step=event.step)
        if key:
            self._found_key = key
            self._draw()
            self.transcript.show_found(key, event.text)
        bar.show_state("" if key else "no more" if self._found_key else "not found")

    @on(SearchBar.Closed)
    def _on_search_closed(self) -> None:
        self._found_key = ""
        self.transcript.clear_found()
        self.composer.focus()

    def _say_error(self, error: HomarusError) -> None:
        self._say(f"{error.message}{f' → {error.fix}' if error.fix else ''}", "error")

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the keys of a modal screen to it."""
        return len(self.screen_stack) <= 1 or action not in self._ON_MAIN

    def action_nothing(self) -> None:
        """Do nothing: Ctrl-Q would leave by mistake."""

    async def action_escape(self) -> None:
        if self.commands.is_open:
            self._close_commands()
        elif await self.view.abort():
            self._say("Stopping.")
        elif self.screen.focused is not self.composer:
            self.composer.focus()

    async def action_interrupt(self) -> None:
        if (selected := self.screen.get_selected_text()) is not None:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            self._say("Copied.")
            return
        now_s = time.monotonic()
        if now_s - self._interrupted_s < _TWICE_S:
            self.exit()
            return
        self._interrupted_s = now_s
        self.composer.forget()
        self.view.files.clear()
        self._draw_files()
        self._say("Press Ctrl-C again to leave.")

    def action_leave(self) -> None:
        if not self.composer.text:
            self.exit()

    def action_toggle_thinking(self) -> None:
        self.transcript.set_view(shows_thinking=not self.transcript.shows_thinking)
        self._say("Thinking is shown." if self.transcript.shows_thinking else "Thinking is hidden.")

    def action_toggle_tools(self) -> None:
        self.transcript.set_view(expands=not self.transcript.is_expanded)

    def action_search(self) -> None:
        self.screen.query_one(SearchBar).open()

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_answer(self) -> None:
        if self.panel.pending is None:
            return
        (self.composer if self.panel.has_focus_within else self.panel).focus()

    def _take(self, command: ListedCommand) -> None:
        self.composer.set_text(f"{command.name} " if command.args else command.name)
        self._close_commands()

    def _close_commands(self) -> None:
        self.commands.show_matches([], self.size.width)
        self.composer.has_list = False

    def action_scroll(self, step: int) -> None:
        if self.panel.has_focus_within:
            self.panel.scroll_plan(step)
            return
        if step < 0:
            self.transcript.action_page_up()
        else:
            self.transcript.action_page_down()

    def action_scroll_start(self) -> None:
        self.transcript.scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        self.transcript.follow()

    def action_copy_answer(self) -> None:
        blocks = self.view.conversation.get_blocks()
        found = [each for each in blocks if isinstance(each, AnswerBlock)]
        if found:
            self.copy_to_clipboard(found[-1].text)
            self._say("The last answer was copied.")

    # Pickers

    async def action_pick_session(self) -> None:
        await self._pick("Sessions", self.view.load_sessions, self.view.pick_session)

    async def action_pick_agent(self) -> None:
        await self._pick("Agents", self.view.load_agents, self.view.pick_agent)

    async def action_pick_model(self) -> None:
        await self._pick("Model of this session", self.view.load_models, self.view.pick_model)

    async def action_pick_thinking(self) -> None:
        title = "Thinking level of this session"
        await self._pick(title, self.view.load_levels, self.view.pick_level)

    async def _pick(self, title: str, load: Any, pick: Any) -> None:
        async def picked(value: str | None) -> None:
            if value is None:
                return
            try:
                await pick(value)
            except HomarusError as exc:
                self._say_error(exc)
            self.transcript.follow()
            self._draw()

        await self.push_screen(PickerScreen(title, load, columns=self.size.width), picked)
