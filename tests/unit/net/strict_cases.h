// SPDX-License-Identifier: Apache-2.0
// Heads that must be refused and heads that must not: run through the parser alone and through a
// whole server. `G` begins a good request.
#pragma once

#include "base/err.h"

#define G "GET /hello HTTP/1.1\r\nHost: a\r\n"
#define P "PUT /echo HTTP/1.1\r\nHost: a\r\n"

struct strict_case {
    const char *name;
    const char *text;
    size_t len; // 0: strlen(text)
    enum err expected;
};

#define CASE(name, text, expected)                                                                 \
    {                                                                                              \
        name, text, sizeof(text) - 1, expected                                                     \
    }

static const struct strict_case strict_cases[] = {
    // accepted
    CASE("plain", G "\r\n", OK),
    CASE("no blank after colon", "GET /hello HTTP/1.1\r\nHost:a\r\n\r\n", OK),
    CASE("blanks around a value", G "X-A: \t b \t\r\n\r\n", OK),
    CASE("empty value", G "X-A:\r\nX-B: \r\n\r\n", OK),
    CASE("non-ASCII value", G "X-A: \xc3\xa9\r\n\r\n", OK),
    CASE("empty line first", "\r\n" G "\r\n", OK),
    CASE("four empty lines first", "\r\n\r\n\r\n\r\n" G "\r\n", OK),
    CASE("HTTP/1.0 without Host", "GET /hello HTTP/1.0\r\n\r\n", OK),
    CASE("absolute target", "GET http://a/hello HTTP/1.1\r\nHost: a\r\n\r\n", OK),
    CASE("asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", OK),
    CASE("host with port", "GET /hello HTTP/1.1\r\nHost: a.b-c:9000\r\n\r\n", OK),
    CASE("host IPv6", "GET /hello HTTP/1.1\r\nHost: [::1]:9000\r\n\r\n", OK),
    CASE("upgrade is ignored", G "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", OK),
    CASE("unknown expectation is ignored", G "Expect: nothing\r\n\r\n", OK),
    CASE("length zero", P "Content-Length: 0\r\n\r\n", OK),
    CASE("odd but legal target", "GET /hello?a=[]{}|^\"`<>&%ZZ HTTP/1.1\r\nHost: a\r\n\r\n", OK),
    // line ends
    CASE("bare LF everywhere", "GET /hello HTTP/1.1\nHost: a\n\n", ERR_HTTP_BAD_REQUEST),
    CASE("bare LF in the request line", "GET /hello HTTP/1.1\nHost: a\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("bare LF after a header", "GET /hello HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("bare LF at the end", G "\n", ERR_HTTP_BAD_REQUEST),
    CASE("bare CR in a value", G "X-A: b\rX-B: c\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("bare CR ends the headers", G "X-A: b\r\rGET /evil HTTP/1.1\r\nHost: b\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("CR CR LF", G "X-A: b\r\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("folded header", G "X-A: b\r\n c\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("folded by tab", G "X-A: b\r\n\tc\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("blank before the first header", "GET /hello HTTP/1.1\r\n Host: a\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("five empty lines first", "\r\n\r\n\r\n\r\n\r\n" G "\r\n", ERR_HTTP_BAD_REQUEST),
    // header syntax
    CASE("NUL in a value", G "X-A: b\0c\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("NUL in a name", G "X\0A: b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("control byte in a value", G "X-A: b\x01\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("blank before the colon", G "X-A : b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("blank before the colon of the length", P "Content-Length : 3\r\n\r\nabc",
         ERR_HTTP_BAD_REQUEST),
    CASE("tab before the colon", G "X-A\t: b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("blank in a name", G "X A: b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("no colon", G "X-A\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("no name", G ": b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("non-ASCII name", G "X-\xc3: b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    // Host
    CASE("no Host", "GET /hello HTTP/1.1\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("two Hosts", G "Host: b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("two equal Hosts", G "Host: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("Host with a path", "GET /hello HTTP/1.1\r\nHost: a/b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("Host with a user", "GET /hello HTTP/1.1\r\nHost: a@b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("Host with a blank", "GET /hello HTTP/1.1\r\nHost: a b\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("absolute target of another host", "GET http://b/hello HTTP/1.1\r\nHost: a\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    // framing
    CASE("length and chunked", P "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("chunked and length", P "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("two lengths", P "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
         ERR_HTTP_BAD_REQUEST),
    CASE("two equal lengths", P "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
         ERR_HTTP_BAD_REQUEST),
    CASE("list of lengths", P "Content-Length: 3, 3\r\n\r\nabc", ERR_HTTP_BAD_REQUEST),
    CASE("signed length", P "Content-Length: +3\r\n\r\nabc", ERR_HTTP_BAD_REQUEST),
    CASE("negative length", P "Content-Length: -1\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("hexadecimal length", P "Content-Length: 0x3\r\n\r\nabc", ERR_HTTP_BAD_REQUEST),
    CASE("empty length", P "Content-Length:\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("blank in a length", P "Content-Length: 1 1\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("length past 2^63", P "Content-Length: 9223372036854775808\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("length past 2^64", P "Content-Length: 18446744073709551619\r\n\r\nabc",
         ERR_HTTP_BAD_REQUEST),
    CASE("chunked twice", P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("chunked in HTTP/1.0", "PUT /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("unknown coding", P "Transfer-Encoding: gzip\r\n\r\n", ERR_UNSUPPORTED),
    CASE("coding before chunked", P "Transfer-Encoding: gzip, chunked\r\n\r\n", ERR_UNSUPPORTED),
    CASE("identity", P "Transfer-Encoding: identity\r\n\r\n", ERR_UNSUPPORTED),
    // request line
    CASE("HTTP/2.0", "GET /hello HTTP/2.0\r\nHost: a\r\n\r\n", ERR_HTTP_VERSION),
    CASE("HTTP/1.2", "GET /hello HTTP/1.2\r\nHost: a\r\n\r\n", ERR_HTTP_VERSION),
    CASE("HTTP/0.9", "GET /hello HTTP/0.9\r\nHost: a\r\n\r\n", ERR_HTTP_VERSION),
    CASE("no version", "GET /hello\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("lower-case version", "GET /hello http/1.1\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("another protocol", "OPTIONS /hello RTSP/1.0\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("blank in the target", "GET /hel lo HTTP/1.1\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("two blanks before the target", "GET  /hello HTTP/1.1\r\nHost: a\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("two blanks before the version", "GET /hello  HTTP/1.1\r\nHost: a\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("blank after the version", "GET /hello HTTP/1.1 \r\nHost: a\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("tab for a blank", "GET\t/hello HTTP/1.1\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("fragment", "GET /hello#a HTTP/1.1\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("raw non-ASCII target", "GET /h\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("relative target", "GET hello HTTP/1.1\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("asterisk for GET", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("absolute target without a path", "GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n",
         ERR_HTTP_BAD_REQUEST),
    CASE("authority target", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", ERR_HTTP_BAD_REQUEST),
    CASE("unknown method", "FROB /hello HTTP/1.1\r\nHost: a\r\n\r\n", ERR_S3_METHOD_NOT_ALLOWED),
    CASE("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ERR_HTTP_VERSION),
    CASE("TLS on the plain port", "\x16\x03\x01\x02\r\n\r\n", ERR_HTTP_BAD_REQUEST),
};
