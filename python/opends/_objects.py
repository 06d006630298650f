# SPDX-License-Identifier: Apache-2.0
"""Files, buffers, batches and streams as context managers."""
import contextlib
import ctypes
import os
from ctypes import byref, c_int64, c_size_t, c_ssize_t, c_uint, c_void_p
from typing import NamedTuple, Optional

from ._library import (COMPLETE, IoEvents, IoParams, PathInfo, READ, Timespec, WRITE, WRITE_DURABLE,
                       check, check_count, driver_open, lib)


def _address_and_size(buffer, writable):
    """The address and size of anything that can be read into or written from, and what keeps it alive."""
    if isinstance(buffer, Buffer):
        return buffer._live(), buffer.size, buffer
    if hasattr(buffer, "data_ptr"):  # torch, whose array interfaces refuse some of its types
        if hasattr(buffer, "is_contiguous") and not buffer.is_contiguous():
            raise ValueError("the tensor is not contiguous")
        return buffer.data_ptr(), buffer.numel() * buffer.element_size(), buffer
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(buffer, name, None)
        if interface is not None and interface.get("data") is not None:
            if interface.get("strides") is not None:
                raise ValueError("the array is not contiguous")
            address, read_only = interface["data"]
            if writable and read_only:
                raise ValueError("the array is read-only")
            size = int(interface["typestr"][2:])
            for extent in interface["shape"]:
                size *= extent
            return address, size, buffer
    if isinstance(buffer, int):
        if not 0 <= buffer < 1 << 64:
            raise ValueError(f"{buffer} is no address")
        return buffer, None, None
    if isinstance(buffer, c_void_p):
        return buffer.value, None, None
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous")
    if view.readonly:
        if writable:
            raise ValueError("the buffer is read-only")
        copy = ctypes.create_string_buffer(bytes(view), view.nbytes)  # ctypes gives no read-only address
        return ctypes.addressof(copy), view.nbytes, copy
    # The view must live as long as the address is used: an exported bytearray cannot be resized.
    return ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(view)), view.nbytes, view


_OFFSET_END = 1 << 63  # ctypes would cut what does not fit, and the call would go elsewhere


def _range(buffer, size, buffer_offset, writable, offset):
    address, whole, keep = _address_and_size(buffer, writable)
    if whole is None and size is None:
        raise ValueError("a plain address needs a size")
    if size is None:
        size = whole - buffer_offset
    if buffer_offset < 0 or size < 0 or (whole is not None and buffer_offset + size > whole):
        raise ValueError(f"[{buffer_offset}, {buffer_offset + size}) is outside the buffer")
    if not 0 <= offset <= offset + size < _OFFSET_END or buffer_offset + size >= _OFFSET_END:
        raise ValueError(f"no file has bytes [{offset}, {offset + size})")
    return address, size, keep


class Buffer:
    """Memory of the accelerator (host memory where there is none), registered with the driver."""

    def __init__(self, size):
        self.address = None
        if not 0 < size < _OFFSET_END:
            raise ValueError(f"a buffer of {size} bytes")
        driver_open()
        self.address = lib.opends_alloc(size)
        if not self.address:
            raise MemoryError(f"no {size} bytes: {lib.opends_last_error().decode()}")
        self.size = size

    def view(self):
        """The bytes as a memoryview, valid until free(); only where the accelerator is the host."""
        return memoryview((ctypes.c_char * self.size).from_address(self._live())).cast("B")

    def _live(self):
        if not self.address:
            raise ValueError("the buffer is freed")
        return self.address

    def free(self):
        if self.address:
            lib.opends_free(self.address)
            self.address = None

    def __len__(self):
        return self.size

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def __del__(self):
        # Not after the driver has gone: the interpreter's end closes it, and with it all buffers.
        with contextlib.suppress(Exception):
            self.free()


