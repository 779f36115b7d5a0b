/* tests/unit/store/stored_run.h: a record with one run, "a", in its first turn, for tests that
 * replay it. */
#pragma once

#include "fixture.h"

struct stored_run_file {
    struct place *place;
    struct store *store;
};

static inline int stored_run_make(struct stored_run_file *f)
{
    void *place;
    if (place_make(&place) < 0)
        return -1;
    f->place = place;
    f->store = open_store(f->place->file);
    begin_run(f->store, "a");
    assert_ok(store_turn_begin(f->store, "a", 1, err));
    return 0;
}

static inline int stored_run_remove(struct stored_run_file *f)
{
    void *place = f->place;
    store_close(f->store);
    return place_remove(&place);
}

/* Begins a call of the cell; returns its id. */
static inline int64_t stored_run_begin_call(
    const struct stored_run_file *f, int64_t cell, const char *model, const char *text)
{
    int64_t call = 0;
    droste_record_call begin = { .run = "a",
        .turn = 1,
        .cell = cell,
        .depth = 1,
        .kind = "sub",
        .model = model,
        .request = store_text(text),
        .key = "00112233445566778899aabbccddeeff" };
    assert_ok(store_call_begin(f->store, &begin, &call, err));
    return call;
}
