// SPDX-License-Identifier: Apache-2.0
// Puts many small objects: `s3load PORT ACCESS SECRET BUCKET CONNECTIONS < keys`, one key a line.
// Each object's body is its own key. Prints what was done; exits with 1 unless every PUT answered
// 200. A test tool: blocking sockets, one thread a connection, on loopback only.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "codec/digest.h"
#include "codec/percent.h"

#define KEY_MAX 1100

struct load {
    const char *access;
    const char *bucket;
    u16 port;
    struct hmac_sha256_key signing_key;
    char day[9];
    pthread_mutex_t lock; // of standard input and the counts
    u64 done;
    u64 failed;
};

static void signing_key(struct load *l, const char *secret)
{
    char first[256];
    u8 digest[SHA256_LEN];
    const char *words[] = {l->day, "us-east-1", "s3", "aws4_request"};
    snprintf(first, sizeof(first), "AWS4%s", secret);
    hmac_sha256_key_init(&l->signing_key, bytes_from_string(first));
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        hmac_sha256(&l->signing_key, bytes_from_string(words[i]), digest);
        hmac_sha256_key_init(&l->signing_key, BYTES(digest, sizeof(digest)));
    }
}

static int dial(u16 port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 60};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        perror("s3load: connect");
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

// The whole signed request in `out`.
static size_t make_request(const struct load *l, struct bytes key, char *out, size_t cap)
{
    char path[3 * KEY_MAX + 128];
    char canonical[sizeof(path) + 512];
    char to_sign[512];
    char hex[2 * SHA256_LEN + 1];
    char date[32];
    u8 digest[SHA256_LEN];
    size_t len = 0;
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &tm);
    int n = snprintf(path, sizeof(path), "/%s/", l->bucket);
    if (percent_encode(key, PERCENT_SLASH_KEEP, path + n, sizeof(path) - (size_t)n - 1, &len) !=
        OK) {
        return 0;
    }
    path[(size_t)n + len] = 0;
    n = snprintf(
        canonical, sizeof(canonical),
        "PUT\n%s\n\nhost:127.0.0.1\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:%s\n\n"
        "host;x-amz-content-sha256;x-amz-date\nUNSIGNED-PAYLOAD",
        path, date);
    sha256_digest(BYTES(canonical, (size_t)n), digest);
    hex_encode(BYTES(digest, sizeof(digest)), hex);
    n = snprintf(to_sign, sizeof(to_sign), "AWS4-HMAC-SHA256\n%s\n%s/us-east-1/s3/aws4_request\n%s",
                 date, l->day, hex);
    hmac_sha256(&l->signing_key, BYTES(to_sign, (size_t)n), digest);
    hex_encode(BYTES(digest, sizeof(digest)), hex);
    n = snprintf(
        out, cap,
        "PUT %s HTTP/1.1\r\nhost: 127.0.0.1\r\nx-amz-date: %s\r\nx-amz-content-sha256: "
        "UNSIGNED-PAYLOAD\r\nauthorization: AWS4-HMAC-SHA256 Credential=%s/%s/us-east-1/s3/"
        "aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=%s\r\n"
        "content-length: %zu\r\n\r\n%.*s",
        path, date, l->access, l->day, hex, key.len, BYTES_PRINTF(key));
    return n < 0 || (size_t)n >= cap ? 0 : (size_t)n;
}

// Sends one request and reads its (bodiless) answer.
static bool exchange(int fd, const char *request, size_t len)
{
    char answer[4096];
    size_t have = 0;
    while (len > 0) {
        ssize_t n = write(fd, request, len);
        if (n <= 0) {
            return false;
        }
        request += n;
        len -= (size_t)n;
    }
    while (have < sizeof(answer) - 1) {
        ssize_t n = read(fd, answer + have, sizeof(answer) - 1 - have);
        if (n <= 0) {
            return false;
        }
        have += (size_t)n;
        answer[have] = 0;
        if (strstr(answer, "\r\n\r\n") != NULL) {
            return strncmp(answer, "HTTP/1.1 200", 12) == 0;
        }
    }
    return false;
}

static void *work(void *arg)
{
    struct load *l = arg;
    char key[KEY_MAX];
    char request[4 * KEY_MAX + 1024];
    int fd = dial(l->port);
    bool is_good = fd >= 0;
    while (is_good) {
        pthread_mutex_lock(&l->lock);
        bool has_key = fgets(key, sizeof(key), stdin) != NULL;
        pthread_mutex_unlock(&l->lock);
        if (!has_key) {
            break;
        }
        size_t len = make_request(l, BYTES(key, strcspn(key, "\n")), request, sizeof(request));
        is_good = len > 0 && exchange(fd, request, len);
        pthread_mutex_lock(&l->lock);
        l->done += is_good;
        l->failed += !is_good;
        pthread_mutex_unlock(&l->lock);
    }
    if (fd >= 0) {
        close(fd);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: s3load PORT ACCESS SECRET BUCKET CONNECTIONS < keys\n");
        return 2;
    }
    struct load l = {.access = argv[2], .bucket = argv[4], .port = (u16)atoi(argv[1])};
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(l.day, sizeof(l.day), "%Y%m%d", &tm);
    signing_key(&l, argv[3]);
    pthread_mutex_init(&l.lock, NULL);
    int count = atoi(argv[5]);
    if (count < 1 || count > 256) {
        fprintf(stderr, "s3load: 1 to 256 connections\n");
        return 2;
    }
    pthread_t threads[256];
    for (int i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, work, &l) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%llu objects put, %llu failed\n", (unsigned long long)l.done,
           (unsigned long long)l.failed);
    return l.failed > 0 || l.done == 0;
}
