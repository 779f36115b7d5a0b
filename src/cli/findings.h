/* cli/findings.h: what the checks of `droste doctor` and `droste cluster doctor` have found, as a
 * table or as JSON. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "droste.h"

struct findings {
    bool json;
    struct buf out;
};

void findings_begin(struct findings *f, bool json);
/* `arg` is the findings. */
void findings_put(void *arg, const droste_finding *finding);
/* Prints them, and whether all works. */
void findings_print(struct findings *f, bool works, const char *in_words);
