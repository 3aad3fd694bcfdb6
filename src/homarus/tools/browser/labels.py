"""Draw the refs of a snapshot on a screenshot, so that a model sees which element is which."""

from collections.abc import Iterable
from io import BytesIO
from typing import Final

MAX_LABELS: Final = 150
_COLOUR: Final = (220, 40, 20)


def draw_labels(
    picture: bytes, boxes: Iterable[tuple[str, tuple[int, int, int, int]]]
) -> tuple[bytes, int, int]:
    """Return a PNG with a frame and the ref for every box in it, how many, and how many not."""
    from PIL import Image as Pictures  # only for snapshots with labels
    from PIL import ImageDraw

    drawn = skipped = 0
    with Pictures.open(BytesIO(picture), formats=("PNG", "JPEG")) as opened:
        canvas = opened.convert("RGB")
    pen = ImageDraw.Draw(canvas)
    for ref, (x, y, width, height) in boxes:
        is_visible = x < canvas.width and y < canvas.height and x + width > 0 and y + height > 0
        if not is_visible or drawn == MAX_LABELS:
            skipped += 1
            continue
        pen.rectangle((x, y, x + width, y + height), outline=_COLOUR, width=2)
        left, top = max(0, x), max(0, y - 12)
        pen.rectangle((left, top, left + 7 * len(ref) + 4, top + 12), fill=_COLOUR)
        pen.text((left + 2, top), ref, fill=(255, 255, 255))
        drawn += 1
    buffer = BytesIO()
    canvas.save(buffer, "PNG")
    return buffer.getvalue(), drawn, skipped
