/* api/packages.h: the packages that settings ask for, which sessions get as a read-only directory.
 */
#pragma once

#include "api/settings.h"
#include "base/buf.h"
#include "droste.h"
#include "packages/cache.h"
#include "packages/request.h"
#include "session/session.h"

struct template;

/* A set to build. */
struct package_job {
    droste *d;
    const struct settings *settings;
    const char *executable; /* the interpreter */
    const char *facts;      /* about it */
    const char *key;        /* of the request */
    const struct package_request *request;
    struct package_cache *cache; /* locked */
    int interrupt;               /* readable: it ends soon */
    bool beside;                 /* in a thread: the droste itself is not touched */
};

/* Whether the settings ask for packages. */
bool api_packages_are_wanted(const struct settings *s);
/* Their set, built if there is none yet, which blocks. It belongs to the droste. `again`: resolves
 * them once more. */
int api_packages_set(droste *d, const struct settings *s, bool again,
    const struct package_set **out, struct error *err);
/* The same for a request in a thread beside the loop, which `interrupt` ends; the caller drops the
 * set, or gives it to the droste. */
struct package_wish {
    droste *d;
    const struct settings *settings;
    const struct package_request *request;
    int interrupt;
};
int api_packages_resolve(const struct package_wish *wish, char key[HASH_TEXT_SIZE],
    struct package_set **out, struct error *err);
/* Takes a set that sessions use. */
int api_packages_add(droste *d, const char *key, struct package_set *set, struct error *err);
/* Makes the directory in which sessions see what they install (packages/shown.h), once for each
 * droste. Refuses settings that contradict that. */
int api_packages_show(droste *d, const struct settings *s, struct error *err);
/* Shows a session the set, if the settings ask for one, besides the paths in `shown`, and lets it
 * import what is preloaded: modules of packages are foreign code, so the zygote, which has no
 * sandbox, must not. */
int api_packages_use(droste *d, const struct settings *s, struct list *shown,
    const struct package_set **set, struct session_options *o, struct error *err);
/* The image of a session that has imported what is preloaded, in a sandbox, which the caller drops;
 * *out is NULL where sessions must import it themselves. Made with the first session. `set` is that
 * of the settings; NULL: to be resolved. */
int api_packages_image(droste *d, const struct settings *s, const struct package_set *set,
    struct template **out, struct error *err);
/* A session could not continue from it. False: it is none of api_packages_image. */
bool api_packages_forget_image(droste *d, const struct template *image);
void api_packages_free(droste *d);

/* Whether the descriptor `interrupt` of a job, or of the droste that runs no loop, is readable. */
bool api_packages_cancelled(void *interrupt);
/* The output of a program of the given interpreter, outside of any sandbox. */
int api_packages_ask(const char *executable, const char *code, const char *argument,
    struct buf *out, struct error *err);
