/* Local sandboxes through the seam, for the tests of this floor. */
#pragma once

#include "../processes.h"
#include "../test.h"
#include "wait.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "env/common/environment.h"
#include "jail/landlock.h"
#include "wire/frame.h"

static const enum isolation levels[] = { ISOLATION_FULL, ISOLATION_LIGHT, ISOLATION_PROCESS,
    ISOLATION_LANDLOCK };

/* The last one needs a kernel that has it. */
static inline size_t level_count(void)
{
    return array_length(levels) - (landlock_abi() < LANDLOCK_SCOPE_ABI);
}

/* A sandbox and what it has said. */
struct box {
    struct sandbox *sandbox;
    const struct environment_ops *ops; /* its environment's */
    struct frame_decoder decoder;
    unsigned ready, results;
    struct buf out;
    bool ended;
    struct sandbox_exit how;
};

static const struct frame_rule rules[] = {
    { FRAME_READY, 4096, 0 },
    { FRAME_RESULT, 1 << 20, 1 << 20 },
};

static inline int on_frame(void *arg, const struct frame *frame, struct error *err)
{
    struct box *b = arg;
    b->ready += frame->type == FRAME_READY;
    b->results += frame->type == FRAME_RESULT;
    return 0;
}

static inline bool on_bytes(void *arg, const char *data, size_t len)
{
    struct box *b = arg;
    assert_ok(frame_feed(&b->decoder, data, len, on_frame, b, err));
    return frame_is_partial(&b->decoder);
}

static inline void on_output(void *arg, int stream, const char *data, size_t len)
{
    buf_append(&((struct box *)arg)->out, data, len);
}

static inline void on_ended(void *arg, const struct sandbox_exit *how)
{
    struct box *b = arg;
    assert_false(b->ended);
    b->ended = true;
    b->how = *how;
}

static const struct sandbox_events events = { on_bytes, on_output, on_ended };

struct fixture {
    struct loop *loop;
    struct environment *env;
};

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    environment_close(f->env);
    loop_close(f->loop);
    free(f);
    return 0;
}

static inline struct sandbox_spec spec_of(enum isolation isolation)
{
    struct sandbox_spec spec = { .isolation = isolation, .limits = jail_default_limits };
    assert_ok(user_range_parse("auto", &spec.users, err));
    return spec;
}

static inline int open_box(
    struct fixture *f, const struct sandbox_spec *spec, struct box *b, struct error *err)
{
    *b = (struct box){ .ops = environment_ops_of(f->env),
        .decoder = { .rules = rules, .rule_count = array_length(rules) } };
    return b->ops->open(f->env, spec, &events, b, &b->sandbox, err);
}

static inline void open_at(struct fixture *f, enum isolation isolation, struct box *b)
{
    struct sandbox_spec spec = spec_of(isolation);
    assert_ok(open_box(f, &spec, b, err));
}

static inline void close_box(struct box *b)
{
    if (b->sandbox)
        b->ops->close(b->sandbox);
    frame_decoder_free(&b->decoder);
    buf_free(&b->out);
    *b = (struct box){ 0 };
}

static inline void send_to(
    struct box *b, uint8_t type, const char *head, const char *blob, size_t len)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct frame frame = { .type = type, .id = 1, .head_len = strlen(head), .blob_len = len };
    struct iovec iov[3] = { { header, sizeof header }, { (void *)(uintptr_t)head, frame.head_len },
        { (void *)(uintptr_t)blob, len } };
    frame_write_header(header, &frame);
    assert_ok(b->ops->send(b->sandbox, iov, 3, -1, err));
}

static inline void exec_in(struct box *b, const char *code)
{
    send_to(b, FRAME_EXEC, "{}", code, strlen(code));
}

/* A sandbox that has carried out a cell. */
static inline void open_working(struct fixture *f, enum isolation isolation, struct box *b)
{
    open_at(f, isolation, b);
    exec_in(b, "x = 1");
    wait_until(f, b->results == 1);
}

/* The same, and the zygote has answered: until then a descriptor more is open. */
static inline void open_settled(struct fixture *f, enum isolation isolation, struct box *b)
{
    struct sandbox_figures figures;
    open_working(f, isolation, b);
    wait_until(f, b->ops->figures(b->sandbox, &figures));
}
