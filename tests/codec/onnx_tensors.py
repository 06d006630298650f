# SPDX-License-Identifier: Apache-2.0
"""Trained tensors from ONNX and tfjs files, with the standard library alone.

An ONNX file is a protobuf message; only the wire format and a handful of field numbers of
onnx.proto are needed to find the float tensors in it.
"""

import array
import struct

FLOAT = 1


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    """(number, value) of a message; value is an int, or a memoryview for bytes and messages."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 1:
            value, at = data[at:at + 8], at + 8
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at:at + size], at + size
        elif wire == 5:
            value, at = data[at:at + 4], at + 4
        else:
            raise ValueError("not a protobuf message")
        yield key >> 3, value


def tensor_floats(message):
    """The raw fp32 bytes of a TensorProto, or None when it is of another type or empty."""
    kind, raw = 0, b""
    for number, value in fields(message):
        if number == 2:
            kind = value
        elif number == 9:
            raw = bytes(value)
        elif number == 4:  # float_data, packed
            raw = bytes(value)
    return raw if kind == FLOAT and len(raw) >= 4 else None


def graph_tensors(graph):
    for number, value in fields(graph):
        if number == 5:  # initializer
            raw = tensor_floats(value)
            if raw is not None:
                yield raw
        elif number == 1:  # node
            for node_number, attribute in fields(value):
                if node_number != 5:
                    continue
                for attribute_number, inner in fields(attribute):
                    if attribute_number == 5:  # a constant
                        raw = tensor_floats(inner)
                        if raw is not None:
                            yield raw
                    elif attribute_number == 6:  # a graph inside a condition
                        yield from graph_tensors(inner)


def onnx_floats(data):
    """All fp32 tensors of a model, one after the other."""
    found = []
    for number, value in fields(memoryview(data)):
        if number == 7:
            found.extend(graph_tensors(value))
    return b"".join(found)


def fp32_to_bf16(raw):
    """Rounds to nearest even, as the frameworks do."""
    words = array.array("I")
    words.frombytes(raw[:len(raw) // 4 * 4])
    return array.array("H", ((w + 0x7FFF + (w >> 16 & 1)) >> 16 & 0xFFFF for w in words)).tobytes()


def fp32_to_fp16(raw):
    floats = array.array("f")
    floats.frombytes(raw[:len(raw) // 4 * 4])
    limited = [max(-65504.0, min(65504.0, x)) for x in floats]
    return struct.pack("<%de" % len(limited), *limited)
