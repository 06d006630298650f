# SPDX-License-Identifier: Apache-2.0
"""What the black-box tests share: a server of their own, a small S3 client that can say anything
(also what no SDK would say), and a runner that counts. Python's standard library only."""

import datetime
import hashlib
import hmac
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ACCESS_KEY = "leatTESTaccess"
SECRET_KEY = "leat/TEST+secret=key"
REGION = "us-east-1"


class Skip(Exception):
    """Raised by a test that cannot run here; the text is the reason."""


def binary():
    return os.environ.get("LEAT", os.path.join(ROOT, "build", "leat"))


def free_port():
    """One below the range that the kernel takes outgoing connections' ports from: a server that is
    started again finds its port free."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        first = int(f.read().split()[0])
    while True:
        port = random.randrange(min(10000, first - 1000), first)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Server:
    """One `leat serve` on a loopback port of its own, in a directory that goes with it."""

    def __init__(self, directory=None, drives=1, cores=None, config=None, env=None, args=()):
        self.owned = directory is None
        self.directory = directory or tempfile.mkdtemp(prefix="leat-test-", dir=scratch())
        self.port = free_port()
        self.args = [binary(), "serve", "--listen", "127.0.0.1:%d" % self.port]
        for i in range(drives):
            self.args += ["--drive", os.path.join(self.directory, "drive%d" % i)]
        if cores:
            self.args += ["--cores", str(cores)]
        if config:
            path = os.path.join(self.directory, "leat.yaml")
            with open(path, "w") as f:
                f.write(config)
            self.args += ["--config", path]
        self.args += list(args)
        self.env = dict(os.environ, LEAT_ACCESS_KEY_ID=ACCESS_KEY,
                        LEAT_SECRET_ACCESS_KEY=SECRET_KEY, **(env or {}))
        self.log_path = os.path.join(self.directory, "log")
        self.process = None

    def start(self, wait=30):
        self.log = open(self.log_path, "ab")
        self.process = subprocess.Popen(self.args, env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError("server ended with %d: %s" %
                                   (self.process.returncode, self.log_tail()))
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                c.request("GET", "/-/ready")
                if c.getresponse().status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.01)
        raise RuntimeError("server not ready: " + self.log_tail())

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise RuntimeError("server did not stop within 15 s of SIGTERM")
        self.log.close()
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def log_tail(self, size=3000):
        with open(self.log_path, "rb") as f:
            data = f.read()
        return data[-size:].decode(errors="replace")

    def metrics(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        c.request("GET", "/-/metrics")
        values = {}
        for line in c.getresponse().read().decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def client(self, **kw):
        return Client(self.port, **kw)

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        try:
            code = self.stop()
            if exc[0] is None and code != 0:
                raise RuntimeError("server ended with %d: %s" % (code, self.log_tail()))
        finally:
            if self.owned:
                shutil.rmtree(self.directory, ignore_errors=True)


def scratch():
    """Where test data lies: LEAT_TEST_DIR, else the build folder's neighbour on the same disk."""
    path = os.environ.get("LEAT_TEST_DIR", os.path.join(ROOT, "build-test-data"))
    os.makedirs(path, exist_ok=True)
    return path


def uri_encode(data, safe="/"):
    if isinstance(data, str):
        data = data.encode()
    return urllib.parse.quote(data, safe="-_.~" + safe)


class Response:
    def __init__(self, raw, body):
        self.status = raw.status
        self.headers = {k.lower(): v for k, v in raw.getheaders()}
        self.body = body

    @property
    def code(self):
        """The S3 error code in the body, or None."""
        try:
            return xml_root(self.body).findtext("Code")
        except xml.etree.ElementTree.ParseError:
            return None


def xml_root(body):
    root = xml.etree.ElementTree.fromstring(body)
    for e in root.iter():
        e.tag = e.tag.split("}")[-1]
    return root


