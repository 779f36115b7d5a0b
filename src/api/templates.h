/* api/templates.h: the templates of a droste object. */
#ifndef DROSTE_API_TEMPLATES_H
#define DROSTE_API_TEMPLATES_H

#include "api/api.h"
#include "session/template.h"

struct droste_template {
    droste *d;
    struct droste_template *next;
    struct template *image; /* NULL: it is not made yet */
};

/* A template without an image. */
int api_template_new(droste *d, droste_template **out, struct error *err);

#endif
