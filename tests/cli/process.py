# SPDX-License-Identifier: Apache-2.0
"""Processes of `leat` that are expected to end by themselves, and places for them."""

import ctypes
import os
import shutil
import struct
import subprocess
import tempfile

import leat

NO_CREDENTIALS = {"LEAT_ACCESS_KEY_ID": "", "LEAT_SECRET_ACCESS_KEY": ""}
CREDENTIALS = {"LEAT_ACCESS_KEY_ID": leat.ACCESS_KEY, "LEAT_SECRET_ACCESS_KEY": leat.SECRET_KEY}


class Place:
    """A directory that goes away."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="leat-cli-", dir=leat.scratch())
        return self

    def __exit__(self, *exc):
        shutil.rmtree(self.path, ignore_errors=True)

    def __call__(self, *names):
        return os.path.join(self.path, *names)

    def write(self, name, text, mode=None):
        with open(self(name), "w") as f:
            f.write(text)
        if mode is not None:
            os.chmod(self(name), mode)
        return self(name)


class Server(leat.Server):
    """A server whose environment may also lack the credentials."""

    def __init__(self, env=None, **kw):
        super().__init__(**kw)
        self.env.update(env or {})


class Ended:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


def run(*args, env=None, before=None, **kw):
    """Runs leat to its end (at most 30 s)."""
    done = subprocess.run([leat.binary(), *args], env=dict(os.environ, **(env or CREDENTIALS)),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
                          preexec_fn=before, **kw)
    return Ended(done)


def fails(code, *texts, args, **kw):
    """leat must end with this code and say all of these."""
    ended = run(*args, **kw)
    said = ended.err + ended.out
    assert ended.code == code, "exit code %d instead of %d: %s" % (ended.code, code, said)
    for text in texts:
        assert text in said, "does not say %r: %s" % (text, said)
    return ended


def serve(*args):
    """Arguments of a server on a free port."""
    return ["serve", "--listen", "127.0.0.1:%d" % leat.free_port(), *args]


def forbid_syscall(number, error):
    """To be run in the child: a seccomp filter that answers one system call with an errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    # struct sock_filter {u16 code; u8 jt, jf; u32 k}: load the number; compare; errno or allow.
    code = b"".join(struct.pack("=HBBI", *i) for i in (
        (0x20, 0, 0, 0),                    # A = seccomp_data.nr
        (0x15, 0, 1, number),               # equal: go on, else skip one
        (0x06, 0, 0, 0x00050000 | error),   # SECCOMP_RET_ERRNO
        (0x06, 0, 0, 0x7FFF0000)))          # SECCOMP_RET_ALLOW
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("=HxxxxxxQ", 4, ctypes.addressof(buffer))
    if libc.prctl(38, 1, 0, 0, 0) != 0:                             # PR_SET_NO_NEW_PRIVS
        os._exit(99)
    if libc.prctl(22, 2, ctypes.create_string_buffer(program)) != 0:  # PR_SET_SECCOMP, FILTER
        os._exit(99)
