# SPDX-License-Identifier: Apache-2.0
"""Files straight into accelerator memory: libopends from Python, by ctypes, with no compiler.

    import opends
    with opends.File("data.bin") as f, opends.Buffer(1 << 20) as b:
        n = f.read_into(b, offset=4096)

The driver opens with the first use and closes when the interpreter ends. Buffers may be anything with
``__cuda_array_interface__``, ``data_ptr()`` and ``nbytes``, ``__array_interface__`` or the buffer
protocol, an ``opends.Buffer``, or a plain address (then a size must be given).

The library is found through OPENDS_LIBRARY, else as ``libopends.so.0`` on the loader's path.
"""
from ._library import (  # noqa: F401
    Error, PathInfo, Stat, TraceEntry, doctor, driver_close, driver_open, get_version, last_error,
    prometheus, stats, trace, use_count, READ, WRITE, WRITE_DURABLE,
    COMPLETE, FAILED, CANCELED, TIMEOUT, INVALID,
)
from ._objects import Batch, Buffer, Event, File, Stream, registered  # noqa: F401

__all__ = [
    "Batch", "Buffer", "Error", "Event", "File", "PathInfo", "Stat", "Stream", "TraceEntry", "doctor",
    "driver_close", "driver_open", "get_version", "last_error", "prometheus", "registered", "stats",
    "trace", "use_count", "READ", "WRITE", "WRITE_DURABLE", "COMPLETE", "FAILED", "CANCELED", "TIMEOUT",
    "INVALID",
]