@contextlib.contextmanager
def registered(buffer, size=None):
    """Registers memory of any kind for the time of the block, so that I/O on it skips pinning."""
    driver_open()
    address, whole, keep = _address_and_size(buffer, False)
    check(lib.opends_buf_register(address, size if size is not None else whole, 0))
    try:
        yield buffer
    finally:
        check(lib.opends_buf_deregister(address))
        del keep


_MODES = {"r": os.O_RDONLY, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "rw": os.O_RDWR,
          "r+": os.O_RDWR, "rw+": os.O_RDWR | os.O_CREAT}


class File:
    """A registered file. ``mode`` is r, w, r+ (or rw) or rw+; or give a descriptor as ``path``."""

    def __init__(self, path, mode="r", durable=False, permissions=0o666):
        self.handle = None
        driver_open()
        if mode not in _MODES:
            raise ValueError(f"mode {mode!r} is none of {', '.join(_MODES)}")
        fd = path if isinstance(path, int) else os.open(path, _MODES[mode] | os.O_CLOEXEC, permissions)
        try:
            handle = c_void_p()
            check(lib.opends_handle_register(byref(handle), fd))
            self.handle = handle.value
        finally:
            if not isinstance(path, int):
                os.close(fd)  # the library keeps its own
        if durable:
            check(lib.opends_handle_set_flags(self.handle, WRITE_DURABLE))

    def read_into(self, buffer, offset=0, size=None, buffer_offset=0):
        """Reads into ``buffer``; returns the bytes read, fewer than asked at the end of the file."""
        address, size, keep = _range(buffer, size, buffer_offset, True, offset)
        n = lib.opends_read(self._open(), address, size, offset, buffer_offset)
        del keep
        return check_count(n)

    def write_from(self, buffer, offset=0, size=None, buffer_offset=0):
        """Writes from ``buffer``; returns the bytes written."""
        address, size, keep = _range(buffer, size, buffer_offset, False, offset)
        n = lib.opends_write(self._open(), address, size, offset, buffer_offset)
        del keep
        return check_count(n)

    def flush(self):
        """Makes completed writes durable."""
        check(lib.opends_flush(self._open()))

    def path(self):
        """Which way this file's I/O goes, and why not a better one."""
        info = PathInfo()
        check(lib.opends_handle_path(self._open(), byref(info)))
        return info

    def _open(self):
        if self.handle is None:
            raise ValueError("the file is closed")
        return self.handle

    def close(self):
        if self.handle is not None:
            lib.opends_handle_deregister(self.handle)
            self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        with contextlib.suppress(Exception):
            self.close()


class Event(NamedTuple):
    """What became of one operation of a batch."""
    cookie: object
    status: int
    result: int  # bytes, or a negative code

    @property
    def ok(self):
        return self.status == COMPLETE