class Client:
    """Signs and sends single requests over one kept connection."""

    def __init__(self, port, access=ACCESS_KEY, secret=SECRET_KEY, region=REGION, timeout=60):
        self.port, self.access, self.secret = port, access, secret
        self.region, self.timeout = region, timeout
        self.connection = None

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def signing_key(self, day):
        key = ("AWS4" + self.secret).encode()
        for word in (day, self.region, "s3", "aws4_request"):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        return key

    def sign(self, method, raw_path, query, headers, payload_hash, now=None):
        """Adds the signature headers; query is a list of (name, value)."""
        now = now or datetime.datetime.now(datetime.timezone.utc)
        date = now.strftime("%Y%m%dT%H%M%SZ")
        headers.setdefault("host", "127.0.0.1:%d" % self.port)
        headers["x-amz-date"] = date
        headers["x-amz-content-sha256"] = payload_hash
        names = sorted(h for h in headers if h in ("host", "range", "content-type", "content-md5")
                       or h.startswith("x-amz-"))
        canonical_query = "&".join(sorted("%s=%s" % (uri_encode(k, ""), uri_encode(v, ""))
                                          for k, v in query))
        canonical = "\n".join(
            [method, uri_encode(urllib.parse.unquote_to_bytes(raw_path)), canonical_query] +
            ["%s:%s" % (n, " ".join(str(headers[n]).split())) for n in names] +
            ["", ";".join(names), payload_hash])
        scope = "%s/%s/s3/aws4_request" % (date[:8], self.region)
        to_sign = "\n".join(["AWS4-HMAC-SHA256", date, scope,
                             hashlib.sha256(canonical.encode("latin-1")).hexdigest()])
        signature = hmac.new(self.signing_key(date[:8]), to_sign.encode(),
                             hashlib.sha256).hexdigest()
        headers["authorization"] = ("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, "
                                    "Signature=%s" % (self.access, scope, ";".join(names),
                                                      signature))
        return date, scope, signature

    def presign(self, method, raw_path, expires=3600, now=None, host=None):
        now = now or datetime.datetime.now(datetime.timezone.utc)
        date = now.strftime("%Y%m%dT%H%M%SZ")
        scope = "%s/%s/s3/aws4_request" % (date[:8], self.region)
        query = [("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
                 ("X-Amz-Credential", self.access + "/" + scope), ("X-Amz-Date", date),
                 ("X-Amz-Expires", str(expires)), ("X-Amz-SignedHeaders", "host")]
        text = "&".join(sorted("%s=%s" % (uri_encode(k, ""), uri_encode(v, "")) for k, v in query))
        canonical = "\n".join([method, uri_encode(urllib.parse.unquote_to_bytes(raw_path)), text,
                               "host:" + (host or "127.0.0.1:%d" % self.port), "", "host",
                               "UNSIGNED-PAYLOAD"])
        to_sign = "\n".join(["AWS4-HMAC-SHA256", date, scope,
                             hashlib.sha256(canonical.encode("latin-1")).hexdigest()])
        signature = hmac.new(self.signing_key(date[:8]), to_sign.encode(),
                             hashlib.sha256).hexdigest()
        return raw_path + "?" + text + "&X-Amz-Signature=" + signature

    def raw(self, method, target, headers=None, body=b""):
        """Sends exactly this, without a signature."""
        for attempt in (0, 1):
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                             timeout=self.timeout)
            try:
                self.connection.putrequest(method, target, skip_host=True,
                                           skip_accept_encoding=True)
                headers = dict(headers or {})
                headers.setdefault("host", "127.0.0.1:%d" % self.port)
                if body or method in ("PUT", "POST"):
                    headers.setdefault("content-length", str(len(body)))
                for name, value in headers.items():
                    self.connection.putheader(name, value)
                self.connection.endheaders()
                if body:
                    self.connection.send(body)
                r = self.connection.getresponse()
                return Response(r, r.read())
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # A kept connection may have been closed meanwhile; a fresh one may not.
                self.close()
                if attempt:
                    raise

    def request(self, method, path, query=(), headers=None, body=b"", payload=None, now=None):
        """path is the decoded "/bucket/key" (str or bytes)."""
        headers = {k.lower(): v for k, v in (headers or {}).items()}
        raw_path = uri_encode(path)
        query = list(query.items()) if isinstance(query, dict) else list(query)
        if payload is None:
            payload = hashlib.sha256(body).hexdigest()
        self.sign(method, raw_path, query, headers, payload, now)
        target = raw_path
        if query:
            target += "?" + "&".join("%s=%s" % (uri_encode(k, ""), uri_encode(v, ""))
                                     for k, v in query)
        return self.raw(method, target, headers, body)

    def put(self, path, body=b"", **headers):
        return self.request("PUT", path, headers={k.replace("_", "-"): v
                                                  for k, v in headers.items()}, body=body)

    def get(self, path, query=(), **headers):
        return self.request("GET", path, query, {k.replace("_", "-"): v
                                                 for k, v in headers.items()})

    def head(self, path, query=(), **headers):
        return self.request("HEAD", path, query, {k.replace("_", "-"): v
                                                  for k, v in headers.items()})

    def delete(self, path, query=(), **headers):
        return self.request("DELETE", path, query, {k.replace("_", "-"): v
                                                    for k, v in headers.items()})

    def list_all(self, bucket, page=1000, **query):
        """Every key and common prefix by ListObjectsV2, page by page."""
        keys, prefixes, token, pages = [], [], None, 0
        while True:
            q = dict(query, **{"list-type": "2", "max-keys": str(page), "encoding-type": "url"})
            if token is not None:
                q["continuation-token"] = token
            r = self.get("/" + bucket, q)
            assert r.status == 200, (r.status, r.body)
            root = xml_root(r.body)
            keys += [urllib.parse.unquote_to_bytes(e.findtext("Key"))
                     for e in root.findall("Contents")]
            prefixes += [urllib.parse.unquote_to_bytes(e.findtext("Prefix"))
                         for e in root.findall("CommonPrefixes")]
            pages += 1
            if root.findtext("IsTruncated") != "true":
                return keys, prefixes, pages
            token = root.findtext("NextContinuationToken")
            assert token, "truncated without a token"


def random_bytes(seed, size):
    """Bytes that no codec compresses, the same for the same seed, fast for gigabytes."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


def run_parallel(count, fn):
    """fn(i) on `count` threads; raises what the first failing one raised."""
    errors = []

    def body(i):
        try:
            fn(i)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def main(tests):
    """Runs (name, function) pairs; arguments select by name. Prints the closing line and exits."""
    selected = sys.argv[1:]
    passed = failed = skipped = 0
    for name, fn in tests:
        if selected and not any(s in name for s in selected):
            continue
        start = time.monotonic()
        try:
            fn()
            passed += 1
            verdict = "ok"
        except Skip as e:
            skipped += 1
            verdict = "SKIPPED: %s" % e
        except BaseException as e:
            failed += 1
            verdict = "FAILED: %s: %s" % (type(e).__name__, str(e)[:2000])
            traceback.print_exc()
            if isinstance(e, KeyboardInterrupt):
                break
        print("%-60s %6.1f s  %s" % (name, time.monotonic() - start, verdict), flush=True)
    print("%d passed, %d failed%s" % (passed, failed, ", %d skipped" % skipped if skipped else ""))
    sys.exit(1 if failed else 0)
