/* cli/transfer.h: files of the user's to and from a sandbox. */
#pragma once

#include "base/list.h"
#include "droste.h"

struct transfer {
    struct list puts;     /* LOCAL:PATH */
    struct list gets;     /* PATH:LOCAL */
    struct list patterns; /* of artifacts */
    const char *dir;      /* for them; NULL: "artifacts" */
};

/* Before the code: sends files. Negative with *err. */
int transfer_put(const struct transfer *t, droste_session *s, droste_error *err);
/* After the code: fetches files, and saves artifacts, whose names it prints on standard error.
 * Returns EXIT_FINE, or prints what failed and returns the exit status. */
int transfer_get(const struct transfer *t, droste_session *s);
void transfer_free(struct transfer *t);
