# SPDX-License-Identifier: Apache-2.0
"""The C interface: structures, prototypes, errors, and the functions that need no object."""
import atexit
import ctypes
import os
import threading
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int64, c_long, c_size_t, c_ssize_t, c_uint
from ctypes import c_uint64, c_void_p

READ, WRITE = 0, 1
WRITE_DURABLE = 1
COMPLETE, FAILED, CANCELED, TIMEOUT, INVALID = 0x10, 0x40, 0x08, 0x20, 0x04
ALREADY_OPEN = 5026
_OFF = c_int64


class _Error(ctypes.Structure):
    _fields_ = [("err", c_int), ("dev_err", c_int)]


class IoBatch(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("file_offset", _OFF), ("base_offset", _OFF), ("size", c_size_t)]


class IoParams(ctypes.Structure):
    _fields_ = [("mode", c_int), ("batch", IoBatch), ("fh", c_void_p), ("opcode", c_int),
                ("cookie", c_void_p)]


class IoEvents(ctypes.Structure):
    _fields_ = [("cookie", c_void_p), ("status", c_int), ("ret", c_size_t)]


class Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", c_long), ("tv_nsec", c_long)]


class _Readable(ctypes.Structure):
    """A structure that prints its fields; text fields come back as str."""

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        return value.decode() if isinstance(value, bytes) else value

    def __repr__(self):
        pairs = ", ".join(f"{n}={getattr(self, n)!r}" for n, _ in self._fields_
                          if not n.startswith("latency_buckets"))
        return f"{type(self).__name__}({pairs})"


class PathInfo(_Readable):
    """Which way a handle's I/O goes and how many bytes went where."""
    _fields_ = [("backend", c_char * 16), ("path", c_int), ("device_major", c_uint),
                ("device_minor", c_uint), ("offset_align", c_uint), ("memory_align", c_uint),
                ("direct_bytes", c_uint64), ("bounced_bytes", c_uint64), ("buffered_bytes", c_uint64),
                ("passthrough_bytes", c_uint64), ("zeroed_bytes", c_uint64), ("gds_bytes", c_uint64),
                ("fallbacks", c_uint64), ("reason", c_char * 192), ("last_fallback", c_char * 128)]


class Stat(_Readable):
    _fields_ = [("backend", c_char * 16), ("opcode", c_int), ("device_major", c_uint),
                ("device_minor", c_uint), ("calls", c_uint64), ("errors", c_uint64),
                ("bytes", c_uint64), ("latency_ns_sum", c_uint64), ("latency_buckets", c_uint64 * 96)]


class TraceEntry(_Readable):
    _fields_ = [("time_ns", c_uint64), ("latency_ns", c_uint64), ("inode", c_uint64),
                ("file_offset", c_uint64), ("size", c_uint64), ("result", c_int64),
                ("device_major", c_uint), ("device_minor", c_uint), ("opcode", c_int), ("path", c_int),
                ("backend", c_char * 16), ("fell_back", c_int)]


_PROTOTYPES = {
    "opends_op_status_error": (c_char_p, [c_int]),
    "opends_last_error": (c_char_p, []),
    "opends_driver_open": (_Error, []),
    "opends_driver_close": (_Error, []),
    "opends_use_count": (c_long, []),
    "opends_get_version": (_Error, [POINTER(c_uint)] * 3),
    "opends_handle_register": (_Error, [POINTER(c_void_p), c_int]),
    "opends_handle_deregister": (None, [c_void_p]),
    "opends_handle_set_flags": (_Error, [c_void_p, c_uint]),
    "opends_handle_path": (_Error, [c_void_p, POINTER(PathInfo)]),
    "opends_flush": (_Error, [c_void_p]),
    "opends_alloc": (c_void_p, [c_size_t]),
    "opends_free": (None, [c_void_p]),
    "opends_buf_register": (_Error, [c_void_p, c_size_t, c_int]),
    "opends_buf_deregister": (_Error, [c_void_p]),
    "opends_read": (c_ssize_t, [c_void_p, c_void_p, c_size_t, _OFF, _OFF]),
    "opends_write": (c_ssize_t, [c_void_p, c_void_p, c_size_t, _OFF, _OFF]),
    "opends_batch_io_setup": (_Error, [POINTER(c_void_p), c_uint]),
    "opends_batch_io_submit": (_Error, [c_void_p, c_uint, POINTER(IoParams), c_uint]),
    "opends_batch_io_get_status": (_Error, [c_void_p, c_uint, POINTER(c_uint), POINTER(IoEvents),
                                            POINTER(Timespec)]),
    "opends_batch_io_cancel": (_Error, [c_void_p]),
    "opends_batch_io_destroy": (None, [c_void_p]),
    "opends_batch_set_timeout": (_Error, [c_void_p, c_uint]),
    "opends_read_async": (_Error, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(_OFF), POINTER(_OFF),
                                   POINTER(c_ssize_t), c_void_p]),
    "opends_write_async": (_Error, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(_OFF), POINTER(_OFF),
                                    POINTER(c_ssize_t), c_void_p]),
    "opends_stream_create": (_Error, [POINTER(c_void_p)]),
    "opends_stream_synchronize": (_Error, [c_void_p]),
    "opends_stream_destroy": (_Error, [c_void_p]),
    "opends_stats_get": (_Error, [POINTER(Stat), POINTER(c_uint)]),
    "opends_stats_reset": (_Error, []),
    "opends_stats_prometheus": (c_ssize_t, [c_char_p, c_size_t]),
    "opends_trace_get": (_Error, [POINTER(TraceEntry), POINTER(c_uint)]),
    "opends_doctor": (c_ssize_t, [c_char_p, c_char_p, c_size_t, POINTER(c_uint)]),
}


