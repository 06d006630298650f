# SPDX-License-Identifier: Apache-2.0
"""A server that runs: its endpoints, logs, signals, credentials and restarts."""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time

import leat
from process import NO_CREDENTIALS, Place, Server, fails, serve

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STOP_SECONDS_MAX = 10
DOMAIN = "s3.test"


def until(condition, what, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within %d s: %s" % (seconds, what)
        time.sleep(0.02)


def stop(server, code=0, sig=signal.SIGTERM, seconds=STOP_SECONDS_MAX):
    """Signals the server and checks how, and how fast, it ends."""
    start = time.monotonic()
    server.process.send_signal(sig)
    try:
        ended = server.process.wait(seconds)
    except subprocess.TimeoutExpired:
        server.kill()
        raise AssertionError("did not stop within %d s: %s" % (seconds, server.log_tail()))
    assert ended == code, "ended with %d: %s" % (ended, server.log_tail())
    return time.monotonic() - start


def generated(server):
    """The credentials that the server made for itself."""
    with open(os.path.join(server.directory, "drive0", "credentials")) as f:
        return [line.rstrip("\n").split("=", 1)[1] for line in f]


def raw_get(port, path, method="GET", headers=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    c.request(method, path, headers=headers or {})
    r = c.getresponse()
    body = r.read()
    c.close()
    return r.status, body.decode(errors="replace"), {k.lower(): v for k, v in r.getheaders()}


def test_full_drive():
    """Full to the brim with the default segments: readable, deletable, and then writable again."""
    with Server(cores=2, config="store:\n  drive_bytes_max: 192MiB\n") as server:
        s3 = server.client()
        assert s3.put("/full").status == 200
        data = leat.random_bytes(1, 1 << 20)
        kept = 0
        while True:
            r = s3.put("/full/%d" % kept, data)
            if r.status != 200:
                break
            kept += 1
        assert (r.status, r.code) == (507, "InsufficientStorage"), (r.status, r.code)
        assert kept > 80, "only %d MiB of 192 could be used" % kept
        assert server.metrics()["leat_store_full_total"] > 0
        for i in range(kept):
            assert s3.get("/full/%d" % i).body == data
        for i in range(0, kept, 2):
            assert s3.delete("/full/%d" % i).status == 204
        for i in range(kept // 4):
            assert s3.put("/full/again%d" % i, data).status == 200, i
        for i in range(1, kept, 2):
            assert s3.get("/full/%d" % i).body == data


def test_uploads_expire():
    with Place() as at:
        with Server(directory=at.path) as server:
            s3 = server.client()
            assert s3.put("/uploads").status == 200
            for i in range(3):  # begun before anything expires
                r = s3.request("POST", "/uploads/old%d" % i, query=[("uploads", "")])
                upload = leat.xml_root(r.body).findtext("UploadId")
                part = [("partNumber", "1"), ("uploadId", upload)]
                assert s3.request("PUT", "/uploads/old%d" % i, query=part, body=b"x").status == 200
        with Server(directory=at.path, config="uploads:\n  expire_after: 2s\n") as server:
            s3 = server.client()

            def count():
                r = s3.get("/uploads", query=[("uploads", "")])
                return len(leat.xml_root(r.body).findall("Upload"))
            until(lambda: count() == 0, "the old uploads are gone")
            r = s3.request("POST", "/uploads/new", query=[("uploads", "")])
            assert r.status == 200 and count() == 1
            until(lambda: count() == 0, "the new one, too")
            assert s3.request("PUT", "/uploads/old1", query=part, body=b"x").code == "NoSuchUpload"


def test_endpoints():
    with Server() as server:
        assert raw_get(server.port, "/-/live")[:2] == (200, "live\n")
        assert raw_get(server.port, "/-/ready?x=1")[:2] == (200, "ready\n")
        status, body, headers = raw_get(server.port, "/-/live", "HEAD")
        assert (status, body) == (200, "")
        status, _, headers = raw_get(server.port, "/-/live", "PUT")
        assert status == 405 and headers["allow"] == "GET, HEAD"
        for path in ("/-", "/-/", "/-/livex", "/-/live/", "/-/../bucket"):
            assert raw_get(server.port, path)[0] == 404, path
        # Everything else wants a signature.
        for path in ("/", "/bucket", "/-x/key", "/--/live", "//-/live", "/%2d/live"):
            assert raw_get(server.port, path)[0] in (400, 403), path


def test_metrics():
    with Server(cores=2) as server:
        status, text, headers = raw_get(server.port, "/-/metrics")
        assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
        sample = re.compile(r'^[a-z_0-9]+(\{[a-z_]+="[^"]*"\})? -?[0-9.]+$')
        typed = set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                typed.add(line.split()[2])
            elif not line.startswith("# HELP "):
                assert sample.match(line), line
                base = re.sub(r"(_bucket|_sum|_count)?[ {].*", "", line)
                assert base in typed or base + line.split("{")[0][len(base):] in typed, line
        before = server.metrics()
        assert before["leat_ready"] == 1 and before["leat_cores"] == 2
        c = server.client()
        assert c.put("/metrics").status == 200
        assert c.put("/metrics/key", b"x" * 1000).status == 200
        after = server.metrics()
        assert after["leat_s3_requests_total"] == before["leat_s3_requests_total"] + 2
        assert after["leat_s3_bytes_in_total"] == before["leat_s3_bytes_in_total"] + 1000
        assert after["leat_store_keys"] > before["leat_store_keys"]
        text = raw_get(server.port, "/-/metrics")[1]
        assert leat.ACCESS_KEY not in text and "metrics/key" not in text


def test_endpoints_and_virtual_hosts():
    config = "domains: [%s]\n" % DOMAIN
    with Server(config=config) as server:
        c = server.client()
        assert c.put("/bucket").status == 200
        vhost = {"host": "bucket.%s:%d" % (DOMAIN, server.port)}
        assert c.request("PUT", "/-/live", headers=vhost, body=b"an object").status == 200
        r = c.request("GET", "/-/live", headers=vhost)
        assert (r.status, r.body) == (200, b"an object")
        assert c.get("/bucket/-/live").body == b"an object"
        # Without a signature the object is refused, and the endpoint's own answer is not given.
        assert raw_get(server.port, "/-/live", headers=vhost)[0] == 403
        for host in (DOMAIN, "." + DOMAIN, "other.test", "bucket.%s.evil" % DOMAIN):
            assert raw_get(server.port, "/-/live", headers={"host": host})[1] == "live\n", host


def test_json_log():
    with Server(args=["--log", "json", "--log-level", "debug"]) as server:
        server.client().put("/json")
        stop(server)
        with open(server.log_path) as f:
            events = [json.loads(line) for line in f]
    for event in events:
        assert set(event) == {"time", "level", "event", "text"}, event
        assert re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$", event["time"])
    names = [event["event"] for event in events]
    for name in ("ready", "stopping", "stopped"):
        assert names.count(name) == 1, names
    with Place() as at:
        path = at.write("c.yaml", "drvies: [\"\u00e9\"]\n")
        ended = fails(3, args=serve("--log", "json", "--config", path))
        assert json.loads(ended.err)["event"] == "config_invalid"


def test_port_chosen_by_kernel():
    with Place() as at:
        log = open(at("log"), "wb")
        process = subprocess.Popen(
            [leat.binary(), "serve", "--listen", "127.0.0.1:0", "--cores", "2", "--drive",
             at("d")], stderr=log, env=dict(os.environ, **NO_CREDENTIALS))
        try:
            def endpoint():
                with open(at("log")) as f:
                    return re.search(r"endpoint=http://127\.0\.0\.1:(\d+)", f.read())
            until(lambda: endpoint() or process.poll() is not None, "a ready line")
            assert raw_get(int(endpoint().group(1)), "/-/ready")[0] == 200
        finally:
            process.terminate()
            assert process.wait(STOP_SECONDS_MAX) == 0
            log.close()


def test_restart_keeps_data_and_credentials():
    with Place() as at:
        bodies = {"k%d" % i: leat.random_bytes(i, 7 ** i) for i in range(8)}
        keys = None
        for round_number, how in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGINT)):
            # The number of cores may change between two starts.
            server = Server(directory=at.path, env=NO_CREDENTIALS, cores=round_number + 1)
            server.start()
            keys = keys or generated(server)
            assert generated(server) == keys
            c = server.client(access=keys[0], secret=keys[1])
            if round_number == 0:
                assert c.put("/restart").status == 200
            for name, body in bodies.items():
                path = "/restart/" + name
                if round_number == 0:
                    assert c.put(path, body).status == 200
                r = c.get(path)
                assert (r.status, r.body) == (200, body), name
            c.close()
            stop(server, 0 if how != signal.SIGKILL else -signal.SIGKILL, how)
        assert re.match("^[A-Z2-7]{20}$", keys[0]) and re.match("^[A-Za-z0-9]{40}$", keys[1])
        with open(server.log_path) as f:
            assert keys[1] not in f.read(), "the secret is in the log"


def test_precedence_of_credentials():
    config = ("credentials:\n- {access_key_id: FILE1, secret_access_key: secret-one}\n"
              "- {access_key_id: FILE2, secret_access_key: secret-two}\n")

    def status(server, access, secret):
        return server.client(access=access, secret=secret).get("/").status

    with Server(config=config, env=NO_CREDENTIALS) as server:
        assert status(server, "FILE1", "secret-one") == 200
        assert status(server, "FILE2", "secret-two") == 200
        assert status(server, "FILE1", "secret-two") == 403
        assert not os.path.exists(os.path.join(server.directory, "drive0", "credentials"))
    with Server(config=config) as server:
        assert status(server, leat.ACCESS_KEY, leat.SECRET_KEY) == 200
        assert status(server, "FILE1", "secret-one") == 403


def test_options_override_file():
    config = "listen: 192.0.2.1:1\ndrives: [/nonexistent/drive]\nregion: eu-test-1\n"
    with Server(config=config) as server:
        assert server.client(region="eu-test-1").get("/").status == 200
        r = server.client(region="us-east-1").get("/")
        assert r.status == 400 and b"eu-test-1" in r.body, r.body


def test_sample_configuration():
    """docs/sample.yaml has every key, and is a configuration that works."""
    with open(os.path.join(ROOT, "docs", "sample.yaml")) as f:
        sample = f.read()
    with open(os.path.join(ROOT, "src", "admin", "config.def")) as f:
        paths = re.findall(r'^KEY\("([^"]+)"', f.read(), re.M)
    assert len(paths) > 20
    with open(os.path.join(ROOT, "docs", "configuration.md")) as f:
        page = f.read()
    for path in paths:
        if not path.endswith("[]"):
            assert re.search(r"^[ #-]*%s:" % path.split(".")[-1], sample, re.M), path
            assert "`%s`" % path.replace("[]", "") in page, path
    with Server(config=sample, drives=3) as server:
        assert server.client().get("/").status == 200


def test_drain_under_load():
    """Whatever was acknowledged before the end is there after it, and it ends in time."""
    with Place() as at:
        server = Server(directory=at.path, cores=2).start()
        assert server.client().put("/drain").status == 200
        acknowledged, ended = [], []

        def load(i):
            c = server.client(timeout=20)
            n = 0
            try:
                while True:
                    key = "/drain/%d-%d" % (i, n)
                    body = leat.random_bytes(key, 50000 if n % 5 == 0 else 500)
                    if c.put(key, body).status != 200:
                        break
                    acknowledged.append((key, body))
                    n += 1
            except (OSError, http.client.HTTPException):
                pass
            ended.append(i)

        threads = [threading.Thread(target=load, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        until(lambda: len(acknowledged) > 200, "200 objects", 60)
        took = stop(server)
        for t in threads:
            t.join(20)
        assert len(ended) == 8, "a client hangs"
        with Server(directory=at.path) as server:
            c = server.client()
            for key, body in acknowledged:
                assert c.get(key).body == body, key
        assert took < 5, "idle keep-alive connections held it up: %.1f s" % took


def stalled_upload(server):
    """A signed PUT whose body stops half-way; returns its socket once the server reads it."""
    c = server.client()
    headers = {}
    c.sign("PUT", "/stall/key", [], headers, "UNSIGNED-PAYLOAD")
    s = socket.create_connection(("127.0.0.1", server.port))
    head = "PUT /stall/key HTTP/1.1\r\ncontent-length: 1000000\r\nexpect: 100-continue\r\n"
    head += "".join("%s: %s\r\n" % item for item in headers.items())
    s.sendall(head.encode() + b"\r\n")
    s.settimeout(10)
    assert s.recv(100).startswith(b"HTTP/1.1 100"), "the body is not asked for"
    s.sendall(b"x" * 1000)
    return s


def test_stop_with_stalled_client():
    with Place() as at:
        server = Server(directory=at.path).start()
        assert server.client().put("/stall").status == 200
        with stalled_upload(server):
            took = stop(server)
            assert took > 3, "the request under way got only %.1f s" % took
        with Server(directory=at.path) as server:
            assert server.client().get("/stall/key").status == 404


def test_second_signal_stops_at_once():
    with Place() as at:
        server = Server(directory=at.path).start()
        c = server.client()
        assert c.put("/stall").status == 200
        assert c.put("/stall/kept", b"kept").status == 200
        with stalled_upload(server):
            server.process.send_signal(signal.SIGTERM)
            until(lambda: "stopping" in server.log_tail(), "stopping")
            assert stop(server, code=1, seconds=3) < 2
        with Server(directory=at.path) as server:
            assert server.client().get("/stall/kept").body == b"kept"


def test_stop_while_starting():
    """A signal before the server is ready ends it cleanly too, at whatever moment it comes."""
    with Place() as at:
        for delay_ms in (0, 5, 20, 50, 100, 200, 400):
            log = open(at("log"), "ab")
            process = subprocess.Popen(
                [leat.binary(), *serve("--drive", at("d"))], stderr=log, env=dict(os.environ))
            until(lambda: "SigCgt" in open("/proc/%d/status" % process.pid).read(), "a process")
            blocked = r"^SigBlk:\s+[0-9a-f]*[4-7c-f][0-9a-f]{3}$"  # SIGTERM is the 15th bit
            until(lambda: re.search(blocked, open("/proc/%d/status" % process.pid).read(), re.M),
                  "signals to be taken over")
            time.sleep(delay_ms / 1000)
            process.terminate()
            assert process.wait(STOP_SECONDS_MAX) == 0, open(at("log")).read()
            log.close()


def test_reload_of_log_level():
    with Place() as at:
        server = Server(directory=at.path, config="log: {level: error}\n")
        server.start()
        try:
            assert "ready" not in server.log_tail()
            at.write("leat.yaml", "log: {level: info}\n")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: " reloaded " in server.log_tail(), "reloaded")
            at.write("leat.yaml", "log: {level: error}\nnonsense: 1\n")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: "unknown key 'nonsense' at line 2" in server.log_tail(), "the reason")
            until(lambda: " not_reloaded " in server.log_tail(), "not_reloaded")
            assert server.client().get("/").status == 200
        finally:
            stop(server)
        assert " stopped " in server.log_tail(), "the refused file changed the level"


def make_certificate(at, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=" + name,
                    "-keyout", at("key.pem.new"), "-out", at("cert.pem.new")], check=True,
                   capture_output=True)
    os.rename(at("key.pem.new"), at("key.pem"))
    os.rename(at("cert.pem.new"), at("cert.pem"))
    with open(at("cert.pem")) as f:
        return f.read()


