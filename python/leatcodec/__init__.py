# SPDX-License-Identifier: Apache-2.0
"""Lossless compression of tensors: a ctypes binding of libleatcodec.

    import leatcodec
    container = leatcodec.encode(weights, type="bf16")
    assert leatcodec.decode(container) == weights
    part = leatcodec.decode_range(container, offset=4096, length=512)

Calls release the GIL and share no state, so any number of threads may use the module at once; an
Encoder belongs to one thread at a time. Errors raise leatcodec.Error, whose `code` is the C API's.
The library is found through LEAT_CODEC_LIBRARY or the dynamic linker.
"""

import ctypes
import os
import threading
import time
from collections import namedtuple

__all__ = [
    "Error", "Encoder", "Info", "Block", "Region", "Plan", "encode", "decode", "decode_range",
    "info", "blocks", "regions", "detect", "estimate", "calibrate", "plan", "cpu_name",
    "TYPES", "MODES", "CPUS", "BLOCK_BYTES_DEFAULT",
]

TYPES = ("bytes", "bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "int8")
MODES = ("raw", "fast", "dense", "auto")
CPUS = ("auto", "c", "avx2", "avx512")
BLOCK_BYTES_DEFAULT = 256 * 1024
BLOCK_BYTES_MAX = 1024 * 1024
_BLOCK_HEADER_BYTES = 32

Info = namedtuple("Info", "plain_bytes container_bytes block_count index_offset block_bytes_max "
                          "version")
Block = namedtuple("Block", "plain_offset stored_offset plain_bytes stored_bytes type mode "
                            "patch_count code_bits")
Region = namedtuple("Region", "name offset bytes type")
Plan = namedtuple("Plan", "mode seconds seconds_plain seconds_fast seconds_dense")


class Error(Exception):
    """A call failed; `code` is its enum leat_codec_err."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class _Options(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint32) for n in ("block_bytes", "type", "mode", "cpu")]


class _Info(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("plain_bytes", "container_bytes", "block_count",
                                               "index_offset")]
    _fields_ += [(n, ctypes.c_uint32) for n in ("block_bytes_max", "version")]


class _Block(ctypes.Structure):
    _fields_ = [("plain_offset", ctypes.c_uint64), ("stored_offset", ctypes.c_uint64)]
    _fields_ += [(n, ctypes.c_uint32) for n in ("plain_bytes", "stored_bytes", "type", "mode",
                                                "patch_count", "code_bits")]


class _Reader(ctypes.Structure):
    _fields_ = [("container", ctypes.c_void_p), ("index", ctypes.c_void_p), ("info", _Info)]


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Region(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("type", ctypes.c_uint32),
                ("name_bytes", ctypes.c_uint32), ("name_offset", ctypes.c_uint64)]


class _Rates(ctypes.Structure):
    _fields_ = [("encode", ctypes.c_double * 2), ("decode", ctypes.c_double * 2)]


class _PlanInput(ctypes.Structure):
    _fields_ = [("plain_bytes", ctypes.c_double), ("link_bytes_per_s", ctypes.c_double),
                ("ratio", ctypes.c_double * 2), ("rates", _Rates), ("reuse", ctypes.c_double),
                ("is_encoded", ctypes.c_bool), ("is_overlapped", ctypes.c_bool)]


class _Plan(ctypes.Structure):
    _fields_ = [("mode", ctypes.c_uint32), ("seconds", ctypes.c_double),
                ("seconds_plain", ctypes.c_double), ("seconds_mode", ctypes.c_double * 2)]


_CLOCK = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)


class _Calibration(ctypes.Structure):
    _fields_ = [("plain", ctypes.c_void_p), ("n", ctypes.c_size_t), ("type", ctypes.c_uint32),
                ("cpu", ctypes.c_uint32), ("out", ctypes.c_void_p), ("back", ctypes.c_void_p),
                ("round_ns", ctypes.c_uint64), ("now_ns", _CLOCK), ("context", ctypes.c_void_p)]


def _load():
    path = os.environ.get("LEAT_CODEC_LIBRARY", "libleatcodec.so.0")
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f"libleatcodec cannot be loaded ({e}); install it, or set "
                          "LEAT_CODEC_LIBRARY to the path of libleatcodec.so.0") from e
    p, u32, u64, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
    out = ctypes.POINTER
    signatures = {
        "encode_bound": [out(_Options), u64, u64, out(u64)],
        "encode": [out(_Options), p, u64, p, u64, p, size, out(u64)],
        "info_read": [p, u64, out(_Info)],
        "decode": [p, u64, p, u64, p, size, u32, out(u64)],
        "decode_range": [p, u64, _Range, p, p, size, u32],
        "reader_open": [p, u64, out(_Reader)],
        "reader_block_info": [out(_Reader), u64, out(_Block)],
        "encoder_bytes": [out(_Options), u64, u64, out(u64)],
        "encoder_init": [out(_Options), u64, u64, p, u64, out(p)],
        "encoder_write": [p, p, size, out(size), p, size, out(size)],
        "encoder_set_type": [p, u32, p, size, out(size)],
        "encoder_finish": [p, p, u64, out(u64)],
        "detect": [p, size, p, size, out(u32)],
        "file_regions": [p, size, u64, out(_Region), size, out(size)],
        "estimate": [p, size, u32, p, size, out(ctypes.c_double * 2)],
        "calibrate": [out(_Calibration), p, size, out(_Rates)],
        "plan": [out(_PlanInput), out(_Plan)],
    }
    for name, arguments in signatures.items():
        function = getattr(lib, "leat_codec_" + name)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    for name, arguments, result in (
            ("err_text", [ctypes.c_int], ctypes.c_char_p),
            ("cpu_name", [u32], ctypes.c_char_p),
            ("encode_scratch_bytes", [u32], size),
            ("decode_scratch_bytes", [u32], size),
            ("encoder_output_bytes_min", [p], size),
            ("encoder_finish_bytes", [p], u64)):
        function = getattr(lib, "leat_codec_" + name)
        function.argtypes = arguments
        function.restype = result
    return lib


_lib = _load()
_scratches = threading.local()


def _check(code):
    if code != 0:
        raise Error(code, _lib.leat_codec_err_text(code).decode())


def _number(names, name, what):
    try:
        return names.index(name)
    except ValueError:
        raise ValueError(f"unknown {what} {name!r}; one of {', '.join(names)}") from None


def _unsigned(value, what, bits=64):
    """The number itself; ctypes would cut one that does not fit, and the call would mean another."""
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{what} {value} is not from 0 to {(1 << bits) - 1}")
    return value


class _Memory:
    """Memory aligned to 64 bytes."""

    def __init__(self, n):
        self.buffer = ctypes.create_string_buffer(n + 64)
        self.address = (ctypes.addressof(self.buffer) + 63) & ~63
        self.bytes = n


def _scratch():
    """Scratch that serves every call of this thread."""
    memory = getattr(_scratches, "memory", None)
    if memory is None:
        memory = _Memory(max(_lib.leat_codec_encode_scratch_bytes(BLOCK_BYTES_MAX),
                             _lib.leat_codec_decode_scratch_bytes(BLOCK_BYTES_MAX)))
        _scratches.memory = memory
    return memory


class _View:
    """The address of any bytes-like object's memory, without a copy where it is writable or bytes."""

    def __init__(self, data):
        view = memoryview(data).cast("B")
        self.n = view.nbytes
        if self.n == 0:
            self.keep = ctypes.create_string_buffer(1)
            self.address = ctypes.addressof(self.keep)
        elif not view.readonly:
            self.keep = (ctypes.c_char * self.n).from_buffer(view)
            self.address = ctypes.addressof(self.keep)
        else:
            raw = data if isinstance(data, bytes) else bytes(view)
            self.keep = (raw, ctypes.c_char_p(raw))
            self.address = ctypes.cast(self.keep[1], ctypes.c_void_p).value


def _options(type, mode, block_bytes, cpu):
    return _Options(_unsigned(block_bytes, "block_bytes", 32), _number(TYPES, type, "type"), _number(MODES, mode, "mode"),
                    _number(CPUS, cpu, "cpu"))


def cpu_name(cpu="auto"):
    """The loops that `cpu` gives here, or None when this machine lacks them."""
    name = _lib.leat_codec_cpu_name(_number(CPUS, cpu, "cpu"))
    return None if name is None else name.decode()


def encode(data, type="bytes", mode="auto", block_bytes=0, cpu="auto"):
    """Encodes bytes of elements of `type` as one container and returns it."""
    o = _options(type, mode, block_bytes, cpu)
    view, scratch, bound, written = _View(data), _scratch(), ctypes.c_uint64(), ctypes.c_uint64()
    _check(_lib.leat_codec_encode_bound(ctypes.byref(o), view.n, 1, ctypes.byref(bound)))
    out = bytearray(bound.value)
    to = _View(out)
    _check(_lib.leat_codec_encode(ctypes.byref(o), view.address, view.n, to.address, bound.value,
                                  scratch.address, scratch.bytes, ctypes.byref(written)))
    return bytes(memoryview(out)[:written.value])


def info(container):
    """What a container says about itself."""
    view, found = _View(container), _Info()
    _check(_lib.leat_codec_info_read(view.address, view.n, ctypes.byref(found)))
    return Info(*(getattr(found, f) for f in Info._fields))


def decode(container, cpu="auto"):
    """The plain bytes of a container."""
    return decode_range(container, 0, info(container).plain_bytes, cpu)


def decode_range(container, offset, length, cpu="auto", out=None):
    """Plain bytes [offset, offset + length), decoding only the blocks they touch.

    With `out`, a writable buffer of `length` bytes, they are decoded into it and it is returned.
    """
    _unsigned(offset, "offset")
    _unsigned(length, "length")
    result = bytearray(length) if out is None else out
    view, to, scratch = _View(container), _View(result), _scratch()
    if to.n != length or (length > 0 and memoryview(result).readonly):
        raise ValueError("out must be writable and of exactly `length` bytes")
    _check(_lib.leat_codec_decode_range(view.address, view.n, _Range(offset, length), to.address,
                                        scratch.address, scratch.bytes,
                                        _number(CPUS, cpu, "cpu")))
    return bytes(result) if out is None else out


def blocks(container):
    """A list of Block for the blocks of a container."""
    view, reader, found, result = _View(container), _Reader(), _Block(), []
    _check(_lib.leat_codec_reader_open(view.address, view.n, ctypes.byref(reader)))
    for i in range(reader.info.block_count):
        _check(_lib.leat_codec_reader_block_info(ctypes.byref(reader), i, ctypes.byref(found)))
        values = {f: getattr(found, f) for f in Block._fields}
        values.update(type=TYPES[found.type], mode=MODES[found.mode])
        result.append(Block(**values))
    return result


def regions(head, file_bytes=None):
    """The regions of a safetensors or GGUF file from its first bytes (its header at least)."""
    view, count = _View(head), ctypes.c_size_t()
    size = view.n if file_bytes is None else _unsigned(file_bytes, "file_bytes")
    capacity = 64
    while True:
        found = (_Region * capacity)()
        code = _lib.leat_codec_file_regions(view.address, view.n, size, found, capacity,
                                            ctypes.byref(count))
        if code != 2 or count.value <= capacity:  # SPACE: it says how many
            break
        capacity = count.value
    _check(code)
    raw = memoryview(head).cast("B")
    return [Region(bytes(raw[r.name_offset:r.name_offset + r.name_bytes]).decode("utf-8", "replace"),
                   r.offset, r.bytes, TYPES[r.type]) for r in found[:count.value]]


def detect(data):
    """A guess of the element type of `data`."""
    view, scratch, found = _View(data), _scratch(), ctypes.c_uint32()
    _check(_lib.leat_codec_detect(view.address, view.n, scratch.address, scratch.bytes,
                                  ctypes.byref(found)))
    return TYPES[found.value]


def estimate(data, type):
    """(ratio FAST, ratio DENSE) by a sample."""
    view, scratch, found = _View(data), _scratch(), (ctypes.c_double * 2)()
    _check(_lib.leat_codec_estimate(view.address, view.n, _number(TYPES, type, "type"),
                                    scratch.address, scratch.bytes, ctypes.byref(found)))
    return tuple(found)


def calibrate(data, type, cpu="auto", round_s=0.05):
    """Measures this machine: ((encode FAST, DENSE), (decode FAST, DENSE)) in bytes a second."""
    block = bytes(memoryview(data).cast("B")[:BLOCK_BYTES_DEFAULT])
    view, scratch, rates = _View(block), _scratch(), _Rates()
    out, back = _Memory(view.n + _BLOCK_HEADER_BYTES), _Memory(max(view.n, 1))
    how = _Calibration(view.address, view.n, _number(TYPES, type, "type"),
                       _number(CPUS, cpu, "cpu"), out.address, back.address,
                       _unsigned(int(round_s * 1e9), "round_ns"),
                       _CLOCK(lambda context: time.monotonic_ns()), None)
    _check(_lib.leat_codec_calibrate(ctypes.byref(how), scratch.address, scratch.bytes,
                                     ctypes.byref(rates)))
    return tuple(rates.encode), tuple(rates.decode)


def plan(plain_bytes, link_bytes_per_s, ratio, encode_rates, decode_rates, reuse=1.0,
         is_encoded=False, is_overlapped=False):
    """Whether to encode for a transfer, and how. See docs/tensor-codec.md."""
    pair = ctypes.c_double * 2
    given = _PlanInput(plain_bytes, link_bytes_per_s, pair(*ratio),
                       _Rates(pair(*encode_rates), pair(*decode_rates)), reuse, is_encoded,
                       is_overlapped)
    found = _Plan()
    _check(_lib.leat_codec_plan(ctypes.byref(given), ctypes.byref(found)))
    return Plan(MODES[found.mode], found.seconds, found.seconds_plain, *found.seconds_mode)


class Encoder:
    """Writes a container piece by piece: plain bytes go in, container bytes come out.

    encoder = Encoder(plain_bytes_max=n, type="bf16")
    file.write(encoder.write(piece)) ...; file.write(encoder.finish())
    """

    def __init__(self, plain_bytes_max, type="bytes", mode="auto", block_bytes=0, cpu="auto",
                 regions_max=1):
        o = _options(type, mode, block_bytes, cpu)
        _unsigned(plain_bytes_max, "plain_bytes_max")
        _unsigned(regions_max, "regions_max")
        needed, self._encoder = ctypes.c_uint64(), ctypes.c_void_p()
        _check(_lib.leat_codec_encoder_bytes(ctypes.byref(o), plain_bytes_max, regions_max,
                                             ctypes.byref(needed)))
        self._memory = _Memory(needed.value)
        _check(_lib.leat_codec_encoder_init(ctypes.byref(o), plain_bytes_max, regions_max,
                                            self._memory.address, needed.value,
                                            ctypes.byref(self._encoder)))
        self._room = bytearray(_lib.leat_codec_encoder_output_bytes_min(self._encoder))

    def _open(self):
        if self._encoder is None:
            raise ValueError("the encoder has finished")

    def write(self, data):
        """Takes all of `data` and returns what is ready."""
        self._open()
        view, to, out = _View(data), _View(self._room), bytearray()
        consumed, written, done = ctypes.c_size_t(), ctypes.c_size_t(), 0
        while done < view.n:
            _check(_lib.leat_codec_encoder_write(self._encoder, view.address + done, view.n - done,
                                                 ctypes.byref(consumed), to.address, to.n,
                                                 ctypes.byref(written)))
            done += consumed.value
            out += memoryview(self._room)[:written.value]
        return bytes(out)

    def set_type(self, type):
        """Ends the region: what comes next has elements of `type`. Returns what is ready."""
        self._open()
        to, written = _View(self._room), ctypes.c_size_t()
        _check(_lib.leat_codec_encoder_set_type(self._encoder, _number(TYPES, type, "type"),
                                                to.address, to.n, ctypes.byref(written)))
        return bytes(memoryview(self._room)[:written.value])

    def finish(self):
        """Returns the rest of the container. The encoder is done then."""
        self._open()
        out = bytearray(_lib.leat_codec_encoder_finish_bytes(self._encoder))
        to, written = _View(out), ctypes.c_uint64()
        _check(_lib.leat_codec_encoder_finish(self._encoder, to.address, to.n,
                                              ctypes.byref(written)))
        self._encoder = None
        return bytes(memoryview(out)[:written.value])
