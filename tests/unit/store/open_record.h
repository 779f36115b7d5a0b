/* tests/unit/store/open_record.h: an empty record, open for writing and for reading. */
#pragma once

#include "droste.h"
#include "fixture.h"

static struct store *store;
static droste *d;
static droste_record *record;

static int record_begin(void **state)
{
    if (place_make(state) < 0)
        return -1;
    const char *file = ((struct place *)*state)->file;
    store = open_store(file);
    if (droste_new(&d, NULL) < 0)
        return -1;
    return droste_set(d, "database", file, NULL) < 0 ? -1 : droste_record_open(d, &record, NULL);
}

static int record_end(void **state)
{
    droste_record_close(record);
    droste_free(d);
    store_close(store);
    return place_remove(state);
}
