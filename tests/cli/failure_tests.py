# SPDX-License-Identifier: Apache-2.0
"""What cannot start, and how it says so: exit codes 2 to 7."""

import glob
import os
import resource
import socket

import leat
from process import NO_CREDENTIALS, Place, Server, fails, forbid_syscall, run, serve


def test_version_and_help():
    version = run("version")
    assert version.code == 0 and version.out.startswith("leat "), version.out
    assert run("--version").out == version.out
    overview = run("help")
    assert overview.code == 0
    for word in ("serve", "version", "help", "exit codes:", "  4  the port is taken"):
        assert word in overview.out, word
    assert run("--help").out == overview.out
    for option in ("--config", "--drive", "--listen", "--cores", "--log", "--log-level", "SIGHUP"):
        assert option in run("help", "serve").out, option


def test_usage():
    fails(2, "usage: leat COMMAND", args=[])
    fails(2, "unknown command 'sevre'; did you mean 'serve'?", "leat help", args=["sevre"])
    fails(2, "unknown command 'xyzzy'", args=["xyzzy"])
    fails(2, "unknown command 'xyzzy'", args=["help", "xyzzy"])
    fails(2, "unexpected argument 'x'", args=["version", "x"])
    fails(2, "unexpected argument 'x'", args=["serve", "x"])
    fails(2, "unknown option '--drvie'; did you mean '--drive'?", "see 'leat help serve'",
          args=["serve", "--drvie", "d"])
    fails(2, "unknown option '-x'", args=["serve", "-x"])
    fails(2, "option '--drive' needs a value", args=["serve", "--drive"])


def test_bad_option_values():
    for option, values in {"--cores": ("0", "65", "two", "-1", ""),
                           "--listen": ("9000", "localhost:9000", "1.2.3.4:70000", "::1:9000"),
                           "--log": ("xml", ""), "--log-level": ("loud", "INFO"),
                           "--drive": ("", "d" * 1024)}.items():
        for value in values:
            fails(2, option, "must be", args=["serve", option, value])
    fails(2, "given twice", args=["serve", "--drive", "a", "--drive", "a"])
    fails(2, "more than 64 drives",
          args=["serve"] + [x for i in range(65) for x in ("--drive", "d%d" % i)])


def test_configuration_errors():
    with Place() as at:
        def refused(yaml, *texts):
            path = at.write("c.yaml", yaml)
            fails(3, "config_invalid", path, *texts, args=serve("--config", path))
            assert os.listdir(at.path) == ["c.yaml"], "something was made"

        fails(3, "no drive", args=serve())
        fails(3, "it does not exist", at("absent"), args=serve("--config", at("absent")))
        refused("cores: 1\n\nregion: x\n\n\n\ndrive: [a]\n",
                "unknown key 'drive' at line 7; did you mean 'drives'?")
        refused("store:\n  cache_bytes: lots\n", "key 'store.cache_bytes' at line 2 must be a size")
        refused("cores: 1\ncores: 2\n", "line 2", "line 1")
        refused("drives: [\n", "line 2")
        refused("# " + "x" * (1 << 20) + "\n", "larger than 1048576 bytes")
        path = at.write("few.yaml", "store: {buffer_bytes: 32MiB}\n")
        fails(3, "too few for 2 cores", args=serve("--config", path, "--cores", "2", "--drive",
                                                   at("d")))


