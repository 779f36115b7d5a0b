/* api/template_use.c: the setting `template`: what sessions and runs take from a stored template.
 */
#include <string.h>

#include "api/packages.h"
#include "api/recipe.h"
#include "api/templates.h"

/* The setting is NAME, or in the record NAME@DIGEST. */
static int template_use_read(
    const char *setting, struct recipe *out, struct buf *name, struct error *err)
{
    size_t len = strcspn(setting, "@");
    buf_append(name, setting, len);
    if (buf_failed(name))
        return error_memory(err);
    int rc = recipe_read(buf_text(name), out, NULL, err);
    if (rc < 0 || !setting[len] || strcmp(setting + len + 1, out->digest) == 0)
        return rc;
    recipe_free(out);
    return error_set(err, ERROR_ARGUMENT,
        "the template '%.64s' is not the one that the run was started with: it was changed since",
        buf_text(name));
}

int api_template_settings(struct settings *s, struct error *err)
{
    cleanup_buf struct buf name = { 0 };
    struct recipe r = { 0 };
    int rc = s->template ? template_use_read(s->template, &r, &name, err) : 0;
    if (rc == 0 && s->template)
        rc = recipe_apply(&r, s, err);
    recipe_free(&r);
    return rc;
}

int api_template_saved(const struct settings *s, struct buf *out, struct error *err)
{
    cleanup_buf struct buf name = { 0 };
    struct recipe r = { 0 };
    int rc = s->template ? template_use_read(s->template, &r, &name, err) : 0;
    if (rc == 0 && s->template)
        buf_printf(out, "%s@%s", buf_text(&name), r.digest);
    recipe_free(&r);
    return rc == 0 && buf_failed(out) ? error_memory(err) : rc;
}

static droste_template *template_use_find(droste *d, const char *name)
{
    droste_template *t = d->templates;
    while (t && (!t->name || strcmp(t->name, name) != 0))
        t = t->next;
    return t;
}

/* Executes the recipe, which opens a session: the function comes from above (template_store.c). */
static int template_use_make(droste *d, const char *name, const struct recipe *r,
    const struct settings *s, droste_template **out, struct error *err)
{
    if (d->waits)
        return error_set(err, ERROR_ARGUMENT,
            "the template '%.64s' is not made yet, and cannot be made within a callback; call "
            "droste_template_make before",
            name);
    int rc = d->make_template(d, name, r, s, out, err);
    if (rc < 0)
        return rc;
    (*out)->name = strdup(name);
    if ((*out)->name)
        return 0;
    droste_template_free(*out);
    return error_memory(err);
}

int api_template_image(droste *d, const struct settings *s, const struct package_set *set,
    struct template **out, struct error *err)
{
    cleanup_buf struct buf name = { 0 };
    struct recipe r = { 0 };
    *out = NULL;
    if (!s->template)
        return api_packages_image(d, s, set, out, err);
    if (s->volume_name || s->repo_url || s->context_path.count > 0)
        return error_set(err, ERROR_ARGUMENT,
            "a session that starts from a template cannot have a volume or a workspace: leave out "
            "volume-name, repo-url and context-path, or the template");
    buf_append(&name, s->template, strcspn(s->template, "@"));
    droste_template *t = buf_failed(&name) ? NULL : template_use_find(d, buf_text(&name));
    buf_clear(&name);
    int rc = t ? 0 : template_use_read(s->template, &r, &name, err);
    if (rc == 0 && !t)
        rc = template_use_make(d, buf_text(&name), &r, s, &t, err);
    recipe_free(&r);
    if (rc == 0)
        *out = template_hold(t->image);
    return rc;
}
