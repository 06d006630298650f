# SPDX-License-Identifier: Apache-2.0
"""The tools that people have, against the built server: AWS CLI, boto3, s3cmd, rclone, s3fs, and the
newest JavaScript SDK. Each does what its users do every day, and what it wrote is read back by
another one."""

import filecmp
import json
import os
import shutil
import subprocess
import tempfile

import leat

server = None
HERE = os.path.dirname(os.path.abspath(__file__))


def need(tool):
    if not shutil.which(tool):
        raise leat.Skip("%s is not installed" % tool)


def environment():
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("AWS_") and "proxy" not in k.lower()}
    env.update(AWS_ACCESS_KEY_ID=leat.ACCESS_KEY, AWS_SECRET_ACCESS_KEY=leat.SECRET_KEY,
               AWS_DEFAULT_REGION=leat.REGION, AWS_EC2_METADATA_DISABLED="true",
               AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null",
               HOME=server.directory, AWS_MAX_ATTEMPTS="1")
    env["RCLONE_CONFIG_LEAT_TYPE"] = "s3"
    env["RCLONE_CONFIG_LEAT_PROVIDER"] = "Other"
    env["RCLONE_CONFIG_LEAT_ACCESS_KEY_ID"] = leat.ACCESS_KEY
    env["RCLONE_CONFIG_LEAT_SECRET_ACCESS_KEY"] = leat.SECRET_KEY
    env["RCLONE_CONFIG_LEAT_ENDPOINT"] = endpoint()
    env["RCLONE_CONFIG_LEAT_REGION"] = leat.REGION
    return env


def endpoint():
    return "http://127.0.0.1:%d" % server.port


def run(*args, **kw):
    """Runs a tool; its output. Fails with what it said."""
    r = subprocess.run(args, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       timeout=kw.pop("timeout", 300), **kw)
    if r.returncode != 0:
        raise AssertionError("%s ended with %d: %s %s" % (
            " ".join(args)[:200], r.returncode, r.stdout.decode(errors="replace")[-800:],
            r.stderr.decode(errors="replace")[-1500:]))
    return r.stdout


def aws(*args, **kw):
    return run("/usr/bin/aws", "--endpoint-url", endpoint(), *args, **kw)


def s3cmd(*args):
    host = "127.0.0.1:%d" % server.port
    return run("s3cmd", "--no-ssl", "--host=" + host, "--host-bucket=" + host,
               "--access_key=" + leat.ACCESS_KEY, "--secret_key=" + leat.SECRET_KEY,
               "--region=us-east-1", "--config=/dev/null", *args)


def make_tree(directory, files=120):
    """A small tree with awkward names and sizes around every border."""
    sizes = [0, 1, 4095, 4096, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 9 << 20]
    for i in range(files):
        size = sizes[i] if i < len(sizes) else i * 37
        sub = ["", "a", "a/b c", "ünïcode/+plus", "deep/er/and/deeper"][i % 5]
        os.makedirs(os.path.join(directory, sub), exist_ok=True)
        with open(os.path.join(directory, sub, "file %d.bin" % i), "wb") as f:
            f.write(leat.random_bytes(i, size))


def assert_same_tree(a, b):
    names_a = sorted(os.path.relpath(os.path.join(d, f), a) for d, _, fs in os.walk(a) for f in fs)
    names_b = sorted(os.path.relpath(os.path.join(d, f), b) for d, _, fs in os.walk(b) for f in fs)
    assert names_a == names_b, "%d files instead of %d" % (len(names_b), len(names_a))
    for name in names_a:
        assert filecmp.cmp(os.path.join(a, name), os.path.join(b, name), shallow=False), name


class Work:
    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="clients-", dir=server.directory)
        return self.path

    def __exit__(self, *exc):
        shutil.rmtree(self.path, ignore_errors=True)


def test_awscli():
    need("/usr/bin/aws")
    with Work() as w:
        make_tree(w + "/up")
        aws("s3", "mb", "s3://cli-bucket")
        aws("s3", "sync", w + "/up", "s3://cli-bucket/tree")
        assert aws("s3", "sync", w + "/up", "s3://cli-bucket/tree").strip() == b""
        aws("s3", "sync", "s3://cli-bucket/tree", w + "/down")
        assert_same_tree(w + "/up", w + "/down")
        assert b"file 9.bin" in aws("s3", "ls", "--recursive", "s3://cli-bucket/")
        aws("s3", "cp", "s3://cli-bucket/tree/file 0.bin", "s3://cli-bucket/copied")
        aws("s3", "mv", "s3://cli-bucket/copied", "s3://cli-bucket/moved")
        head = json.loads(aws("s3api", "head-object", "--bucket", "cli-bucket", "--key", "moved"))
        assert head["ContentLength"] == 0
        aws("s3api", "put-object", "--bucket", "cli-bucket", "--key", "sum", "--body",
            w + "/up/file 5.bin", "--checksum-algorithm", "SHA256")
        got = json.loads(aws("s3api", "get-object", "--bucket", "cli-bucket", "--key", "sum",
                             "--checksum-mode", "ENABLED", w + "/sum"))
        assert got["ChecksumSHA256"]
        got = json.loads(aws("s3api", "list-objects-v2", "--bucket", "cli-bucket", "--max-items",
                             "3", "--page-size", "2"))
        assert len(got["Contents"]) == 3
        url = aws("s3", "presign", "s3://cli-bucket/moved").decode().strip()
        assert server.client().raw("GET", url[len(endpoint()):]).status == 200
        aws("s3", "rb", "--force", "s3://cli-bucket")