def test_credentials_errors():
    with Place() as at:
        drive = ["--drive", at("d")]
        fails(3, "only one of LEAT_ACCESS_KEY_ID and LEAT_SECRET_ACCESS_KEY", args=serve(*drive),
              env={"LEAT_ACCESS_KEY_ID": "AAA", "LEAT_SECRET_ACCESS_KEY": ""})
        fails(3, "LEAT_SECRET_ACCESS_KEY must be", args=serve(*drive),
              env={"LEAT_ACCESS_KEY_ID": "AAA", "LEAT_SECRET_ACCESS_KEY": "short"})
        fails(3, "LEAT_ACCESS_KEY_ID must be", args=serve(*drive),
              env={"LEAT_ACCESS_KEY_ID": "A/B", "LEAT_SECRET_ACCESS_KEY": "long enough"})
        with Server(directory=at.path, env=NO_CREDENTIALS):
            pass
        path = at("drive0", "credentials")
        assert os.stat(path).st_mode & 0o7777 == 0o600
        args = serve("--drive", at("drive0"))
        os.chmod(path, 0o640)
        fails(3, "credentials_mode", "mode=0640", "chmod 600", args=args, env=NO_CREDENTIALS)
        os.chmod(path, 0o600)
        with open(path, "w") as f:
            f.write("nonsense\n")
        fails(3, "credentials_malformed", path, args=args, env=NO_CREDENTIALS)


def test_tls_errors():
    with Place() as at:
        path = at.write("c.yaml", "tls: {cert: %s, key: %s}\n" % (at("cert"), at("key")))
        args = serve("--config", path, "--drive", at("d"))
        fails(3, "tls_failed", at("cert"), args=args)
        at.write("cert", "not PEM\n")
        at.write("key", "not PEM\n")
        fails(3, "tls_failed", args=args)


def test_port_taken():
    with Place() as at, socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = "127.0.0.1:%d" % holder.getsockname()[1]
        fails(4, "listen_failed", address, "the port is taken", "another --listen",
              args=["serve", "--listen", address, "--drive", at("d")])
        assert not os.path.exists(at("d")), "the drive was touched"
        fails(4, "listen_failed", args=["serve", "--listen", "192.0.2.1:9000", "--drive", at("d")])
    # The other server shares its port between its cores, but not with strangers.
    with Server(cores=2) as server, Place() as at:
        fails(4, "the port is taken",
              args=["serve", "--listen", "127.0.0.1:%d" % server.port, "--drive", at("d")])


def test_foreign_directory():
    with Place() as at:
        os.mkdir(at("d"))
        at.write("d/precious", "data")
        fails(5, "drive_not_empty", "precious", "hint=", args=serve("--drive", at("d")))
        assert os.listdir(at("d")) == ["precious"], "something was made in it"
        at.write("file", "")
        fails(5, at("file"), "not a directory", "hint=", args=serve("--drive", at("file")))
        fails(5, at("no/such/d"), "hint=", args=serve("--drive", at("no/such/d")))


def test_drive_of_another_store():
    with Place() as at:
        stores = [["--drive", at("a0"), "--drive", at("a1")],
                  ["--drive", at("b0"), "--drive", at("b1")]]
        for drives in stores:
            with Server(directory=at.path, drives=0, args=drives):
                pass
        fails(5, "hint=", at("b1"), args=serve("--drive", at("a0"), "--drive", at("b1")))
        # Neither was changed by the attempt, and the order of drives does not matter.
        for drives in stores:
            with Server(directory=at.path, drives=0, args=drives[2:] + drives[:2]):
                pass


def test_missing_and_additional_drives():
    with Place() as at:
        with Server(directory=at.path, drives=2):
            pass
        fails(5, "hint=", args=serve("--drive", at("drive0")))
        fails(5, "hint=", args=serve("--drive", at("drive0"), "--drive", at("drive1"), "--drive",
                                     at("fresh")))
        with Server(directory=at.path, drives=2):
            pass


def test_drive_in_use():
    with Server() as server:
        fails(5, "another process uses this drive",
              args=serve("--drive", os.path.join(server.directory, "drive0")))
        assert server.client().get("/").status == 200


def flip_after(directory, needle, distance=0):
    """Flips one bit of the drive's segments wherever these bytes stand (compaction copies them)."""
    found = 0
    for path in glob.glob(os.path.join(directory, "drive0", "segments", "*.seg")):
        with open(path, "r+b") as f:
            data = f.read()
            at = data.find(needle)
            while at >= 0:
                f.seek(at + distance)
                f.write(bytes([data[at + distance] ^ 4]))
                found += 1
                at = data.find(needle, at + 1)
    assert found > 0, "%r is not in the segments" % needle