class Batch:
    """Any number of reads and writes at once. ``read`` and ``write`` queue, ``submit`` starts."""

    def __init__(self, timeout_ms=0):
        self.batch = None
        driver_open()
        batch = c_void_p()
        check(lib.opends_batch_io_setup(byref(batch), 128))
        self.batch = batch.value
        self._queued = []
        self._running = {}
        self._next = 1
        if timeout_ms:
            check(lib.opends_batch_set_timeout(self.batch, timeout_ms))

    def _open(self):
        if self.batch is None:
            raise ValueError("the batch is closed")
        return self.batch

    def _add(self, opcode, file, buffer, offset, size, buffer_offset, cookie):
        self._open()
        address, size, keep = _range(buffer, size, buffer_offset, opcode == READ, offset)
        p = IoParams(mode=1, fh=file._open(), opcode=opcode, cookie=self._next)
        p.batch.base, p.batch.size = address, size
        p.batch.file_offset, p.batch.base_offset = offset, buffer_offset
        self._queued.append((p, cookie, keep))
        self._next += 1

    def read(self, file, buffer, offset=0, size=None, buffer_offset=0, cookie=None):
        self._add(READ, file, buffer, offset, size, buffer_offset, cookie)

    def write(self, file, buffer, offset=0, size=None, buffer_offset=0, cookie=None):
        self._add(WRITE, file, buffer, offset, size, buffer_offset, cookie)

    def submit(self, durable=False):
        """Starts what is queued; returns how many operations that was."""
        count = len(self._queued)
        self._open()
        if count == 0:
            return 0
        array = (IoParams * count)(*[p for p, _, _ in self._queued])
        # Before the call: events may be there when it returns.
        self._running.update({p.cookie: (cookie, keep) for p, cookie, keep in self._queued})
        error = lib.opends_batch_io_submit(self._open(), count, array, WRITE_DURABLE if durable else 0)
        if error.err != 0:
            for p, _, _ in self._queued:
                del self._running[p.cookie]
        check(error)
        self._queued = []
        return count

    def events(self, at_least=1, at_most=4096, timeout: Optional[float] = None):
        """Up to ``at_most`` events, after waiting for ``at_least`` (or for all that is left)."""
        if not 0 <= at_least <= at_most:
            raise ValueError(f"at least {at_least}, but at most {at_most} events")
        if timeout is not None and not 0 <= timeout < 1 << 30:
            raise ValueError(f"a timeout of {timeout} s")
        events = (IoEvents * at_most)()
        count = c_uint(at_most)
        limit = None
        if timeout is not None:
            limit = byref(Timespec(int(timeout), int((timeout - int(timeout)) * 1e9)))
        check(lib.opends_batch_io_get_status(self._open(), at_least, byref(count), events, limit))
        result = []
        for e in events[:count.value]:
            cookie, _ = self._running.pop(e.cookie)
            result.append(Event(cookie, e.status, c_ssize_t(e.ret).value))
        return result

    def wait(self):
        """All events that are left."""
        result = []
        while self._running:
            result += self.events(min(len(self._running), 4096))
        return result

    def cancel(self):
        check(lib.opends_batch_io_cancel(self._open()))

    def close(self):
        if self.batch is not None:
            lib.opends_batch_io_destroy(self.batch)
            self.batch = None
            self._running.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        with contextlib.suppress(Exception):
            self.close()


class _Pending:
    """The arguments of a stream operation, alive until it is done; ``result`` then holds the count."""

    def __init__(self, size, offset, buffer_offset, keep):
        self.size, self.offset = c_size_t(size), c_int64(offset)
        self.buffer_offset, self.bytes = c_int64(buffer_offset), c_ssize_t(0)
        self.keep = keep

    @property
    def result(self):
        return self.bytes.value


class Stream:
    """A stream of the accelerator: a new one, or one that exists (``handle``: a CUDA stream's address)."""

    def __init__(self, handle=None):
        self.handle = None
        driver_open()
        self.is_ours = handle is None
        self._pending = []
        if handle is None:
            stream = c_void_p()
            check(lib.opends_stream_create(byref(stream)))
            handle = stream.value
        self.handle = handle

    def _open(self):
        if self.handle is None:  # which would mean the default stream
            raise ValueError("the stream is closed")
        return self.handle

    def _queue(self, function, file, buffer, offset, size, buffer_offset, writable):
        address, size, keep = _range(buffer, size, buffer_offset, writable, offset)
        p = _Pending(size, offset, buffer_offset, (keep, file))
        check(function(file._open(), address, byref(p.size), byref(p.offset), byref(p.buffer_offset),
                       byref(p.bytes), self._open()))
        self._pending.append(p)
        return p

    def read(self, file, buffer, offset=0, size=None, buffer_offset=0):
        return self._queue(lib.opends_read_async, file, buffer, offset, size, buffer_offset, True)

    def write(self, file, buffer, offset=0, size=None, buffer_offset=0):
        return self._queue(lib.opends_write_async, file, buffer, offset, size, buffer_offset, False)

    def synchronize(self):
        check(lib.opends_stream_synchronize(self._open()))
        self._pending.clear()

    def close(self):
        if self.handle is not None:
            self.synchronize()
            if self.is_ours:
                check(lib.opends_stream_destroy(self.handle))
            self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        with contextlib.suppress(Exception):
            self.close()
