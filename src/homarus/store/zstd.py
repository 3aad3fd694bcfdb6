"""Decompress Zstandard frames (RFC 8878), which Python's library can do from 3.14 on only.

The data is untrusted: every malformed input raises ValueError, and the size of the output is
limited. Dictionaries are not supported; checksums are not verified.
"""

from typing import Final, TypeAlias

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_MAX_BLOCK_BYTES: Final = 128 << 10
_REFILL_BYTES: Final = 32

# A decoding table: (symbol, number of bits to read, base of the next state) per state.
_FseTable: TypeAlias = tuple[int, list[tuple[int, int, int]]]  # with its accuracy
_HuffmanTable: TypeAlias = tuple[int, list[tuple[int, int]]]  # (symbol, bits) per prefix

_LENGTHS: Final = [(n, 0) for n in range(16)] + [
    (16, 1), (18, 1), (20, 1), (22, 1), (24, 2), (28, 2), (32, 3), (40, 3), (48, 4), (64, 6),
    *((1 << bits, bits) for bits in range(7, 17)),
]  # fmt: skip
_MATCHES: Final = [(n + 3, 0) for n in range(32)] + [
    (35, 1), (37, 1), (39, 1), (41, 1), (43, 2), (47, 2), (51, 3), (59, 3), (67, 4), (83, 4),
    (99, 5), *(((1 << bits) + 3, bits) for bits in range(7, 17)),
]  # fmt: skip
_DEFAULT_LENGTHS: Final = (6, [
    4, 3, *[2] * 11, 1, 1, 1, *[2] * 9, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1,
])  # fmt: skip
_DEFAULT_OFFSETS: Final = (5, [*[1] * 6, 2, 2, 2, *[1] * 15, *[-1] * 5])
_DEFAULT_MATCHES: Final = (6, [1, 4, 3, *[2] * 6, *[1] * 37, *[-1] * 7])


def decompress(data: bytes, max_bytes: int) -> bytes:
    """Return the content of all frames. Raises ValueError if it is invalid or longer."""
    try:
        out, position = bytearray(), 0
        while position < len(data):
            position = _read_frame(data, position, out, max_bytes)
        return bytes(out)
    except IndexError:
        raise ValueError("the compressed data is incomplete") from None


def _read_frame(data: bytes, start: int, out: bytearray, max_bytes: int) -> int:
    """Append the content of one frame and return where the frame ends."""
    magic = _little(data, start, 4)
    if magic in _SKIPPABLE:
        return start + 8 + _little(data, start + 4, 4)
    if magic != _MAGIC:
        raise ValueError("not compressed with Zstandard")
    flags, position = data[start + 4], start + 5
    is_single = flags >> 5 & 1
    position += not is_single  # the window size: everything is kept in memory anyway
    if _little(data, position, id_bytes := (0, 1, 2, 4)[flags & 3]):
        raise ValueError("compressed with a dictionary")
    position += id_bytes
    size_bytes = (is_single, 2, 4, 8)[flags >> 6]
    size = _little(data, position, size_bytes) + (256 if size_bytes == 2 else 0)
    position += size_bytes
    frame = _Frame(out, max_bytes)
    is_last = False
    while not is_last:
        header = _little(data, position, 3)
        is_last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
        position += 3
        stored = 1 if kind == 1 else length
        block = data[position : position + stored]
        if len(block) != stored or length > _MAX_BLOCK_BYTES:
            raise ValueError("a block is incomplete or too long")
        position += stored
        frame.add_block(kind, block, length)
        if len(out) > max_bytes:
            raise ValueError(f"the content is longer than {max_bytes} bytes")
    if size_bytes and len(out) - frame.start != size:
        raise ValueError("the content does not have the declared length")
    return position + (4 if flags & 4 else 0)


