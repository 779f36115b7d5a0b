/* tests/unit/api/runs.h: a model of this program that answers by its last message, and runs that
 * are recorded, for tests of whole runs. */
#pragma once

#include "../test.h"

#include <stdbool.h>
#include <unistd.h>

#include "droste.h"

#define API_ERROR runs.err
#include "assert_fine.h"

enum { RUNS_ASKED_MAX = 64 };

static struct {
    droste *d;
    droste_error err;
    char place[32], database[48];
    const char *const *replies; /* of the loop, by the number of its call */
    const char *hold;           /* a prompt whose answer is kept back; NULL: none is */
    droste_call *held;
    char asked[RUNS_ASKED_MAX][80]; /* the prompts of the code, in order */
    size_t asked_count, turns;
    char run[64], status[20], answer[80], why[DROSTE_ERROR_SIZE];
} runs;

/* A prompt of the code is answered in capitals; the loop gets its next reply. */
static inline void runs_model(void *arg, const droste_message *m, size_t count, droste_call *call)
{
    const droste_message *last = &m[count - 1];
    if (strcmp(m[0].role, "system") == 0) {
        const char *reply = runs.replies[runs.turns++];
        droste_answer(call, reply, strlen(reply));
        return;
    }
    assert_true(runs.asked_count < RUNS_ASKED_MAX);
    char *text = runs.asked[runs.asked_count++];
    snprintf(text, sizeof runs.asked[0], "%.*s", (int)last->len, last->text);
    if (runs.hold && strcmp(text, runs.hold) == 0) {
        runs.held = call;
        return;
    }
    char answer[sizeof runs.asked[0]];
    for (size_t i = 0; i < sizeof answer; i++)
        answer[i] = text[i] >= 'a' && text[i] <= 'z' ? (char)(text[i] - 'a' + 'A') : text[i];
    droste_answer(call, answer, strlen(answer));
}

/* As in another process: nothing of the object before is left. */
static inline void runs_new(void)
{
    droste_free(runs.d);
    runs.held = NULL;
    assert_fine(droste_new(&runs.d, &runs.err));
    assert_fine(droste_set(runs.d, "database", runs.database, &runs.err));
    assert_fine(droste_set(runs.d, "model", "callback", &runs.err));
    droste_set_model(runs.d, runs_model, NULL);
}

static inline int runs_setup(void **state)
{
    memset(&runs, 0, sizeof runs);
    snprintf(runs.place, sizeof runs.place, "/tmp/droste-runs-XXXXXX");
    assert_non_null(mkdtemp(runs.place));
    snprintf(runs.database, sizeof runs.database, "%s/runs.db", runs.place);
    runs_new();
    return 0;
}

static inline int runs_teardown(void **state)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    droste_free(runs.d);
    for (size_t i = 0; i < 3; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s%s", runs.database, ends[i]);
        unlink(path);
    }
    return rmdir(runs.place);
}

static inline void runs_event(void *arg, const droste_event *event)
{
    if (strcmp(event->kind, "started") == 0 && event->run == 0)
        snprintf(runs.run, sizeof runs.run, "%.*s", (int)event->len, event->text);
}

static inline void runs_done(void *arg, droste_result *r)
{
    droste_error why;
    const char *answer = droste_result_answer(r, NULL);
    droste_result_error(r, &why);
    snprintf(runs.status, sizeof runs.status, "%s", droste_result_status(r));
    snprintf(runs.answer, sizeof runs.answer, "%s", answer ? answer : "");
    snprintf(runs.why, sizeof runs.why, "%s", why.text);
    droste_result_free(r);
}

static inline droste_running *runs_begin(void)
{
    droste_running *running = NULL;
    droste_request q = { .question = "What?", .event = runs_event, .done = runs_done };
    runs.status[0] = '\0';
    assert_fine(droste_start(runs.d, &q, &running, &runs.err));
    return running;
}

static inline void runs_finish(void)
{
    while (!runs.status[0])
        assert_fine(droste_turn(runs.d, -1, &runs.err));
}

/* Runs until the code has asked what is held, and leaves the run as if this process had died. */
static inline void runs_leave_at(const char *prompt)
{
    runs.hold = prompt;
    droste_running *running = runs_begin();
    while (!runs.held && !runs.status[0])
        assert_fine(droste_turn(runs.d, -1, &runs.err));
    assert_non_null(runs.held);
    droste_suspend(running);
    runs_finish();
    assert_string_equal(runs.status, "interrupted");
    droste_refuse(runs.held, "too late");
    runs.hold = NULL;
    runs_new();
}

static inline void runs_resume(void)
{
    droste_result *r = NULL;
    assert_fine(droste_resume(runs.d, runs.run, NULL, NULL, &r, &runs.err));
    runs_done(NULL, r);
}

/* How often the code's prompt reached the model. */
static inline size_t runs_asked(const char *prompt)
{
    size_t count = 0;
    for (size_t i = 0; i < runs.asked_count; i++)
        count += strcmp(runs.asked[i], prompt) == 0;
    return count;
}

#define runs_test(f) cmocka_unit_test_setup_teardown(f, runs_setup, runs_teardown)
