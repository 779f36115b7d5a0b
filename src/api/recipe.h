/* api/recipe.h: stored templates: how each is made, as JSON in the data directory.
 *
 * A recipe is data: settings, contexts to load, cells to execute. Whatever uses it executes it in a
 * sandbox (template_use.h). A damaged or hostile file is refused by the same checks as a new one.
 */
#pragma once

#include "api/settings.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/list.h"

struct recipe {
    struct json_object *json;
    struct json_object *settings, *contexts, *cells; /* its members; may be NULL */
    char digest[HASH_TEXT_SIZE];
};

/* Checks a text and parses it. `name` is for errors. ERROR_ARGUMENT. */
int recipe_parse(
    const char *name, const char *text, size_t len, struct recipe *out, struct error *err);
void recipe_free(struct recipe *r);
/* Builds the text of a recipe. `settings` is a JSON object. Relative paths of contexts become
 * absolute. */
int recipe_build(const char *settings, const struct list *contexts, const char *const *cells,
    struct buf *out, struct error *err);

/* ---- on disk; names as of volumes ---- */

/* ERROR_NOT_FOUND. If `text` is not NULL, it receives the text. */
int recipe_read(const char *name, struct recipe *out, struct buf *text, struct error *err);
/* ERROR_ARGUMENT if it exists, unless `replace`. */
int recipe_check_free(const char *name, bool replace, struct error *err);
/* The same, and stores it. */
int recipe_write(const char *name, const struct buf *text, bool replace, struct error *err);
int recipe_remove(const char *name, struct error *err);
/* In order. */
int recipe_names(struct list *names, struct error *err);

/* ---- its settings ---- */

/* Gives a session that starts from it those of its settings that the session's do not set. */
int recipe_apply(const struct recipe *r, struct settings *s, struct error *err);
/* Turns the settings of such a session into those of the session that executes the recipe: without
 * models, tools of the host, volumes and limits of time. */
int recipe_prepare(const struct recipe *r, struct settings *s, struct error *err);
