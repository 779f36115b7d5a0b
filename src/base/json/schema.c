/* base/json/schema.c: a parsed schema: references to it, and the places in it. */
#include "base/json/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"
#include "base/json/schema_internal.h"

const char *schema_text(const struct schema *s)
{
    return json_text(s->root, NULL);
}

const char *const *schema_names(const struct schema *s, size_t *count)
{
    *count = s->name_count;
    return s->names;
}

struct schema *schema_hold(struct schema *s)
{
    if (s)
        s->holders++;
    return s;
}

void schema_drop(struct schema *s)
{
    if (!s || --s->holders > 0)
        return;
    for (size_t i = 0; i < s->pattern_count; i++)
        pattern_free(s->patterns[i].pattern);
    free(s->patterns);
    free(s->names);
    free(s->seen);
    json_object_put(s->root);
    free(s);
}

/* ---- places in it ---- */

const struct pattern *schema_pattern(const struct schema *s, const void *key)
{
    for (size_t i = 0; i < s->pattern_count; i++)
        if (s->patterns[i].key == key)
            return s->patterns[i].pattern;
    return NULL;
}

/* Takes one part of a JSON pointer (RFC 6901) in a URI fragment from *at. */
static void schema_take_part(const char **at, struct buf *out)
{
    buf_clear(out);
    for (++*at; **at && **at != '/'; ++*at) {
        const char *p = *at;
        char hex[3] = { 0 };
        if (*p == '~' && (p[1] == '0' || p[1] == '1')) {
            buf_putc(out, p[1] == '0' ? '~' : '/');
            ++*at;
        } else if (*p == '%' && p[1] && p[2]) {
            memcpy(hex, p + 1, 2);
            buf_putc(out, (char)strtol(hex, NULL, 16));
            *at += 2;
        } else {
            buf_putc(out, *p);
        }
    }
}

static struct json_object *schema_child(struct json_object *o, const char *key)
{
    struct json_object *child = NULL;
    if (json_object_is_type(o, json_type_object))
        json_object_object_get_ex(o, key, &child);
    else if (json_object_is_type(o, json_type_array) && key[0] >= '0' && key[0] <= '9')
        child = json_object_array_get_idx(o, strtoul(key, NULL, 10));
    return child;
}

struct json_object *schema_resolve(const struct schema *s, const char *ref)
{
    cleanup_buf struct buf part = { 0 };
    struct json_object *at = s->root;
    const char *p = ref + 1;
    while (at && *p == '/') {
        schema_take_part(&p, &part);
        at = schema_child(at, buf_text(&part));
    }
    return *p == '\0' ? at : NULL;
}
