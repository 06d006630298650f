# SPDX-License-Identifier: Apache-2.0
"""The Python package against the built library. Prints "ok NAME" or "not ok NAME: why" a test."""
import array
import os
import subprocess
import sys
import tempfile
import traceback

import opends

DATA = bytes((i * 7 + i // 251) & 255 for i in range(300001))


def make_file(folder):
    path = os.path.join(folder, "data")
    with open(path, "wb") as f:
        f.write(DATA)
    return path


def test_read_into(folder):
    path = make_file(folder)
    memory = bytearray(400000)
    with opends.File(path) as f:
        assert f.read_into(memory, offset=5, size=1000, buffer_offset=3) == 1000
        assert memory[3:1003] == DATA[5:1005] and memory[:3] == b"\0\0\0"
        assert f.read_into(memory) == len(DATA)  # short at the end of the file
        assert memory[:len(DATA)] == DATA
        assert f.read_into(memory, offset=10 ** 9) == 0
        values = array.array("I", [0] * 64)
        assert f.read_into(values, offset=4096) == 256
        assert values.tobytes() == DATA[4096:4096 + 256]
        info = f.path()
        assert info.backend in ("uring", "ref") and info.path in (1, 2), info
        total = info.direct_bytes + info.bounced_bytes + info.buffered_bytes
        assert total == 1000 + len(DATA) + 256, info
    try:
        f.read_into(memory)
        raise AssertionError("a closed file was read")
    except ValueError:
        pass


def test_buffer(folder):
    path = make_file(folder)
    with opends.File(path) as f, opends.Buffer(65536) as b:
        assert len(b) == 65536
        assert f.read_into(b, offset=1) == 65536
        assert bytes(b.view()) == DATA[1:65537]
        try:
            f.read_into(b, size=65536, buffer_offset=1)
            raise AssertionError("a read past the buffer was accepted")
        except ValueError:
            pass
        # The C library checks registered ranges itself.
        try:
            f.read_into(b.address, size=65537)
            raise AssertionError("a read past the registered range was accepted")
        except opends.Error as e:
            assert e.code == 5014, e


def test_write_and_flush(folder):
    path = os.path.join(folder, "out")
    with opends.File(path, "rw+", durable=True) as f:
        assert f.write_from(DATA, offset=7) == len(DATA)
        f.flush()
        back = bytearray(len(DATA))
        assert f.read_into(back, offset=7) == len(DATA)
        assert back == DATA
    with open(path, "rb") as f:
        assert f.read() == bytes(7) + DATA


def test_batch(folder):
    path = make_file(folder)
    memory = bytearray(100 * 3000)
    with opends.File(path) as f, opends.Batch() as b:
        for i in range(100):
            b.read(f, memory, offset=i * 2999, size=3000, buffer_offset=i * 3000, cookie=("read", i))
        assert b.submit() == 100
        first = b.events(at_least=10)
        assert len(first) >= 10
        events = first + b.wait()
        assert sorted(e.cookie[1] for e in events) == list(range(100))
        assert all(e.ok and e.result == 3000 for e in events)
        for i in range(100):
            assert memory[i * 3000:(i + 1) * 3000] == DATA[i * 2999:i * 2999 + 3000]
        assert b.wait() == [] and b.submit() == 0
        # A bad operation is its own event.
        with opends.File(path) as gone:
            b.read(gone, memory, size=10, cookie="bad")
        b.read(f, memory, offset=0, size=10, cookie="good")
        b.submit()
        outcome = {e.cookie: e for e in b.wait()}
        assert outcome["bad"].status == opends.INVALID and outcome["bad"].result == -5027
        assert outcome["good"].ok


def test_stream(folder):
    path = make_file(folder)
    memory = bytearray(20000)
    with opends.File(path) as f, opends.Stream() as s:
        p = s.read(f, memory, offset=100, size=10000)
        q = s.read(f, memory, offset=5, size=10000, buffer_offset=10000)
        s.synchronize()
        assert p.result == 10000 and q.result == 10000
        assert memory == DATA[100:10100] + DATA[5:10005]


def test_registered(folder):
    path = make_file(folder)
    memory = bytearray(8192)
    with opends.File(path) as f, opends.registered(memory):
        for _ in range(10):
            assert f.read_into(memory, offset=4096) == 8192
        assert memory == DATA[4096:4096 + 8192]
    memory.extend(b"x")  # nothing holds it any more


def test_errors(folder):
    try:
        opends.File(os.path.join(folder, "absent"))
        raise AssertionError("an absent file was opened")
    except FileNotFoundError:
        pass
    try:
        opends.File(folder)
        raise AssertionError("a folder was registered")
    except opends.Error as e:
        assert e.code == 5018, e
    path = make_file(folder)
    with opends.File(path) as f:
        try:
            f.write_from(b"x")
            raise AssertionError("a read-only file was written")
        except opends.Error as e:
            assert e.code == 5019 and "access" in str(e), e
        try:
            f.read_into(b"constant")
            raise AssertionError("a constant was read into")
        except ValueError:
            pass


def refused(function, kind=ValueError):
    """The text of the error that the call must end with."""
    try:
        function()
    except kind as e:
        return str(e)
    raise AssertionError("it was accepted")


def test_numbers_that_do_not_fit(folder):
    # ctypes cuts integers silently: 1 << 64 would have read the start of the file.
    path = make_file(folder)
    memory = bytearray(100)
    with opends.File(path) as f, opends.Batch() as b, opends.Stream() as s:
        for offset in (1 << 64, 1 << 63, (1 << 63) - 50, -1, -(1 << 63)):
            refused(lambda: f.read_into(memory, offset=offset))
            refused(lambda: f.write_from(memory, offset=offset))
            refused(lambda: b.read(f, memory, offset=offset))
            refused(lambda: s.read(f, memory, offset=offset))
        for size in (1 << 64, -1, 101):
            refused(lambda: f.read_into(memory, size=size))
        refused(lambda: f.read_into(memory, buffer_offset=1 << 64))
        refused(lambda: f.read_into(1 << 64, size=10))
        refused(lambda: f.read_into(4096, size=1 << 63))
        for size in (0, -1, 1 << 63, 1 << 64):
            refused(lambda: opends.Buffer(size))
        refused(lambda: b.events(at_least=5, at_most=4))
        refused(lambda: b.events(timeout=-1))
    assert memory == bytes(100)


def test_closed_objects(folder):
    path = make_file(folder)
    with opends.File(path) as f:
        b, batch, stream = opends.Buffer(4096), opends.Batch(), opends.Stream()
        for thing in (b, batch, stream):
            with thing:
                pass
        assert "freed" in refused(lambda: f.read_into(b))
        assert "freed" in refused(b.view)
        for call in (batch.submit, batch.events, batch.cancel, lambda: batch.read(f, bytearray(1))):
            assert "closed" in refused(call)
        # A closed stream must not turn into the default one.
        assert "closed" in refused(lambda: stream.read(f, bytearray(1)))
        assert "closed" in refused(stream.synchronize)


def test_arrays(folder):
    class Tensor:  # as torch's: the array interface refuses, data_ptr does not
        def __init__(self, memory):
            self.memory = array.array("B", memory)

        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("not of this type")

        def data_ptr(self):
            return self.memory.buffer_info()[0]

        def is_contiguous(self):
            return True

        def numel(self):
            return len(self.memory) // 2

        def element_size(self):
            return 2

    path = make_file(folder)
    with opends.File(path) as f:
        t = Tensor(bytes(64))
        assert f.read_into(t, offset=10) == 64 and t.memory.tobytes() == DATA[10:74]
        text = refused(lambda: f.read_into(None), TypeError)
        assert "NoneType" in text


def test_error_numbers(folder):
    text = refused(lambda: opends.File("/dev/null"), opends.Error)
    assert text.startswith("unsupported file type (5018)"), text
    try:
        opends.File(987654)
    except opends.Error as e:
        assert e.errno == 9 and e.code == 5022, e
    code = ("import os, opends\n"
            "try: opends.File('x')\n"
            "except opends.Error as e: print(e.code, e.errno, e)\n")
    out = subprocess.run([sys.executable, "-c", code], env={**os.environ, "OPENDS_THREADS": "x"},
                         capture_output=True, text=True, check=True).stdout
    assert out.startswith("5002 None invalid property (5002): OPENDS_THREADS=x"), out
    out = subprocess.run([sys.executable, "-c", "import opends"],
                         env={**os.environ, "OPENDS_LIBRARY": "/nowhere.so"},
                         capture_output=True, text=True).stderr
    assert "ImportError" in out and "OPENDS_LIBRARY" in out, out


def test_statistics(folder):
    path = make_file(folder)
    opends.stats(reset=True)
    with opends.File(path) as f:
        for i in range(5):
            f.read_into(bytearray(100), offset=i)
    s, = opends.stats()
    assert s.calls == 5 and s.bytes == 500 and s.opcode == opends.READ, s
    assert sum(s.latency_buckets) == 5
    assert "opends_io_total{" in opends.prometheus()
    t = opends.trace(3)
    assert [e.file_offset for e in t] == [4, 3, 2]
    text, problems = opends.doctor(folder)
    assert "backend" in text and problems == text.count("fix:")
    assert opends.get_version() == (0, 1, 0)


def test_fork(folder):
    path = make_file(folder)
    with opends.File(path) as f:
        f.read_into(bytearray(10))
        child = os.fork()
        if child == 0:
            try:
                memory = bytearray(100)
                with opends.File(path) as g:
                    f.close()  # the parent's file, whose name must not be the child's
                    ok = g.read_into(memory, offset=3) == 100 and memory == DATA[3:103]
                os._exit(0 if ok else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert f.read_into(bytearray(10)) == 10


def main():
    failed = 0
    for name, function in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        with tempfile.TemporaryDirectory(dir=os.environ.get("DS_TEST_FOLDER", ".")) as folder:
            try:
                function(folder)
                print("ok python-" + name[5:].replace("_", "-"))
            except Exception:
                failed += 1
                print(f"not ok python-{name[5:]}: {traceback.format_exc()}")
    sys.exit(1 if failed else 0)


main()
