/* serve/http/listen.c: see listen.h. */
#include "serve/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"

enum { LISTEN_BACKLOG = 4096 };
/* What a connection may have in the kernel that has not been sent yet. Without it, a client that
 * does not read costs the whole send buffer, 4 MiB; what is on its way is not counted, so that a
 * long way is used as before. */
enum { LISTEN_UNSENT_MAX = 128 << 10 };

static const char *listen_path(const char *where)
{
    return strncmp(where, "unix:", 5) == 0 ? where + 5 : NULL;
}

socklen_t listen_parse(const char *where, struct sockaddr_storage *out)
{
    char host[INET6_ADDRSTRLEN + 1];
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
    const char *colon = strrchr(where, ':');
    bool bracketed = where[0] == '[' && colon && colon > where && colon[-1] == ']';
    const char *from = where + bracketed, *to = colon ? colon - bracketed : NULL;
    char *end = NULL;
    if (!colon || to < from || (size_t)(to - from) >= sizeof host || colon[1] < '0' ||
        colon[1] > '9')
        return 0;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end || port > 65535)
        return 0;
    memcpy(host, from, (size_t)(to - from));
    host[to - from] = '\0';
    memset(out, 0, sizeof *out);
    if (bracketed && inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        return sizeof *six;
    }
    if (!bracketed && inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        return sizeof *four;
    }
    return 0;
}

static bool listen_is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

/* The connections that a socket accepts inherit it. A unix socket's buffer is small anyway. */
static void listen_bound_unsent(int fd)
{
    int most = LISTEN_UNSENT_MAX;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
}

static int listen_bind(const char *where, const void *address, socklen_t len, struct error *err)
{
    const struct sockaddr *any = address;
    int on = 1;
    cleanup_fd int fd = socket(any->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "opening a socket for %s", where);
    if (any->sa_family != AF_UNIX) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        listen_bound_unsent(fd);
    }
    if (bind(fd, any, len) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
        return error_set_errno(
            err, ERROR_IO, "listening on %s: is another server running there?", where);
    return steal_fd(&fd);
}

static int listen_unix(const char *where, const char *path, struct error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct stat st;
    if (!*path || strlen(path) >= sizeof address.sun_path)
        return error_set(
            err, ERROR_ARGUMENT, "the socket's path must have 1 to 107 bytes: %s", path);
    strcpy(address.sun_path, path);
    /* A killed server leaves its file, which refuses connections. */
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe >= 0 && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        connect(probe, (struct sockaddr *)&address, sizeof address) < 0 && errno == ECONNREFUSED)
        unlink(path);
    close_fd(&probe);
    mode_t mask = umask(0177);
    int fd = listen_bind(where, &address, sizeof address, err);
    umask(mask);
    return fd;
}

static int listen_may(
    const char *where, bool has_keys, const struct sockaddr_storage *address, struct error *err)
{
    if (has_keys || listen_is_loopback(address))
        return 0;
    return error_set(err, ERROR_ARGUMENT,
        "%s is not a loopback address, and without keys anyone who reaches it could run code "
        "here: create one with 'droste keys create', or use 127.0.0.1:PORT or unix:PATH",
        where);
}

static socklen_t listen_parse_or_fail(
    const char *where, struct sockaddr_storage *address, struct error *err)
{
    socklen_t len = listen_parse(where, address);
    if (len == 0)
        error_set(err, ERROR_ARGUMENT,
            "'%s' is not an address to listen on: expected 127.0.0.1:PORT, [::1]:PORT or unix:PATH",
            where);
    return len;
}

int listen_check(const char *where, bool has_keys, struct error *err)
{
    struct sockaddr_storage address;
    if (listen_path(where))
        return 0;
    if (listen_parse_or_fail(where, &address, err) == 0)
        return -ERROR_ARGUMENT;
    return listen_may(where, has_keys, &address, err);
}

/* ---- a socket from a manager ---- */

enum { LISTEN_FIRST_FD = 3 };

static bool listen_is_given(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    return pid && count && strtol(pid, NULL, 10) == getpid() && strcmp(count, "0") != 0;
}

static int listen_take(bool has_keys, struct listener *out, struct error *err)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address, size = sizeof(int);
    int listens = 0, fd = LISTEN_FIRST_FD;
    bool is_one = strcmp(getenv("LISTEN_FDS"), "1") == 0;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    if (!is_one || getsockname(fd, (struct sockaddr *)&address, &len) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || !listens)
        return error_set(err, ERROR_CONFIG,
            "LISTEN_FDS: expected one listening socket, as Accept=no in a .socket unit gives");
    out->is_file = address.ss_family == AF_UNIX;
    out->is_inherited = true;
    if (!out->is_file && listen_may("the manager's socket", has_keys, &address, err) < 0)
        return -ERROR_ARGUMENT;
    if (!out->is_file)
        listen_bound_unsent(fd);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    out->fd = fd;
    return 0;
}

int listen_open(const char *where, bool has_keys, struct listener *out, struct error *err)
{
    const char *path = listen_path(where);
    struct sockaddr_storage address;
    *out = (struct listener){ .fd = -1, .is_file = path != NULL };
    if (listen_is_given())
        return listen_take(has_keys, out, err);
    if (path) {
        out->fd = listen_unix(where, path, err);
        return out->fd < 0 ? -1 : 0;
    }
    socklen_t len = listen_parse_or_fail(where, &address, err);
    if (len == 0 || listen_may(where, has_keys, &address, err) < 0)
        return -ERROR_ARGUMENT;
    out->fd = listen_bind(where, &address, len, err);
    return out->fd < 0 ? -1 : 0;
}

int listen_address(int fd, bool is_tls, char **out, struct error *err)
{
    struct sockaddr_storage address = { 0 };
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN] = "";
    const char *scheme = is_tls ? "https" : "http";
    if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        return error_set_errno(err, ERROR_IO, "reading the socket's address");
    bool six = address.ss_family == AF_INET6;
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)&address;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)&address;
    if (address.ss_family == AF_UNIX) {
        *out = text_printf("unix:%s", ((const struct sockaddr_un *)&address)->sun_path);
        return *out ? 0 : error_memory(err);
    }
    inet_ntop(address.ss_family, six ? (const void *)&a6->sin6_addr : (const void *)&a4->sin_addr,
        host, sizeof host);
    *out = text_printf(six ? "%s://[%s]:%u" : "%s://%s:%u", scheme, host,
        (unsigned)ntohs(six ? a6->sin6_port : a4->sin_port));
    return *out ? 0 : error_memory(err);
}

bool listen_is_file(int fd)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &len) == 0 && address.ss_family == AF_UNIX;
}

void listen_remove(const struct listener *l, const char *where)
{
    const char *path = listen_path(where);
    if (path && !l->is_inherited)
        unlink(path);
}
