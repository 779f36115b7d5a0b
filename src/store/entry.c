/* store/entry.c: see entry.h. */
#include "store/entry.h"

#include <endian.h>
#include <string.h>

#include "base/array.h"

/* Codes are kept elsewhere: never change one. */
static const struct entry_kind kinds[STATEMENT_COUNT] = {
    [STATEMENT_RUN_BEGIN] = { .code = 'R', .makes_run = true },
    [STATEMENT_RUN_NOTE_ISOLATION] = { .code = 'I' },
    [STATEMENT_RUN_END] = { .code = 'E' },
    [STATEMENT_RUN_FAIL] = { .code = 'F' },
    [STATEMENT_TURN_BEGIN] = { .code = 'T' },
    [STATEMENT_TURN_KEEP] = { .code = 'K' },
    [STATEMENT_CALL_BEGIN] = { .code = 'C', .makes_step = true },
    [STATEMENT_CALL_REPEAT] = { .code = 'A' },
    [STATEMENT_CALL_END] = { .code = 'c' },
    [STATEMENT_CALL_QUESTION] = { .code = 'q' },
    [STATEMENT_CALL_ASK] = { .code = 'a' },
    /* Another process decides; its decision is logged when the call begins, perhaps again. */
    [STATEMENT_CALL_DECIDE] = { .code = 'D', .may_match_nothing = true },
    [STATEMENT_CALL_GO] = { .code = 'g' },
    [STATEMENT_CELL_BEGIN] = { .code = 'X', .makes_step = true },
    [STATEMENT_CELL_END] = { .code = 'x' },
    [STATEMENT_RESULT_INSERT] = { .code = 'M', .may_match_nothing = true }, /* returns no row */
    [STATEMENT_ARTIFACT_ADD] = { .code = 'P' },
    [STATEMENT_REQUEST_BEGIN] = { .code = 'N', .makes_request = true },
    [STATEMENT_REQUEST_END] = { .code = 'e' },
};

const struct entry_kind *entry_kind(enum statement which)
{
    return kinds[which].code ? &kinds[which] : NULL;
}

enum statement entry_statement(char code)
{
    enum statement which = 0;
    while (which < STATEMENT_COUNT && (!code || kinds[which].code != code))
        which++;
    return which;
}

int entry_ids_add(struct entry_ids *ids, int64_t id, struct error *err)
{
    if (!array_room(ids->ids, ids->count, &ids->room))
        return error_memory(err);
    ids->ids[ids->count++] = id;
    return 0;
}

static void entry_put(struct buf *out, char type, uint64_t bits)
{
    uint64_t little = htole64(bits);
    buf_putc(out, type);
    buf_append(out, &little, sizeof little);
}

void entry_put_int(struct buf *out, enum entry_type type, int64_t value)
{
    if (out)
        entry_put(out, (char)type, (uint64_t)value);
}

void entry_put_real(struct buf *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (out)
        entry_put(out, ENTRY_REAL, bits);
}

void entry_put_bytes(struct buf *out, enum entry_type type, const void *data, size_t len)
{
    uint32_t little = htole32((uint32_t)len);
    if (!out)
        return;
    buf_putc(out, (char)(data ? type : ENTRY_NULL));
    if (!data)
        return;
    buf_append(out, &little, sizeof little);
    buf_append(out, data, len);
}
