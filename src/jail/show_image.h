/* jail/show_image.h: shows the files of an image in place of the host's. */
#pragma once

#include "jail/builder.h"
#include "jail/jail.h"

/* Binds everything in host->image below /new. ERROR_IO if it cannot be listed, ERROR_UNSUPPORTED if
 * that takes too many mounts. */
int show_image(struct builder *b, const struct jail_host *host, struct error *err);
/* Lets its files be read. */
void show_image_rules(struct builder *b);