def _load():
    name = os.environ.get("OPENDS_LIBRARY", "libopends.so.0")
    try:
        library = ctypes.CDLL(name, use_errno=True)
    except OSError as e:
        raise ImportError(f"libopends cannot be loaded ({e}); install it, or set OPENDS_LIBRARY to the "
                          "path of libopends.so.0") from e
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


lib = _load()
_lock = threading.Lock()
_state = {"pid": None}


# Of these, dev_err is the accelerator's number and no errno.
_DEVICE_CODES = (5011, 5015, 5029)


class Error(OSError):
    """A failed call. ``code`` is the library's code, ``dev_err`` the device's or the kernel's, and
    ``errno`` the kernel's where it was the kernel that failed, else None."""

    def __init__(self, code, dev_err=0):
        text = lib.opends_op_status_error(code).decode()
        message = f"{text} ({code}): {lib.opends_last_error().decode()}"
        if dev_err > 0 and code not in _DEVICE_CODES:
            super().__init__(dev_err, message)
        else:
            super().__init__(message)
        self.code = code
        self.dev_err = dev_err


def check(error):
    if error.err != 0:
        raise Error(error.err, error.dev_err)


def check_count(count):
    if count < 0:
        raise Error(-count, ctypes.get_errno())
    return count


def driver_open():
    """Opens the driver if it is not open in this process. Called by everything that needs it."""
    if _state["pid"] == os.getpid():
        return
    with _lock:
        if _state["pid"] != os.getpid():
            error = lib.opends_driver_open()
            if error.err != ALREADY_OPEN:  # another user of the library may have opened it
                check(error)
            _state["pid"] = os.getpid()


def driver_close():
    """Closes the driver, and with it every handle, buffer and batch."""
    with _lock:
        if _state["pid"] == os.getpid():
            _state["pid"] = None
            check(lib.opends_driver_close())


def _at_exit():
    try:
        driver_close()
    except Error:
        pass


atexit.register(_at_exit)


def last_error():
    return lib.opends_last_error().decode()


def use_count():
    return lib.opends_use_count()


def get_version():
    major, minor, patch = c_uint(), c_uint(), c_uint()
    check(lib.opends_get_version(byref(major), byref(minor), byref(patch)))
    return (major.value, minor.value, patch.value)


def stats(reset=False):
    """The counters and latency histograms as a list of Stat."""
    count = c_uint(0)
    check(lib.opends_stats_get(None, byref(count)))
    entries = (Stat * (count.value + 8))()
    count = c_uint(len(entries))
    check(lib.opends_stats_get(entries, byref(count)))
    if reset:
        check(lib.opends_stats_reset())
    return list(entries[:min(count.value, len(entries))])


def prometheus():
    size = lib.opends_stats_prometheus(None, 0) + 4096
    text = ctypes.create_string_buffer(size)
    lib.opends_stats_prometheus(text, size)
    return text.value.decode()


def trace(limit=1024):
    """The most recent I/Os, newest first."""
    driver_open()
    entries = (TraceEntry * limit)()
    count = c_uint(limit)
    check(lib.opends_trace_get(entries, byref(count)))
    return list(entries[:count.value])


def doctor(path=None):
    """(text, number of things to fix): what is present and what would be used for ``path``."""
    problems = c_uint(0)
    text = ctypes.create_string_buffer(65536)
    name = None if path is None else os.fsencode(path)
    lib.opends_doctor(name, text, len(text), byref(problems))
    return text.value.decode(), problems.value
