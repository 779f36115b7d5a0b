/* lm/sampling.h: sampling parameters of a model, from settings: "NAME=VALUE".
 *
 * The names are OpenAI's. A value is JSON or plain text. Opening a model fails if its provider
 * lacks a parameter: none is dropped silently.
 */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"

enum sampling_names { SAMPLING_OPENAI, SAMPLING_ANTHROPIC, SAMPLING_GEMINI };

/* What requests of a model contain besides their messages. */
struct sampling {
    double temperature; /* negative: the provider's default */
    struct buf members; /* JSON members, each after a comma; "" if none */
};

/* Fills *out, which must be freed even after an error. ERROR_CONFIG: `title` (a provider, for
 * the message) lacks the parameter, another setting controls it, or its value is invalid. */
int sampling_parse(const struct list *options, enum sampling_names names, const char *title,
    struct sampling *out, struct error *err);
void sampling_free(struct sampling *s);
