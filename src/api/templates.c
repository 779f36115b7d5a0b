/* api/templates.c: see templates.h. */
#include "api/templates.h"

#include <stdlib.h>

int api_template_new(droste *d, droste_template **out, struct error *err)
{
    droste_template *t = calloc(1, sizeof *t);
    if (!t)
        return error_memory(err);
    t->d = d;
    t->next = d->templates;
    d->templates = t;
    *out = t;
    return 0;
}

void droste_template_free(droste_template *t)
{
    if (!t)
        return;
    for (droste_template **at = &t->d->templates; *at; at = &(*at)->next) {
        if (*at != t)
            continue;
        *at = t->next;
        break;
    }
    template_drop(t->image);
    free(t->name);
    free(t);
}
