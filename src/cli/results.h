/* cli/results.h: rich results of cells as files. */
#ifndef DROSTE_CLI_RESULTS_H
#define DROSTE_CLI_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "droste.h"

/* Writes each form of each rich result to a file of its own in the directory, which is created:
 * 1.png, 1.html, 2.txt…, numbered by result. Returns EXIT_FINE, or prints why not and returns the
 * exit status. */
int cli_save_results(const droste_result *r, const char *dir);
/* The same for the cells of a recorded run: 1.2.3.png is of turn 1, its second cell, and the third
 * result of that cell. Negative with *err. */
int cli_save_recorded(droste_record *record, const char *run, const char *dir, droste_error *err);

/* Where the images of a prompt's cells go: a directory of its own, made with the first of them. */
struct image_files {
    char *directory; /* NULL: none yet; the owner frees it */
    size_t count;    /* images so far */
};
/* Saves the images of a cell and prints the name of each on a line of its own. Prints why not, and
 * returns false, after a failure. */
bool cli_save_images(struct image_files *files, const droste_result *r);

#endif
