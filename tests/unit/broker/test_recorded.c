/* Which call of the record answers what a replayed cell asks. */
#include "../store/fixture.h"

#include "base/cleanup.h"
#include "broker/recorded.h"

struct past {
    struct place *place;
    struct store *store;
    struct recorded *recorded;
    int64_t cells[2];
};

static int64_t add_call(
    struct past *p, int cell, const char *model, const char *text, const char *reply)
{
    int64_t call = 0;
    struct store_call_begin begin = { .run = "a",
        .turn = 1,
        .cell = p->cells[cell],
        .depth = 1,
        .kind = "sub",
        .model = model,
        .request = store_text(text),
        .key = "00112233445566778899aabbccddeeff" };
    assert_ok(store_call_begin(p->store, &begin, &call, err));
    if (reply)
        end_call(p->store, call, reply);
    return call;
}

static int past_make(void **state)
{
    static struct past past;
    void *place;
    past = (struct past){ 0 };
    if (place_make(&place) < 0)
        return -1;
    past.place = place;
    past.store = open_store(past.place->file);
    begin_run(past.store, "a");
    assert_ok(store_turn_begin(past.store, "a", 1, err));
    for (int i = 0; i < 2; i++)
        past.cells[i] = begin_cell(past.store, "a", store_text("code"));
    *state = &past;
    return 0;
}

static int past_remove(void **state)
{
    struct past *p = *state;
    void *place = p->place;
    recorded_free(p->recorded);
    store_close(p->store);
    return place_remove(&place);
}

static void load(struct past *p)
{
    assert_ok(recorded_load(p->store, "a", &p->recorded, err));
}

/* The id of the call that answers, which is taken; 0: none does. */
static int64_t asks(struct past *p, int cell, const char *model, const char *text)
{
    char hash[HASH_TEXT_SIZE];
    assert_ok(hash_sha256(text, strlen(text), hash, err));
    struct recorded_call *call =
        recorded_find(p->recorded, p->cells[cell], false, model, "m", hash);
    if (call)
        recorded_take(p->recorded, call);
    return call ? call->id : 0;
}

/* Calls may come in any order; the same request gets its calls in the order of the record. */
static void the_order_of_a_batch_does_not_matter(void **state)
{
    struct past *p = *state;
    int64_t a = add_call(p, 0, "m", "a", "A"), b = add_call(p, 0, "m", "b", "B"),
            again = add_call(p, 0, "m", "a", "A2");
    load(p);
    assert_int_equal(asks(p, 0, NULL, "b"), b);
    assert_int_equal(asks(p, 0, NULL, "a"), a);
    assert_int_equal(asks(p, 0, NULL, "a"), again);
    assert_int_equal(asks(p, 0, NULL, "a"), 0);
    assert_int_equal(asks(p, 0, NULL, "c"), 0);
}

/* A cell's own call comes before an older one of another cell, which is taken where there is none. */
static void a_cell_gets_its_own_calls_first(void **state)
{
    struct past *p = *state;
    int64_t other = add_call(p, 0, "m", "a", "A"), own = add_call(p, 1, "m", "a", "A2");
    load(p);
    assert_int_equal(asks(p, 1, NULL, "a"), own);
    assert_int_equal(asks(p, 1, NULL, "a"), other);
}

/* A model that the guest named is part of what it asked; where it named none, that of the run comes
 * first. */
static void a_named_model_is_part_of_the_call(void **state)
{
    struct past *p = *state;
    int64_t named = add_call(p, 0, "x", "a", "A"), plain = add_call(p, 0, "m", "a", "A");
    load(p);
    assert_int_equal(asks(p, 0, "y", "a"), 0);
    assert_int_equal(asks(p, 0, NULL, "a"), plain);
    assert_int_equal(asks(p, 0, "x", "a"), named);
}

/* What is taken back is there again. */
static void what_is_taken_back_can_be_asked_again(void **state)
{
    struct past *p = *state;
    int64_t a = add_call(p, 0, "m", "a", "A");
    load(p);
    assert_int_equal(asks(p, 0, NULL, "a"), a);
    recorded_untake(p->recorded, recorded_call_at(p->recorded, 0));
    assert_int_equal(asks(p, 0, NULL, "a"), a);
}

/* The first call that nobody asked for is named by its number in the cell. */
static void unasked_calls_are_found(void **state)
{
    struct past *p = *state;
    add_call(p, 0, "m", "a", "A");
    int64_t b = add_call(p, 0, "m", "b", NULL);
    load(p);
    asks(p, 0, NULL, "a");
    struct recorded_call *left = recorded_unasked(p->recorded, p->cells[0]);
    assert_non_null(left);
    assert_int_equal(left->id, b);
    assert_int_equal(left->number, 2);
    assert_false(left->ended);
    assert_string_equal(left->key, "00112233445566778899aabbccddeeff");
    assert_int_equal(recorded_asked(p->recorded, p->cells[0]), 1);
    assert_null(recorded_unasked(p->recorded, p->cells[1]));
}

/* Replies come back as they were, a reply of nothing included. */
static void replies_are_read_back(void **state)
{
    struct past *p = *state;
    cleanup_buf struct buf text = { 0 };
    add_call(p, 0, "m", "a", "the answer");
    add_call(p, 0, "m", "b", "");
    load(p);
    assert_ok(recorded_read(p->recorded, &recorded_call_at(p->recorded, 0)->reply, &text, err));
    assert_string_equal(buf_text(&text), "the answer");
    buf_clear(&text);
    assert_ok(recorded_read(p->recorded, &recorded_call_at(p->recorded, 1)->reply, &text, err));
    assert_int_equal(text.len, 0);
}

#define past_test(f) cmocka_unit_test_setup_teardown(f, past_make, past_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        past_test(the_order_of_a_batch_does_not_matter),
        past_test(a_cell_gets_its_own_calls_first),
        past_test(a_named_model_is_part_of_the_call),
        past_test(what_is_taken_back_can_be_asked_again),
        past_test(unasked_calls_are_found),
        past_test(replies_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
