/* lm/context_window.h: how many tokens a model can read at once. */
#ifndef DROSTE_LM_CONTEXT_WINDOW_H
#define DROSTE_LM_CONTEXT_WINDOW_H

#include <stdint.h>

enum { LM_WINDOW_DEFAULT = 128000 };

/* Tokens of "PROVIDER/MODEL" or "MODEL", by the beginning of the model's name; LM_WINDOW_DEFAULT for one
 * that is not known here. */
int64_t lm_window(const char *model);

#endif
