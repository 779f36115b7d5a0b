/* cli/record/steps.h: what the record has of a run, as JSON objects: `runs ls|show --json`, the lines of
 * `runs export`, and the data of its page. docs/record.md describes the members.
 */
#ifndef DROSTE_CLI_RECORD_STEPS_H
#define DROSTE_CLI_RECORD_STEPS_H

#include <stdio.h>

#include "droste.h"
#include "base/buf.h"

/* Values of any size go through it in pieces. Zeroed but for the first four. */
struct steps_out {
    droste_record *record;
    FILE *file;         /* NULL: everything stays in `text` */
    bool in_page;       /* nothing in it is to end a <script> */
    size_t most;        /* of a value, so many bytes; 0: all */
    struct buf text;    /* what was not written yet */
    struct buf cut;     /* members of the object at hand that were cut, with their sizes */
    struct buf as_text; /* members that are JSON, given as its text */
    int64_t written;
    droste_error error; /* the first failure */
};

/* A text of the record as a value. */
droste_value steps_text_value(const char *text);
/* For droste_record_read: the pieces go into the struct buf that `arg` is. */
int steps_append_piece(void *arg, const char *data, size_t len);

/* Each adds members to an object that is open. What has not ended has null for what its end says. */
void steps_run_begin(struct steps_out *o, const droste_record_run *run);
void steps_run_end(struct steps_out *o, const droste_record_run *run);
void steps_turn(struct steps_out *o, const droste_record_turn *turn);
void steps_call(struct steps_out *o, const droste_record_call *call);
void steps_cell(struct steps_out *o, const droste_record_cell *cell);

/* What there is to say of the members so far: `cut` and `as_text`, where they apply. */
void steps_notes(struct steps_out *o);
/* That, and the end of the object that the members are in. */
void steps_close(struct steps_out *o);
/* Writes what is left, and says what failed so far. */
int steps_flush(struct steps_out *o, droste_error *err);
void steps_free(struct steps_out *o);
#define cleanup_steps __attribute__((cleanup(steps_free)))

#endif