def test_boto3():
    code = subprocess.run(["/usr/bin/python3", "-c", "import boto3"], stderr=subprocess.DEVNULL)
    if code.returncode != 0:
        raise leat.Skip("python3-boto3 is not installed")
    print(run("/usr/bin/python3", os.path.join(HERE, "boto3_client.py"), endpoint()).decode(), end="")


def test_s3cmd():
    need("s3cmd")
    with Work() as w:
        make_tree(w + "/up", 60)
        s3cmd("mb", "s3://s3cmd-bucket")
        s3cmd("sync", "--no-progress", w + "/up/", "s3://s3cmd-bucket/tree/")
        assert b"upload:" not in s3cmd("sync", "--no-progress", w + "/up/",
                                       "s3://s3cmd-bucket/tree/")
        s3cmd("sync", "--no-progress", "s3://s3cmd-bucket/tree/", w + "/down/")
        assert_same_tree(w + "/up", w + "/down")
        s3cmd("put", "--multipart-chunk-size-mb=5", w + "/up/deep/er/and/deeper/file 9.bin",
              "s3://s3cmd-bucket/multi")
        s3cmd("cp", "s3://s3cmd-bucket/multi", "s3://s3cmd-bucket/multi2")
        s3cmd("get", "s3://s3cmd-bucket/multi2", w + "/multi2")
        assert filecmp.cmp(w + "/multi2", w + "/up/deep/er/and/deeper/file 9.bin", shallow=False)
        s3cmd("ls", "s3://s3cmd-bucket/")
        s3cmd("del", "--recursive", "--force", "s3://s3cmd-bucket/")
        s3cmd("rb", "s3://s3cmd-bucket")


def test_rclone():
    need("rclone")
    with Work() as w:
        make_tree(w + "/up")
        run("rclone", "mkdir", "leat:rclone-bucket")
        run("rclone", "sync", w + "/up", "leat:rclone-bucket/tree")
        run("rclone", "check", "--download", w + "/up", "leat:rclone-bucket/tree")
        run("rclone", "sync", "leat:rclone-bucket/tree", w + "/down")
        assert_same_tree(w + "/up", w + "/down")
        again = subprocess.run(["rclone", "sync", "-v", "--stats-one-line", w + "/up",
                                "leat:rclone-bucket/tree"], env=environment(),
                               stderr=subprocess.PIPE, timeout=120)
        assert again.returncode == 0 and b"Copied" not in again.stderr, again.stderr
        run("rclone", "--s3-chunk-size=5M", "--s3-upload-cutoff=5M", "copyto",
            w + "/up/deep/er/and/deeper/file 9.bin", "leat:rclone-bucket/multi")
        run("rclone", "copyto", "leat:rclone-bucket/multi", "leat:rclone-bucket/multi2")
        assert run("rclone", "cat", "leat:rclone-bucket/multi2") == leat.random_bytes(9, 9 << 20)
        run("rclone", "purge", "leat:rclone-bucket")


def test_s3fs():
    need("s3fs")
    if not os.path.exists("/dev/fuse"):
        raise leat.Skip("there is no /dev/fuse on this machine")
    with Work() as w:
        mount = w + "/mount"
        os.mkdir(mount)
        passwd = w + "/passwd"
        with open(passwd, "w") as f:
            f.write(leat.ACCESS_KEY + ":" + leat.SECRET_KEY)
        os.chmod(passwd, 0o600)
        assert server.client().put("/s3fs-bucket").status == 200
        process = subprocess.Popen(
            ["s3fs", "s3fs-bucket", mount, "-f", "-o", "url=" + endpoint(), "-o",
             "use_path_request_style", "-o", "passwd_file=" + passwd, "-o", "endpoint=us-east-1"],
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            for _ in range(300):
                if os.path.ismount(mount):
                    break
                if process.poll() is not None:
                    out = process.stdout.read().decode(errors="replace")
                    if "fuse" in out:
                        raise leat.Skip("FUSE mounts are not allowed here: " + out.strip()[-200:])
                    raise AssertionError(out)
                subprocess.run(["sleep", "0.1"], check=True)
            assert os.path.ismount(mount), "not mounted after 30 s"
            make_tree(w + "/up", 40)
            shutil.copytree(w + "/up", mount + "/tree")
            assert_same_tree(w + "/up", mount + "/tree")
            os.rename(mount + "/tree/file 0.bin", mount + "/tree/renamed")
            assert os.path.exists(mount + "/tree/renamed")
            with open(mount + "/tree/renamed", "ab") as f:
                f.write(b"appended")
            with open(mount + "/tree/renamed", "rb") as f:
                assert f.read() == b"appended"
            shutil.rmtree(mount + "/tree")
            assert os.listdir(mount) == []
        finally:
            subprocess.run(["fusermount", "-u", mount], stderr=subprocess.DEVNULL)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def test_javascript_sdk():
    need("node")
    modules = os.environ.get("LEAT_NODE_MODULES", os.path.join(leat.ROOT, "build-npm"))
    if not os.path.isdir(os.path.join(modules, "node_modules", "@aws-sdk", "client-s3")):
        raise leat.Skip("@aws-sdk/client-s3 is not installed (npm could not be reached)")
    shutil.copy(os.path.join(HERE, "sdk_client.mjs"), os.path.join(modules, "sdk_client.mjs"))
    print(run("node", os.path.join(modules, "sdk_client.mjs"), endpoint()).decode(), end="")


TESTS = [(n, f) for n, f in sorted(globals().items()) if n.startswith("test_")]
