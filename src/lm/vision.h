/* lm/vision.h: which models read images. */
#pragma once

#include <stdbool.h>

/* Whether "PROVIDER/MODEL" or "MODEL" is known to read images, by the prefix of its name. */
bool lm_sees_images(const char *model);
