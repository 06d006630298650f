# SPDX-License-Identifier: Apache-2.0
"""Size: a real tree of over 20,000 files up and down with two tools, a 6 GiB object, 200,000 keys."""

import collections
import hashlib
import os
import shutil
import subprocess
import tempfile

import client_tests
import leat

server = None
TREE_FILES_MIN = 20000


def tree(directory):
    """Hard links or copies of /usr/share and /usr/include: regular files only, at most 25,000."""
    count = 0
    for top in ("/usr/include", "/usr/share", "/usr/lib/python3", "/usr/lib/python3.11",
                "/usr/lib/x86_64-linux-gnu", "/usr/lib"):
        for d, dirs, files in os.walk(top):
            dirs.sort()
            target = os.path.join(directory, d.strip("/"))
            for name in sorted(files):
                source = os.path.join(d, name)
                if os.path.islink(source) or os.path.getsize(source) > 256 << 10:
                    continue
                if os.path.exists(os.path.join(target, name)):
                    continue
                os.makedirs(target, exist_ok=True)
                shutil.copy(source, os.path.join(target, name))
                count += 1
                if count >= 21000:
                    return count
    return count


def test_tree_of_20000_files():
    client_tests.server = server
    with client_tests.Work() as w:
        count = tree(w + "/up")
        if count < TREE_FILES_MIN:
            raise leat.Skip("this machine has only %d files to copy" % count)
        run = client_tests.run
        run("rclone", "mkdir", "leat:tree")
        flags = ["--transfers=16", "--checkers=16"]
        run("rclone", "sync", *flags, w + "/up", "leat:tree/r", timeout=900)
        run("rclone", "sync", *flags, "leat:tree/r", w + "/down", timeout=900)
        client_tests.assert_same_tree(w + "/up", w + "/down")
        again = subprocess.run(["rclone", "sync", "-v", *flags, w + "/up", "leat:tree/r"],
                               env=client_tests.environment(), stderr=subprocess.PIPE, timeout=900)
        assert again.returncode == 0 and b"Copied (" not in again.stderr, again.stderr[-2000:]
        shutil.rmtree(w + "/down")
        aws = client_tests.aws
        aws("s3", "sync", "--only-show-errors", w + "/up", "s3://tree/a", timeout=1500)
        assert aws("s3", "sync", w + "/up", "s3://tree/a", timeout=900).strip() == b""
        aws("s3", "sync", "--only-show-errors", "s3://tree/a", w + "/down", timeout=1500)
        client_tests.assert_same_tree(w + "/up", w + "/down")


def test_object_of_6_gib():
    client_tests.server = server
    size = 6 << 30
    with client_tests.Work() as w:
        if shutil.disk_usage(w).free < 4 * size:
            raise leat.Skip("less than 24 GiB of free disk")
        # AES in counter mode over zeros: gigabytes that no layer can guess.
        subprocess.run("head -c %d /dev/zero | openssl enc -aes-128-ctr -nosalt -K "
                       "00112233445566778899aabbccddeeff -iv 00 > %s/big" % (size, w), shell=True,
                       check=True)
        client_tests.run("rclone", "mkdir", "leat:large")
        client_tests.run("rclone", "--s3-chunk-size=64M", "--s3-upload-concurrency=4", "copyto",
                         w + "/big", "leat:large/big", timeout=900)
        want = digest_of(open(w + "/big", "rb"), size)
        os.remove(w + "/big")
        get = subprocess.Popen(["/usr/bin/curl", "-sS", "--fail", client_tests.endpoint() +
                                server.client().presign("GET", "/large/big")],
                               stdout=subprocess.PIPE)
        got = digest_of(get.stdout, size)
        assert get.wait() == 0 and got == want
        r = server.client().get("/large/big", range="bytes=%d-%d" % (size - 10, size + 5))
        assert r.status == 206 and len(r.body) == 10
        client_tests.run("rclone", "purge", "leat:large")


def digest_of(f, size):
    h, total = hashlib.sha256(), 0
    while True:
        piece = f.read(1 << 20)
        if not piece:
            break
        h.update(piece)
        total += len(piece)
    assert total == size, "%d bytes instead of %d" % (total, size)
    return h.hexdigest()


def test_list_of_200000_keys():
    """Awkward prefixes: a directory walk's order differs from byte order at `-`, `.` and `/`."""
    prefixes = ["data/", "data.v2/", "data-", "data/sub/", "data", "datb/x/y/"]
    total = 200000
    server.client().put("/many")
    keys = ["%s%06d" % (prefixes[i % len(prefixes)], i) for i in range(total)]
    load = subprocess.run([os.path.join(os.path.dirname(leat.binary()), "tests", "tools", "s3load"),
                           str(server.port), leat.ACCESS_KEY, leat.SECRET_KEY, "many", "64"],
                          input="\n".join(keys).encode(), stdout=subprocess.PIPE, timeout=600)
    assert load.returncode == 0, load.stdout
    c = server.client()
    want = sorted(k.encode() for k in keys)
    got, _, pages = c.list_all("many")
    assert got == want and pages == 200
    got, common, _ = c.list_all("many", delimiter="/")
    flat = [k for k in want if b"/" not in k]
    assert got == flat, (len(got), len(flat))
    assert common == [b"data.v2/", b"data/", b"datb/"], common
    for prefix in prefixes:
        got, _, _ = c.list_all("many", page=997, prefix=prefix)
        assert got == [k for k in want if k.startswith(prefix.encode())], prefix
    got, common, pages = c.list_all("many", page=333, delimiter="6")
    counts = collections.Counter(got + common)
    assert max(counts.values()) == 1


TESTS = [(n, f) for n, f in sorted(globals().items()) if n.startswith("test_")]
