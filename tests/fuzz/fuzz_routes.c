/* The paths of requests: byte 0 chooses the method; the rest is a path as libmicrohttpd gives it,
 * decoded. A path has a route if its words are those of the route's pattern and no other, and what
 * is taken from it fits where it is kept.
 */
#include "fuzz.h"

#include "base/cleanup.h"
#include "serve/e2b/e2b.h"

/* The words of a path, with its parameters in place: what the pattern says. */
static void expect_path(const struct route *route, const struct request *r, const char *path)
{
    char built[4096];
    size_t len = 0;
    for (const char *p = route->path; *p; p++) {
        const char *part = NULL;
        if (strcmp(p, "{rest}") == 0) { /* whatever follows, which the route takes by itself */
            expect(strncmp(built, path, len) == 0);
            return;
        }
        if (strncmp(p, "{id}", 4) == 0)
            part = r->id;
        else if (*p == '{')
            part = r->name;
        if (!part) {
            built[len++] = *p;
            continue;
        }
        expect(part[0] && (!strchr(part, '/') || strcmp(p, "{path}") == 0));
        len += (size_t)snprintf(built + len, 256, "%s", part);
        p = strchr(p, '}');
    }
    built[len] = '\0';
    expect(strcmp(built, path) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const methods[] = { "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD" };
    struct input in = { data, size };
    struct server server = { 0 };
    struct request r = { .server = &server };
    const char *allowed = NULL;
    size_t len;
    const char *method = methods[input_byte(&in) % array_length(methods)];
    char *path = input_piece(&in, 8192, &len);
    char *own = calloc(1, strnlen(path, len) + 1); /* of just that size */
    expect(own);
    memcpy(own, path, strnlen(path, len));
    bool found = route_find(&r, method, own, &allowed);
    expect(memchr(r.id, '\0', sizeof r.id) && memchr(r.name, '\0', sizeof r.name));
    bool is_head = strcmp(method, "HEAD") == 0; /* for some routes of GET */
    expect(
        !found || (r.route && allowed && strcmp(r.route->method, is_head ? "GET" : method) == 0));
    if (found)
        expect_path(r.route, &r, own);
    else
        expect(!allowed || strcmp(allowed, method) != 0);
    free(own);
    free(path);
    return 0;
}
