/* api/templates.h: the templates of a droste object. */
#pragma once

#include "api/api.h"
#include "session/template.h"

struct droste_template {
    droste *d;
    struct droste_template *next;
    struct template *image; /* NULL: it is not made yet */
    char *name;             /* of a stored one; NULL: it was made of a session */
};

/* A template without an image. */
int api_template_new(droste *d, droste_template **out, struct error *err);

/* ---- stored ones, which the setting `template` names; template_use.c ---- */

/* Adds the settings of the stored template that `s` names, if it names one. */
int api_template_settings(struct settings *s, struct error *err);
/* Its image, which the caller drops; *out is NULL if the settings name none. Executes the recipe
 * when the first session or run of the droste needs it, and waits for that; ERROR_ARGUMENT within
 * callbacks, which may not wait. `set`: as for api_packages_image. */
int api_template_image(droste *d, const struct settings *s, const struct package_set *set,
    struct template **out, struct error *err);
/* The setting as the record keeps it, with the digest of the recipe; appends nothing for none. */
int api_template_saved(const struct settings *s, struct buf *out, struct error *err);
