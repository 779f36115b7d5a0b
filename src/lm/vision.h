/* lm/vision.h: which models read images. */
#ifndef DROSTE_LM_VISION_H
#define DROSTE_LM_VISION_H

#include <stdbool.h>

/* Whether "PROVIDER/MODEL" or "MODEL" is known to read images, by the prefix of its name. */
bool lm_sees_images(const char *model);

#endif
