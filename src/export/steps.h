/* export/steps.h: writes the steps of a recorded run as JSON objects, for `runs ls --json`,
 * `runs show --json`, `runs export` and its page. docs/record.md describes the members.
 */
#pragma once

#include <stdio.h>

#include "droste.h"
#include "base/buf.h"

/* Writes values of any size in pieces. Set the first four members, zero the others. */
struct steps_out {
    droste_record *record;
    FILE *file;         /* NULL: everything stays in `text` */
    bool in_page;       /* inside <script>: escapes every '<' */
    size_t most;        /* maximum bytes of a value; 0: no limit */
    struct buf text;    /* not written yet */
    struct buf cut;     /* members of the current object that were cut, with their sizes */
    struct buf as_text; /* members that are JSON, written as strings */
    int64_t written;
    droste_error error; /* the first failure */
};

/* A text of the record, as a value. */
droste_value steps_text_value(const char *text);
/* For droste_record_read: appends the piece to `arg`, a struct buf. */
int steps_append_piece(void *arg, const char *data, size_t len);

/* Each adds members to the open object. Members that the end of a step sets are null until then. */
void steps_run_begin(struct steps_out *o, const droste_record_run *run);
void steps_run_end(struct steps_out *o, const droste_record_run *run);
void steps_turn(struct steps_out *o, const droste_record_turn *turn);
void steps_call(struct steps_out *o, const droste_record_call *call);
void steps_cell(struct steps_out *o, const droste_record_cell *cell);

/* Adds `cut` and `as_text` to the object, if it has such members. */
void steps_notes(struct steps_out *o);
/* The same, and closes the object. */
void steps_close(struct steps_out *o);
/* Writes the rest; returns the first error so far. */
int steps_flush(struct steps_out *o, droste_error *err);
void steps_free(struct steps_out *o);
#define cleanup_steps __attribute__((cleanup(steps_free)))