def served_certificate(port):
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


class TlsServer(Server):
    """`listen` speaks TLS itself, so readiness is asked for with TLS."""

    def start(self, wait=30):
        self.log = open(self.log_path, "ab")
        self.process = subprocess.Popen(self.args, env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        until(lambda: "endpoint=https://" in self.log_tail() or self.process.poll() is not None,
              "a ready line", wait)
        assert self.process.poll() is None, self.log_tail()
        return self


def test_reload_of_certificates():
    with Place() as at:
        first = make_certificate(at, "first")
        config = "tls:\n  cert: %s\n  key: %s\n" % (at("cert.pem"), at("key.pem"))
        server = TlsServer(directory=at.path, config=config).start()
        try:
            assert served_certificate(server.port) == first
            context = ssl.create_default_context(cafile=at("cert.pem"))
            context.check_hostname = False
            old = http.client.HTTPSConnection("127.0.0.1", server.port, context=context,
                                              timeout=10)
            old.request("GET", "/-/ready")
            assert old.getresponse().read() == b"ready\n"
            second = make_certificate(at, "second")
            assert served_certificate(server.port) == first, "read without a signal"
            server.process.send_signal(signal.SIGHUP)
            until(lambda: served_certificate(server.port) == second, "the new certificate")
            old.request("GET", "/-/ready")  # the connection made before goes on
            assert old.getresponse().read() == b"ready\n"
            at.write("cert.pem", "broken")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: "tls_not_reloaded" in server.log_tail(), "tls_not_reloaded")
            assert served_certificate(server.port) == second
        finally:
            stop(server)


def test_plain_and_tls_side_by_side():
    with Place() as at:
        first = make_certificate(at, "both")
        tls_port = leat.free_port()
        config = "tls: {cert: %s, key: %s, listen: '127.0.0.1:%d'}\n" % (
            at("cert.pem"), at("key.pem"), tls_port)
        with Server(directory=at.path, config=config) as server:
            assert raw_get(server.port, "/-/ready")[0] == 200
            assert served_certificate(tls_port) == first


def test_idle_uses_no_cpu():
    with Server() as server:
        def ticks():
            with open("/proc/%d/stat" % server.process.pid) as f:
                fields = f.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        server.client().put("/idle")
        # What the start left to do (compaction of the last run's tail, ...) ends first.
        last = [ticks()]

        def is_quiet():
            time.sleep(0.5)
            now = ticks()
            last[0], quiet = now, now == last[0]
            return quiet
        until(is_quiet, "quiet", 20)
        before = ticks()
        time.sleep(3)
        spent = (ticks() - before) / os.sysconf("SC_CLK_TCK")
        assert spent <= 0.03, "%.2f s of CPU in 3 s" % spent


TESTS = [(name[5:], fn) for name, fn in list(globals().items()) if name.startswith("test_")]
