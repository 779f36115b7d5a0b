/* An environment whose guest and service are the test: it sees that requests start a service, and
 * answers them itself. */
#pragma once

#include "../test.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/loop.h"
#include "session/session.h"
#include "wire/frame.h"

struct sandbox {
    struct sandbox_events events;
    void *arg;
};

static struct {
    struct sandbox guest, *service;
    unsigned services;
    struct session *session;
    struct loop *loop;
    /* of the last call */
    unsigned calls;
    struct error why;
    uint64_t handle;
    bool more; /* of a file; of a command: it has ended */
    char data[256];
    size_t len;
    int64_t number; /* of a command: its process id, or status */
} fake;

static int fake_open(struct environment *env, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    fake.guest.events = *events;
    fake.guest.arg = arg;
    *out = &fake.guest;
    return 0;
}

static int fake_open_companion(struct sandbox *of, const struct sandbox_events *events, void *arg,
    struct sandbox **out, struct error *err)
{
    fake.service = calloc(1, sizeof *fake.service);
    *fake.service = (struct sandbox){ *events, arg };
    fake.services++;
    *out = fake.service;
    return 0;
}

static int fake_send(
    struct sandbox *s, const struct iovec *iov, int count, int fd, struct error *err)
{
    return 0;
}

static void fake_close(struct sandbox *s)
{
    if (s == fake.service)
        free(steal(&fake.service));
}

static const struct environment_ops fake_ops = { .name = "fake",
    .open = fake_open,
    .open_companion = fake_open_companion,
    .send = fake_send,
    .close = fake_close };
static struct environment_base fake_environment = { .ops = &fake_ops };

static int service_set_up(void **state)
{
    static const struct session_events events = { 0 };
    struct session_options options;
    memset(&fake, 0, sizeof fake);
    assert_ok(loop_open(&fake.loop, err));
    fake_environment.loop = fake.loop;
    session_options_init(&options);
    assert_ok(session_open(
        (struct environment *)&fake_environment, &options, &events, NULL, &fake.session, err));
    return 0;
}

static int service_tear_down(void **state)
{
    session_close(fake.session);
    loop_close(fake.loop);
    assert_null(fake.service);
    return 0;
}

static void answer_with(
    uint8_t type, uint64_t id, const char *head, const void *data, size_t len, size_t parts)
{
    unsigned char header[FRAME_HEADER_SIZE];
    cleanup_buf struct buf all = { 0 }, blob = { 0 };
    const size_t lengths[] = { len, 0 };
    frame_parts_begin(&blob, lengths, parts);
    buf_append(&blob, data, len);
    const struct frame frame = {
        .type = type, .id = id, .head_len = strlen(head), .blob_len = blob.len
    };
    frame_write_header(header, &frame);
    buf_append(&all, (const char *)header, sizeof header);
    buf_puts(&all, head);
    buf_append(&all, blob.data, blob.len);
    fake.service->events.bytes(fake.service->arg, all.data, all.len);
}

/* A failed service ends from the loop. */
static void service_settle(void)
{
    for (unsigned calls = fake.calls; fake.calls == calls;)
        loop_turn(fake.loop, 1);
}
