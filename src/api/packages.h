/* api/packages.h: the packages that settings ask for, which sessions get as a read-only directory.
 */
#ifndef DROSTE_API_PACKAGES_H
#define DROSTE_API_PACKAGES_H

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
};

/* Whether the settings ask for packages. */
bool api_packages_are_wanted(const struct settings *s);
/* Their set, built if there is none yet, which blocks. It belongs to the droste. `again`: resolves
 * them once more. */
int api_packages_set(droste *d, const struct settings *s, bool again,
    const struct package_set **out, struct error *err);
/* Shows a session the set, besides the paths in `shown`, and lets it import what is preloaded:
 * modules of packages are foreign code, so the zygote, which has no sandbox, must not. */
int api_packages_use(droste *d, const struct settings *s, struct list *shown,
    struct session_options *o, struct error *err);
/* The image of a session that has imported what is preloaded, in a sandbox, which the caller drops;
 * *out is NULL where sessions must import it themselves. Made with the first session. */
int api_packages_image(
    droste *d, const struct settings *s, struct template **out, struct error *err);
/* A session could not continue from it. False: it is none of api_packages_image. */
bool api_packages_forget_image(droste *d, const struct template *image);
void api_packages_free(droste *d);

/* Whether the user has interrupted the droste, which runs no loop meanwhile. */
bool api_packages_cancelled(void *d);
/* The output of a program of the given interpreter, outside of any sandbox. */
int api_packages_ask(const char *executable, const char *code, const char *argument,
    struct buf *out, struct error *err);

#endif
