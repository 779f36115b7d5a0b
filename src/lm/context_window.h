/* lm/context_window.h: the sizes of models' context windows. */
#pragma once

#include <stdint.h>

enum { LM_WINDOW_DEFAULT = 128000 };

/* Tokens of "PROVIDER/MODEL" or "MODEL", by the prefix of the model's name; LM_WINDOW_DEFAULT
 * for unknown models. */
int64_t lm_window(const char *model);
