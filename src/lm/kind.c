/* lm/kind.c: see kind.h. */
#include "lm/kind.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/suggest.h"
#include "lm/provider.h"

static const struct lm_kind kinds[] = {
    { "replay", &lm_replay, false },
    { "exec", &lm_program, false },
    { "callback", &lm_callback, true },
};

const struct lm_kind *kind_find(const char *model)
{
    for (size_t i = 0; i < array_length(kinds); i++) {
        size_t n = strlen(kinds[i].scheme);
        if (strncmp(model, kinds[i].scheme, n) == 0 &&
            (model[n] == ':' || (kinds[i].alone && model[n] == '\0')))
            return &kinds[i];
    }
    return NULL;
}

int kind_check_scheme(const struct lm_options *options, struct error *err)
{
    const char *model = options->model, *base_url = options->openai.base_url, *name;
    size_t len = strcspn(model, ":/");
    struct suggestion s = { .typed = model, .len = len };
    const char *mark = ":";
    if (model[len] != ':' || (base_url && base_url[0]))
        return 0;
    for (size_t i = 0; i < array_length(kinds); i++)
        suggestion_consider(&s, kinds[i].scheme);
    const char *scheme = suggestion_best(&s);
    for (size_t i = 0; (name = provider_name_at(i)); i++)
        suggestion_consider(&s, name);
    const char *best = suggestion_best(&s);
    if (best != scheme)
        mark = "/";
    return best ? error_set(err, ERROR_CONFIG,
                      "no name of a model begins with '%.*s:'; did you "
                      "mean %s%s?",
                      (int)len, model, best, mark)
                : 0;
}
