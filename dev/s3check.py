#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a server with nothing but Python's standard library.

usage: s3check.py wait ENDPOINT PID                  until /-/ready answers 200 or the process ends
       s3check.py prove ENDPOINT [CREDENTIALS_FILE]  a signed PUT and GET in a bucket of its own
                                                     (without a file: LEAT_ACCESS_KEY_ID, ...)
"""
import datetime
import hashlib
import hmac
import http.client
import os
import sys
import time
import urllib.parse

READY_WAIT_S = 60
REGION = "us-east-1"


def connect(endpoint):
    url = urllib.parse.urlsplit(endpoint)
    return http.client.HTTPConnection(url.hostname, url.port, timeout=10)


def is_running(pid):
    """False also for a zombie: it has ended, and nobody has asked how."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait(endpoint, pid):
    deadline = time.monotonic() + READY_WAIT_S
    while time.monotonic() < deadline:
        if not is_running(pid):
            sys.exit(f"process {pid} has ended")
        try:
            connection = connect(endpoint)
            connection.request("GET", "/-/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit(f"not ready after {READY_WAIT_S} s")


class Client:
    """Signs single requests (AWS Signature Version 4, payload signed)."""

    def __init__(self, endpoint, access_key, secret_key):
        self.connection = connect(endpoint)
        self.host = urllib.parse.urlsplit(endpoint).netloc
        self.access_key, self.secret_key = access_key, secret_key

    def request(self, method, path, body=b""):
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": self.host, "x-amz-content-sha256": digest, "x-amz-date": date}
        names = ";".join(headers)
        lines = [f"{name}:{value}" for name, value in headers.items()]
        canonical = "\n".join([method, path, "", *lines, "", names, digest])
        scope = f"{date[:8]}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope,
                          hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + self.secret_key).encode()
        for word in [*scope.split("/"), text]:
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
                                    f"SignedHeaders={names}, Signature={key.hex()}")
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        return response.status, response.read()


def expect(answer, *statuses):
    status, body = answer
    if status not in statuses:
        sys.exit(f"the proof failed: status {status}: {body[:500].decode(errors='replace')}")
    return body


def credentials_read(path):
    with open(path) as f:
        values = dict(line.rstrip("\n").split("=", 1) for line in f)
    return values["access_key_id"], values["secret_access_key"]


def prove(endpoint, path=None):
    if path is None:
        keys = os.environ["LEAT_ACCESS_KEY_ID"], os.environ["LEAT_SECRET_ACCESS_KEY"]
    else:
        keys = credentials_read(path)
    client = Client(endpoint, *keys)
    bucket = "/leat-up-" + os.urandom(6).hex()
    content = os.urandom(100_000)
    expect(client.request("PUT", bucket), 200)
    expect(client.request("PUT", bucket + "/proof", content), 200)
    if expect(client.request("GET", bucket + "/proof"), 200) != content:
        sys.exit("the proof failed: GET gave other bytes than PUT had")
    expect(client.request("DELETE", bucket + "/proof"), 204)
    expect(client.request("DELETE", bucket), 204)
    print(f"proof:              put and got {len(content)} bytes in the bucket {bucket[1:]}, "
          "removed again")


def main(argv):
    if len(argv) == 4 and argv[1] == "wait":
        wait(argv[2], argv[3])
    elif len(argv) in (3, 4) and argv[1] == "prove":
        prove(*argv[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv)
