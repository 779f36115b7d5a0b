/* cli/artifacts.h: files that recorded runs have saved, and other values of records as files. */
#pragma once

#include "droste.h"

/* Writes the artifacts of a recorded run below a directory. */
int cli_save_artifacts(droste_record *record, const char *run, const char *dir, droste_error *err);
/* Writes one of them, or those below a directory of the sandbox ("": all), to `target`. */
int cli_copy_artifacts(droste_record *record, const char *run, const char *path, const char *target,
    droste_volume_count *count, droste_error *err);

/* Writes a value of a record to a descriptor; `path` is for the message of an error. */
int cli_write_recorded(
    droste_record *record, const droste_value *value, int fd, const char *path, droste_error *err);
