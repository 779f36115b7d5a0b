/* cli/volume_print.h: what is in volumes, for people and as JSON. Names in them are strangers'. */
#ifndef DROSTE_CLI_VOLUME_PRINT_H
#define DROSTE_CLI_VOLUME_PRINT_H

#include <stdbool.h>

#include "base/error.h"
#include "droste.h"

enum volume_style { STYLE_LONG, STYLE_TREE, STYLE_JSON };

/* Lists a path of the volume, `depth` levels of it, on standard output; at most `most` entries, and says
 * if there are more. */
int volume_print_list(droste_volume *v, const char *path, unsigned depth, size_t most,
    enum volume_style style, struct error *err);
/* All volumes of this machine, with their sizes. */
int volume_print_all(droste *d, bool json, struct error *err);
int volume_print_snapshots(const droste_volume *v, bool json, struct error *err);
/* What it holds, and may hold. */
int volume_print_usage(const droste_volume *v, bool json, struct error *err);
/* "put 3 files, 1234 bytes in all; 1 link, FIFO, socket or device left out" */
void volume_print_count(const char *did, const droste_volume_count *count, bool json);

#endif
