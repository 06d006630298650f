# SPDX-License-Identifier: Apache-2.0
"""A decoder written from docs/format/tensor-codec.md alone, in plain Python: proof that the page
suffices. Slow on purpose; it decodes the golden containers."""

import struct

M64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def keys():
    out, s = [], 0x4C454154
    for _ in range(128):
        s = (s + GOLDEN) & M64
        z = s
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & M64
        z ^= z >> 31
        out += [z & 0xFFFFFFFF, z >> 32]
    return out


KEYS = keys()


def mix(h):
    h = ((h ^ h >> 33) * 0xFF51AFD7ED558CCD) & M64
    h = ((h ^ h >> 33) * 0xC4CEB9FE1A85EC53) & M64
    return h ^ h >> 33


def page_hash(data):
    total = mix(len(data) ^ GOLDEN)
    for t in range((len(data) + 1023) // 1024):
        tile = data[t * 1024:(t + 1) * 1024].ljust(1024, b"\0")
        w = struct.unpack("<256I", tile)
        s = sum((w[i] + KEYS[i] & 0xFFFFFFFF) * (w[i + 1] + KEYS[i + 1] & 0xFFFFFFFF)
                for i in range(0, 256, 2))
        total += mix((s + (t + 1) * GOLDEN) & M64)
    return total & M64


def align16(n):
    return (n + 15) // 16 * 16


SIZES = {0: 1, 1: 2, 2: 2, 3: 4, 4: 1, 5: 1, 6: 1}


def element(kind, symbol, rest0, rest1):
    if kind in (1, 2):
        r = symbol << 8 | rest0
        return (r >> 1 | r << 15) & 0xFFFF
    if kind == 3:
        r = symbol << 24 | rest1 << 16 | rest0
        return (r >> 1 | r << 31) & 0xFFFFFFFF
    return (symbol >> 1 | symbol << 7) & 0xFF if kind == 5 else symbol


def rests(payload, at, kind, count):
    zeros = [0] * count
    if kind in (1, 2):
        return list(payload[at:at + count]), zeros, at + align16(count)
    if kind == 3:
        low = list(struct.unpack_from("<%dH" % count, payload, at))
        at += align16(2 * count)
        return low, list(payload[at:at + count]), at + align16(count)
    return zeros, zeros, at


def fast(payload, kind, count, patches):
    h = 3 if kind in (2, 5) else 0
    at = 16
    codes = [payload[at + i // 2] >> i % 2 * 4 & 15 for i in range(count)]
    at += align16((count + 1) // 2)
    symbols = [payload[c] << h & 255 for c in codes]
    if h:
        for i in range(count):
            group = int.from_bytes(payload[at + i // 8 * 3:at + i // 8 * 3 + 3], "little")
            symbols[i] |= group >> i % 8 * 3 & 7
        at += align16((count + 7) // 8 * 3)
    rest0, rest1, at = rests(payload, at, kind, count)
    for p in struct.unpack_from("<%dI" % patches, payload, at):
        symbols[p & 0xFFFFFF] = p >> 24
    return symbols, rest0, rest1, at + 4 * patches


def code_table(payload):
    lengths = [payload[s // 2] >> s % 2 * 4 & 15 for s in range(256)]
    table, code, last = {}, 0, 0
    for length, symbol in sorted((n, s) for s, n in enumerate(lengths) if n):
        code <<= length - last
        last = length
        table[length, code] = symbol
        code += 1
    assert code == 1 << last  # complete
    return table


def dense(payload, kind, count, lanes_bytes):
    table = code_table(payload)
    segments = (count + 32767) // 32768
    at = 128
    lane_lengths = struct.unpack_from("<%dH" % (64 * segments), payload, at)
    at += 128 * segments
    rest0, rest1, at = rests(payload, at, kind, count)
    symbols, begin = [0] * count, at
    for number, length in enumerate(lane_lengths):
        bits, position = int.from_bytes(payload[begin:begin + length], "little"), 0
        first = number // 64 * 32768
        for i in range(first + number % 64, min(count, first + 32768), 64):
            code = n = 0
            while (n, code) not in table:
                code = code << 1 | bits >> position & 1
                position += 1
                n += 1
            symbols[i] = table[n, code]
        assert (position + 7) // 8 == length
        begin += length
    return symbols, rest0, rest1, at + align16(lanes_bytes + 8)


def block(stored):
    magic, mode, kind, _, zero, n, size, patches, lanes_bytes, check = struct.unpack_from(
        "<IBBBBIIIIQ", stored)
    assert magic == 0x3142544C and zero == 0
    payload = stored[32:32 + size]
    count = n // SIZES[kind]
    if mode == 0:
        plain = payload
    else:
        symbols, rest0, rest1, tail = (fast(payload, kind, count, patches) if mode == 1 else
                                       dense(payload, kind, count, lanes_bytes))
        plain = b"".join(element(kind, *x).to_bytes(SIZES[kind], "little")
                         for x in zip(symbols, rest0, rest1)) + payload[tail:]
    assert len(plain) == n and page_hash(plain) == check
    return plain


def container(data):
    assert data[:8] == b"LEATTEN\1" and page_hash(data[:24]) == struct.unpack_from("<Q", data, 24)[0]
    footer = data[-64:]
    magic, plain, count, index_at, total, index_hash, _, check = struct.unpack("<8s7Q", footer)
    assert magic == b"LEATTEN\2" and total == len(data) and page_hash(footer[:56]) == check
    index = data[index_at:index_at + 16 * count]
    assert page_hash(index) == index_hash
    ends = [struct.unpack_from("<QQ", index, 16 * i) for i in range(count)] + [(plain, index_at)]
    out = b"".join(block(data[a[1]:b[1]]) for a, b in zip(ends, ends[1:]))
    assert len(out) == plain
    return out
