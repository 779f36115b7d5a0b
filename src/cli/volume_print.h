/* cli/volume_print.h: prints volumes and their files, as text or JSON. File names are not
 * trusted. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "droste.h"

enum volume_style { STYLE_LONG, STYLE_TREE, STYLE_JSON };

/* Lists a path of the volume, `depth` levels deep, on standard output: at most `most` entries, with
 * a note if there are more. */
int volume_print_list(droste_volume *v, const char *path, unsigned depth, size_t most,
    enum volume_style style, struct error *err);
/* The same piece by piece, of entries that another place has given. */
void volume_print_begin(struct buf *out, const char *volume, enum volume_style style);
void volume_print_put(struct buf *out, const droste_volume_entry *e, enum volume_style style);
void volume_print_end(struct buf *out, bool more, size_t most, enum volume_style style);
/* One volume; as JSON, the members of an object. */
void volume_print_put_usage(struct buf *out, const char *name, const char *path,
    const droste_volume_usage *used, bool json);
/* All volumes of this machine, with their sizes. */
int volume_print_all(droste *d, bool json, struct error *err);
int volume_print_snapshots(const droste_volume *v, bool json, struct error *err);
/* Its usage and limits. */
int volume_print_usage(const droste_volume *v, bool json, struct error *err);
/* "put 3 files, 1234 bytes; omitted: 1 links, FIFOs, sockets or devices" */
void volume_print_count(const char *did, const droste_volume_count *count, bool json);
