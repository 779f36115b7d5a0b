/* lm/sampling.h: how a model is to choose its words, as settings have it: "NAME=VALUE".
 *
 * The names are OpenAI's. A value is JSON, or a text as it stands. What a provider does not have is an
 * error that names it, when the model is opened: no parameter is dropped silently.
 */
#ifndef DROSTE_LM_SAMPLING_H
#define DROSTE_LM_SAMPLING_H

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"

enum sampling_names { SAMPLING_OPENAI, SAMPLING_ANTHROPIC, SAMPLING_GEMINI };

/* What requests of a model have beside their messages. */
struct sampling {
    double temperature; /* negative: the provider's default */
    struct buf members; /* JSON: each with a comma before it; "" where there is none */
};

/* Fills *out, which is to be freed after an error, too. ERROR_CONFIG: a parameter that `title` (a
 * provider's, for the message) does not have, that another setting is for, or whose value is broken. */
int sampling_parse(const struct list *given, enum sampling_names names, const char *title,
    struct sampling *out, struct error *err);
void sampling_free(struct sampling *s);

#endif
