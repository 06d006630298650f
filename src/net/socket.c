// SPDX-License-Identifier: Apache-2.0
// Listening sockets, and what is done to sockets outside of the I/O engine. TCP_NODELAY is set on
// the listener: Linux hands it down to the connections, which saves a system call for each.
#include "net/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "net/http.h"

#define LISTEN_BACKLOG 4096 // the kernel lowers it to net.core.somaxconn
#define HOST_BYTES_MAX 64

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static socklen_t address_len(const union address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof(a->v6) : sizeof(a->v4);
}

// "1.2.3.4:9000" or "[::1]:9000". Names are not resolved.
static bool address_parse(const char *text, union address *out)
{
    const char *colon = strrchr(text, ':');
    u64 port = 0;
    if (colon == NULL || !u64_parse(bytes_from_string(colon + 1), UINT16_MAX, &port)) {
        return false;
    }
    bool is_v6 = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    const char *host_at = is_v6 ? text + 1 : text;
    size_t len = (size_t)(colon - host_at) - (is_v6 ? 1 : 0);
    char host[HOST_BYTES_MAX];
    if (len >= sizeof(host)) {
        return false;
    }
    memcpy(host, host_at, len);
    host[len] = 0;
    *out = (union address){0};
    if (is_v6) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((u16)port);
        return inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((u16)port);
    return inet_pton(AF_INET, host, &out->v4.sin_addr) == 1;
}

static u16 address_port(const union address *a)
{
    return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

static enum err listen_failed(const char *address, const char *what, int sys_errno)
{
    enum err e = err_from_errno(sys_errno);
    if (sys_errno == EADDRINUSE) {
        LOG_ERROR("listen_failed",
                  "address=%s reason=\"the port is taken by another process\" "
                  "hint=\"stop it or choose another --listen\"",
                  address);
        return ERR_IN_USE;
    }
    LOG_ERROR("listen_failed", "address=%s call=%s errno=%d reason=\"%s\"", address, what,
              sys_errno, err_text(e));
    if (sys_errno == EACCES || sys_errno == EPERM) {
        return ERR_PERMISSION;
    }
    return sys_errno == EADDRNOTAVAIL || sys_errno == EAFNOSUPPORT ? ERR_INVALID : e;
}

// Opens, sets up and binds; -1 with errno and *what when that fails.
static int socket_bind(const union address *a, bool is_shared, const char **what)
{
    int one = 1;
    *what = "socket";
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    *what = "setsockopt";
    bool is_ok = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
                 setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0;
    if (is_shared) {
        is_ok = is_ok && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) == 0;
    }
    if (a->any.sa_family == AF_INET6) {
        is_ok = is_ok && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) == 0;
    }
    if (is_ok) {
        *what = "bind";
        is_ok = bind(fd, &a->any, address_len(a)) == 0;
    }
    if (!is_ok) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

enum err http_listen(const char *address, bool is_first, int *out_fd, u16 *bound_port)
{
    union address a;
    const char *what = "parse";
    if (!address_parse(address, &a)) {
        LOG_ERROR("listen_failed",
                  "address=\"%s\" reason=\"not an address and a port\" "
                  "hint=\"use 127.0.0.1:9000 or [::1]:9000\"",
                  address);
        return ERR_INVALID;
    }
    if (is_first && address_port(&a) != 0) {
        // SO_REUSEPORT would let us share the port with another server of the same user. A bind
        // (and listen, where the kernel looks again) without it fails if anybody has the port.
        int probe = socket_bind(&a, false, &what);
        if (probe < 0) {
            return listen_failed(address, what, errno);
        }
        int rc = listen(probe, 1);
        int saved = errno;
        close(probe);
        if (rc != 0) {
            return listen_failed(address, "listen", saved);
        }
    }
    int fd = socket_bind(&a, true, &what);
    if (fd < 0) {
        return listen_failed(address, what, errno);
    }
    socklen_t len = sizeof(a);
    if (listen(fd, LISTEN_BACKLOG) != 0 || getsockname(fd, &a.any, &len) != 0) {
        int saved = errno;
        close(fd);
        return listen_failed(address, "listen", saved);
    }
    *out_fd = fd;
    if (bound_port != NULL) {
        *bound_port = address_port(&a);
    }
    return OK;
}

void socket_prepare(int fd, char *peer, size_t cap)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_NONBLOCK) != 0) {
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
    union address a;
    socklen_t len = sizeof(a);
    char text[INET6_ADDRSTRLEN] = "unknown";
    if (getpeername(fd, &a.any, &len) != 0) {
        snprintf(peer, cap, "unknown");
        return;
    }
    bool is_v6 = a.any.sa_family == AF_INET6;
    const void *raw = is_v6 ? (const void *)&a.v6.sin6_addr : (const void *)&a.v4.sin_addr;
    (void)inet_ntop(a.any.sa_family, raw, text, sizeof(text));
    snprintf(peer, cap, is_v6 ? "[%s]:%u" : "%s:%u", text, address_port(&a));
}

void socket_shutdown_write(int fd)
{
    (void)shutdown(fd, SHUT_WR);
}

void socket_set_reset(int fd)
{
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

void socket_close(int fd)
{
    close(fd);
}
