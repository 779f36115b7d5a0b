/* cli/results.h: rich results of cells as files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "droste.h"

struct result_file {
    size_t bundle;
    char *path;
};

/* The files of a cell's results. */
struct result_files {
    const char *dir; /* is created */
    struct result_file *items;
    size_t count;
    size_t next; /* the first result without files */
    bool failed; /* and was reported */
};

/* A droste_display_fn: writes each form of a rich result to a file of its own, 1.png, 1.html,
 * 2.txt…, numbered by result; an update replaces them, clear_output() removes all. */
void cli_save_shown(void *arg, const droste_bundles *results, size_t result);
/* Writes those that remain at the end of the cell. Returns EXIT_FINE, or prints why not and returns
 * the exit status. */
int cli_save_results(struct result_files *files, const droste_result *r);
void cli_save_end(struct result_files *files);
/* The same for the cells of a recorded run: 1.2.3.png is the third result of the
 * second cell of turn 1. Negative with *err. */
int cli_save_recorded(droste_record *record, const char *run, const char *dir, droste_error *err);

/* Where the images of a prompt's cells go: a directory of its own, made with the first of them. */
struct image_files {
    char *directory; /* NULL: none yet; the owner frees it */
    size_t count;    /* images so far */
};
bool cli_has_image(const droste_bundles *bundles, size_t bundle);
/* Saves the image of a result, if it has one, and prints its name on a line of its own; or prints
 * why not. */
void cli_save_image(struct image_files *files, const droste_bundles *bundles, size_t bundle);
