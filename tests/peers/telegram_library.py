"""python-telegram-bot, in an environment of its own: a judge of shapes, and a client.

python telegram_library.py judge       lines {"type": "Message", "data": {...}} come in; for
                                       each that it does not understand whole, a line goes out
python telegram_library.py talk URL TOKEN CHAT
                                       its own Bot talks with the server there; what it
                                       understood goes out as one JSON object
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import telegram


def unknown(value: Any, path: str) -> Iterator[str]:
    """Return the fields that the library does not know, anywhere in what it parsed."""
    if isinstance(value, telegram.TelegramObject):
        for name in value.api_kwargs:
            yield f"{path}.{name} is not known"
        names = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
        for name in sorted(names - {"api_kwargs"}):
            if not name.startswith("_"):
                yield from unknown(getattr(value, name, None), f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for at, one in enumerate(value):
            yield from unknown(one, f"{path}[{at}]")


def judge() -> None:
    for line in sys.stdin:
        told = json.loads(line)
        kind = getattr(telegram, told["type"])
        try:
            read = kind.de_json(told["data"], None)
            problems = list(unknown(read, told["type"]))
        except (TypeError, ValueError, KeyError, AttributeError) as exc:
            problems = [f"{told['type']}: {type(exc).__name__}: {exc}"]
        for problem in problems:
            print(f"{problem} in {json.dumps(told['data'])[:400]}")


async def talk(url: str, token: str, chat: int) -> dict[str, Any]:
    """Make every kind of call, by an independent client."""
    async with telegram.Bot(token, base_url=f"{url}/bot", base_file_url=f"{url}/file/bot") as bot:
        updates = await bot.get_updates(timeout=0)
        sent = await bot.send_message(
            chat,
            "a <b>b</b> 🦞",
            parse_mode="HTML",
            reply_parameters=telegram.ReplyParameters(1, allow_sending_without_reply=True),
            reply_markup=telegram.InlineKeyboardMarkup(
                [[telegram.InlineKeyboardButton("Yes", callback_data="yes")]]
            ),
            disable_notification=True,
        )
        edited = await bot.edit_message_text("b", chat, sent.message_id)
        document = await bot.send_document(chat, b"bytes", filename="a.txt", caption="<i>c</i>")
        file = await bot.get_file(document.document.file_id)
        refusals = []
        for text, mode in (("x" * 4097, None), ("<b>", "HTML")):
            try:
                await bot.send_message(chat, text, parse_mode=mode)
            except telegram.error.BadRequest as exc:
                refusals.append(str(exc))
        try:
            await bot.send_message(404, "x")
        except telegram.error.BadRequest as exc:
            refusals.append(str(exc))
        try:
            await bot.send_chat_action(chat, "typing")
        except telegram.error.RetryAfter as exc:
            refusals.append(f"after {exc.retry_after}")
        await bot.set_message_reaction(chat, 1, "👍")
        return {
            "me": bot.username,
            "heard": [update.effective_message.text for update in updates],
            "entities": [f"{one.type}:{one.offset}:{one.length}" for one in sent.entities],
            "edited": edited.text,
            "file": bytes(await file.download_as_bytearray()).decode(),
            "refusals": refusals,
            "deleted": await bot.delete_message(chat, sent.message_id),
        }


def main() -> None:
    if sys.argv[1] == "judge":
        judge()
    else:
        print(json.dumps(asyncio.run(talk(sys.argv[2], sys.argv[3], int(sys.argv[4])))))


if __name__ == "__main__":
    main()