class _Frame:
    """The state that the blocks of one frame share."""

    def __init__(self, out: bytearray, max_bytes: int) -> None:
        self.out, self.start, self._max_bytes = out, len(out), max_bytes
        self._repeated = [1, 4, 8]
        self._huffman: _HuffmanTable | None = None
        self._tables: list[_FseTable | None] = [None, None, None]  # lengths, offsets, matches

    def add_block(self, kind: int, block: bytes, length: int) -> None:
        if kind == 0:
            self.out += block
        elif kind == 1:
            self.out += block * length
        elif kind == 2:
            literals, position = self._read_literals(block)
            self._add_sequences(block, position, literals)
        else:
            raise ValueError("a block has an unknown type")

    def _read_literals(self, block: bytes) -> tuple[bytes | bytearray, int]:
        kind, form = block[0] & 3, block[0] >> 2 & 3
        if kind < 2:
            header_bytes = (1, 2, 1, 3)[form]
            size = _little(block, 0, header_bytes) >> (3 if header_bytes == 1 else 4)
            if kind == 0:
                end = header_bytes + size
                return _part(block, header_bytes, end), end
            if size > _MAX_BLOCK_BYTES:
                raise ValueError("the literals are too long")
            return block[header_bytes : header_bytes + 1] * size, header_bytes + 1
        header_bytes, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
        header = _little(block, 0, header_bytes) >> 4
        size, stored = header & (1 << bits) - 1, header >> bits
        if size > _MAX_BLOCK_BYTES:
            raise ValueError("the literals are too long")
        end = header_bytes + stored
        data = _part(block, header_bytes, end)
        position = 0
        if kind == 2:
            self._huffman, position = _read_huffman(data)
        if self._huffman is None:
            raise ValueError("the literals have no table")
        if form == 0:
            return _decode_huffman(self._huffman, data[position:], size), end
        sizes = [_little(data, position + 2 * stream, 2) for stream in range(3)]
        position += 6
        literals, share = bytearray(), (size + 3) // 4
        for stored in (*sizes, len(data) - position - sum(sizes)):
            part = _part(data, position, position + stored)
            literals += _decode_huffman(self._huffman, part, min(share, size - len(literals)))
            position += stored
        return literals, end

    def _add_sequences(self, block: bytes, position: int, literals: bytes | bytearray) -> None:
        count = block[position]
        position += 1
        if count == 0:
            self.out += literals
            return
        if count == 255:
            count = _little(block, position, 2) + 0x7F00
            position += 2
        elif count > 127:
            count = (count - 128 << 8) + block[position]
            position += 1
        modes = block[position]
        position += 1
        if modes & 3:
            raise ValueError("a reserved bit is set")
        tables: list[_FseTable] = []
        for index, (default, max_log) in enumerate(
            ((_DEFAULT_LENGTHS, 9), (_DEFAULT_OFFSETS, 8), (_DEFAULT_MATCHES, 9))
        ):
            mode = modes >> 6 - 2 * index & 3
            if mode == 0:
                table: _FseTable | None = _make_fse(*default)
            elif mode == 1:
                table, position = (0, [(block[position], 0, 0)]), position + 1
            elif mode == 2:
                log, weights, position = _read_distribution(block, position, max_log)
                table = _make_fse(log, weights)
            else:
                table = self._tables[index]
            if table is None:
                raise ValueError("a table is repeated that was never set")
            self._tables[index] = table
            tables.append(table)
        self._execute(block[position:], literals, count, tables)

    def _execute(
        self, data: bytes, literals: bytes | bytearray, count: int, tables: list[_FseTable]
    ) -> None:
        bits, out, used = _ReverseBits(data), self.out, 0
        read = bits.read
        (length_log, lengths), (offset_log, offsets), (match_log, matches) = tables
        length_state, offset_state = read(length_log), read(offset_log)
        match_state = read(match_log)
        for left in range(count, 0, -1):
            length_code, length_bits, length_base = lengths[length_state]
            offset_code, offset_bits, offset_base = offsets[offset_state]
            match_code, match_bits, match_base = matches[match_state]
            if offset_code > 31:
                raise ValueError("an offset is too large")
            offset = (1 << offset_code) + read(offset_code)
            base, extra = _MATCHES[match_code]
            size = base + read(extra)
            base, extra = _LENGTHS[length_code]
            length = base + read(extra)
            if left > 1:
                length_state = length_base + read(length_bits)
                match_state = match_base + read(match_bits)
                offset_state = offset_base + read(offset_bits)
            out += literals[used : used + length]
            used += length
            self._copy(self._resolve_offset(offset, length), size)
            if len(out) > self._max_bytes:
                raise ValueError(f"the content is longer than {self._max_bytes} bytes")
        if used > len(literals) or not bits.is_at_end:
            raise ValueError("the sequences do not fit their data")
        out += literals[used:]

    def _resolve_offset(self, value: int, length: int) -> int:
        repeated = self._repeated
        if value > 3:
            offset = value - 3
            self._repeated = [offset, *repeated[:2]]
            return offset
        index = value - 1 + (length == 0)
        offset = repeated[0] - 1 if index == 3 else repeated[index]
        if index:
            kept = [other for place, other in enumerate(repeated) if place != min(index, 2)]
            self._repeated = [offset, *kept]
        return offset

    def _copy(self, offset: int, size: int) -> None:
        out = self.out
        start = len(out) - offset
        if offset < 1 or start < self.start:
            raise ValueError("a match is before the start")
        if offset >= size:
            out += out[start : start + size]
        else:  # it overlaps what it writes: the pattern repeats
            pattern = out[start:]
            out += (pattern * (size // offset + 1))[:size]


class _ReverseBits:
    """Reads bits from the end of the data, whose last set bit is a marker."""

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise ValueError("a bit stream has no end mark")
        self._data, self._position = data, len(data) - 1
        self._count = data[-1].bit_length() - 1
        self._value = data[-1] & (1 << self._count) - 1

    @property
    def is_at_end(self) -> bool:
        return not self._count and not self._position

    def read(self, bits: int) -> int:
        if bits > self._count:
            self._refill()
            if bits > self._count:
                raise ValueError("a bit stream is too short")
        self._count -= bits
        found = self._value >> self._count
        self._value &= (1 << self._count) - 1
        return found

    def read_padded(self, bits: int) -> tuple[int, bool]:
        """Read bits, zeros after the end; return also whether the end was passed."""
        if bits > self._count:
            self._refill()
        if bits <= self._count:
            return self.read(bits), False
        found = self._value << bits - self._count
        self._value = self._count = 0
        return found, True

    def _refill(self) -> None:
        size = min(_REFILL_BYTES, self._position)
        chunk = self._data[self._position - size : self._position]
        self._value = self._value << 8 * size | int.from_bytes(chunk, "little")
        self._count += 8 * size
        self._position -= size


def _read_huffman(data: bytes) -> tuple[_HuffmanTable, int]:
    """Return the decoding table of literals, and where its description ends."""
    header = data[0]
    if header >= 128:
        count = header - 127
        end = 1 + (count + 1) // 2
        packed = _part(data, 1, end)
        weights = [
            packed[place // 2] >> (4 if place % 2 == 0 else 0) & 15 for place in range(count)
        ]
    else:
        end = 1 + header
        weights = _decode_weights(_part(data, 1, end))
    total = sum(1 << weight - 1 for weight in weights if weight)
    log = total.bit_length()
    rest = (1 << log) - total
    if not total or log > 11 or rest & rest - 1 or max(weights) > log:
        raise ValueError("the weights of literals are invalid")
    weights.append(rest.bit_length())
    table: list[tuple[int, int]] = []
    for weight in range(1, log + 1):
        for symbol, own in enumerate(weights):
            if own == weight:
                table += [(symbol, log + 1 - weight)] * (1 << weight - 1)
    if len(table) != 1 << log:
        raise ValueError("the weights of literals are invalid")
    return (log, table), end


def _decode_weights(data: bytes) -> list[int]:
    log, distribution, position = _read_distribution(data, 0, 6)
    _, table = _make_fse(log, distribution)
    bits = _ReverseBits(data[position:])
    states = [bits.read(log), bits.read(log)]
    weights: list[int] = []
    while len(weights) < 255:
        state = states.pop(0)
        symbol, size, base = table[state]
        weights.append(symbol)
        more, is_over = bits.read_padded(size)
        if is_over:
            weights.append(table[states[0]][0])
            return weights
        states.append(base + more)
    raise ValueError("there are too many weights of literals")


def _decode_huffman(table: _HuffmanTable, data: bytes, size: int) -> bytearray:
    """Decode one stream of literals. The loop does what `_ReverseBits` does, without its calls."""
    log, symbols = table
    if not data or not data[-1]:
        raise ValueError("a bit stream has no end mark")
    position, count = len(data) - 1, data[-1].bit_length() - 1
    value, mask, out = data[-1] & (1 << count) - 1, (1 << log) - 1, bytearray(size)
    padding = 0
    for place in range(size):
        if count < log:
            if position:
                step = min(_REFILL_BYTES, position)
                chunk = int.from_bytes(data[position - step : position], "little")
                value = (value & (1 << count) - 1) << 8 * step | chunk
                count += 8 * step
                position -= step
            if count < log:  # the last symbols: zeros follow
                value, padding, count = value << log, padding + log, count + log
        symbol, bits = symbols[value >> count - log & mask]
        out[place] = symbol
        count -= bits
    if position or count != padding:
        raise ValueError("the literals do not fit their data")
    return out


def _read_distribution(data: bytes, start: int, max_log: int) -> tuple[int, list[int], int]:
    """Return the accuracy and the probabilities of an FSE table, and where they end."""
    value = int.from_bytes(data[start : start + 512], "little")
    log, used = (value & 15) + 5, 4
    if log > max_log:
        raise ValueError("a table is too large")
    left, weights = 1 << log, list[int]()
    while left > 0 and len(weights) < 256:
        bits = (left + 1).bit_length()
        found = value >> used & (1 << bits) - 1
        low = found & (1 << bits - 1) - 1
        threshold = (1 << bits) - 1 - (left + 1)
        if low < threshold:
            found, used = low, used + bits - 1
        else:
            found, used = found - threshold if found >> bits - 1 else found, used + bits
        weight = found - 1
        left -= abs(weight)
        weights.append(weight)
        while weight == 0:
            zeros = value >> used & 3
            used += 2
            weights += [0] * zeros
            weight = 0 if zeros == 3 else 1
    end = start + (used + 7) // 8
    if left or len(weights) > 256 or end > len(data):
        raise ValueError("the probabilities of a table are invalid")
    return log, weights, end


def _make_fse(log: int, weights: list[int]) -> _FseTable:
    size = 1 << log
    symbols, high = [0] * size, size
    for symbol, weight in enumerate(weights):
        if weight == -1:
            high -= 1
            symbols[high] = symbol
    step, position = (size >> 1) + (size >> 3) + 3, 0
    for symbol, weight in enumerate(weights):
        for _ in range(max(weight, 0)):
            symbols[position] = symbol
            position = position + step & size - 1
            while position >= high:
                position = position + step & size - 1
    counts = [abs(weight) for weight in weights]
    table = []
    for symbol in symbols:
        count = counts[symbol]
        counts[symbol] += 1
        bits = log - count.bit_length() + 1
        table.append((symbol, bits, (count << bits) - size))
    return log, table


def _little(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(_part(data, start, start + size), "little")


def _part(data: bytes, start: int, end: int) -> bytes:
    if not start <= end <= len(data):
        raise ValueError("the compressed data is incomplete")
    return data[start:end]