def three_objects(at):
    with Server(directory=at.path) as server:
        s3 = server.client()
        assert s3.put("/bits").status == 200
        for name in ("one", "two", "three"):
            body = b"the payload of %s" % name.encode()
            assert s3.put("/bits/key-of-" + name, body=body).status == 200


def test_a_flipped_bit_is_told():
    with Place() as at:
        three_objects(at)
        flip_after(at.path, b"the payload of two", 5)
        with Server(directory=at.path) as server:  # the log had no footer yet
            s3 = server.client()
            for name, status in (("one", 200), ("two", 500), ("three", 200)):
                assert s3.get("/bits/key-of-" + name).status == status, name
            assert server.metrics()["leat_store_corrupt_total"] > 0
        flip_after(at.path, b"the payload of three", 3)
        with Server(directory=at.path) as server:  # now it has
            s3 = server.client()
            for name, status in (("one", 200), ("two", 500), ("three", 500)):
                assert s3.get("/bits/key-of-" + name).status == status, name
            assert s3.put("/bits/key-of-two", body=b"again").status == 200
            assert s3.get("/bits/key-of-two").body == b"again"
            assert s3.delete("/bits/key-of-three").status == 204
            assert s3.get("/bits/key-of-three").status == 404


def test_unknown_losses_are_not_served():
    with Place() as at:
        three_objects(at)
        flip_after(at.path, b"key-of-three", 7)  # the last record of its log
        for _ in range(2):
            fails(5, "losses_found", "records_lost", "store.accept_losses: true",
                  args=serve("--drive", at("drive0")))
        with Server(directory=at.path, config="store:\n  accept_losses: true\n") as server:
            s3 = server.client()
            assert s3.get("/bits/key-of-one").status == 200
            assert s3.get("/bits/key-of-three").status == 404
        with Server(directory=at.path) as server:  # accepted once is accepted
            assert server.client().get("/bits/key-of-one").status == 200
        os.unlink(sorted(glob.glob(at("drive0", "segments", "*.seg")))[0])
        fails(5, "losses_found", "segment_missing", args=serve("--drive", at("drive0")))


def test_no_permission():
    if os.getuid() != 0:
        raise leat.Skip("needs root, to become somebody else")

    def become_nobody():
        os.setgid(65534)
        os.setuid(65534)

    with Place() as at:
        os.chmod(at.path, 0o755)
        os.mkdir(at("d"), 0o700)
        try:
            run("version", before=become_nobody)
        except PermissionError:
            raise leat.Skip("the program lies where others cannot run it")
        fails(5, at("d"), args=serve("--drive", at("d")), before=become_nobody)


def test_limit_of_files():
    def limit(n):
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))

    with Place() as at:
        drive = ["--drive", at("d")]
        fails(6, "too_few_files", "limit=256", "needed=1024", "ulimit -n", args=serve(*drive),
              before=limit(256))
        path = at.write("c.yaml", "http: {connections_max: 100000}\n")
        fails(6, "too_few_files", "http.connections_max", args=serve("--config", path, *drive),
              before=limit(4096))
        assert not os.path.exists(at("d")), "the drive was touched"


def test_soft_limit_is_raised():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < 1024:
        raise leat.Skip("the hard limit is %d" % hard)
    with Server() as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        soft, now_hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert soft == now_hard, (soft, now_hard)


def test_io_uring_forbidden():
    if os.uname().machine not in ("x86_64", "aarch64"):
        raise leat.Skip("the number of io_uring_setup is known for x86_64 and aarch64 only")
    with Place() as at:
        fails(7, "io_uring is forbidden", "kernel.io_uring_disabled", "seccomp",
              args=serve("--drive", at("d")), before=lambda: forbid_syscall(425, 1))
        fails(7, "no io_uring", args=serve("--drive", at("d")),
              before=lambda: forbid_syscall(425, 38))
        assert not os.path.exists(at("d")), "the drive was touched"


TESTS = [(name[5:], fn) for name, fn in list(globals().items()) if name.startswith("test_")]
