/* The link: two ends over a transport that loses, cuts and adds, in both forms; and what a hostile
 * guest may say.
 */
#include "../test.h"

#include <endian.h>
#include <malloc.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "base/fifo.h"
#include "base/json/json.h"
#include "wire/link.h"

enum { NEVER = -1, NOTHING = 0 };

/* One end, what it has written and nobody has carried yet, and what came out of it. */
struct end {
    struct link *link;
    struct fifo wire;
    struct buf got;
    size_t written;
};

enum side { HOST, GUEST };

struct pair {
    struct end ends[2];
    enum link_form form;
    uint64_t nonce;
    long until_cut[2]; /* bytes that side still gets across before the transport is cut; NEVER */
    unsigned cuts;
};

static void on_write(void *arg, const struct iovec *iov, int count)
{
    struct end *e = arg;
    for (int i = 0; i < count; i++) {
        fifo_add(&e->wire, iov[i].iov_base, iov[i].iov_len);
        e->written += iov[i].iov_len;
    }
}

static int on_bytes(void *arg, const char *data, size_t len, struct error *err)
{
    buf_append(&((struct end *)arg)->got, data, len);
    return 0;
}

static const struct link_events events = { on_write, on_bytes };

static void pair_open(struct pair *p, enum link_form form)
{
    struct link_options host = { .form = form };
    struct link_options guest = { .form = form,
        .answers = true,
        .send_window = form == LINK_TEXT ? LINK_TO_HOST_TEXT : LINK_TO_HOST,
        .receive_window = LINK_TO_GUEST };
    *p = (struct pair){ .form = form, .until_cut = { NEVER, NEVER }, .nonce = 7 };
    assert_ok(link_open(&host, &events, &p->ends[HOST], &p->ends[HOST].link, err));
    assert_ok(link_open(&guest, &events, &p->ends[GUEST], &p->ends[GUEST].link, err));
    link_begin(p->ends[HOST].link);
    link_begin(p->ends[GUEST].link);
}

static void pair_close(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        link_free(p->ends[i].link);
        fifo_free(&p->ends[i].wire);
        buf_free(&p->ends[i].got);
    }
}

static void say(struct pair *p, enum side from, const char *data, size_t len)
{
    struct iovec iov = { (void *)(uintptr_t)data, len };
    assert_ok(link_send(p->ends[from].link, &iov, 1, err));
}

/* What is on its way is lost, and so is what the guest says until somebody listens again. */
static void cut(struct pair *p)
{
    link_cut(p->ends[HOST].link);
    fifo_free(&p->ends[HOST].wire);
    fifo_free(&p->ends[GUEST].wire);
    p->cuts++;
}

static void join(struct pair *p)
{
    link_resume(p->ends[HOST].link, ++p->nonce);
}

/* Carries at most `most` bytes of what this side has written. True if the transport was cut on the
 * way. */
static bool carry(struct pair *p, enum side from, size_t most)
{
    struct end *e = &p->ends[from], *to = &p->ends[!from];
    size_t len = fifo_len(&e->wire) < most ? fifo_len(&e->wire) : most;
    long *left = &p->until_cut[from];
    bool cuts = *left != NEVER && (size_t)*left <= len;
    if (cuts)
        len = (size_t)*left;
    cleanup_free char *copy = malloc(len + 1);
    memcpy(copy, fifo_data(&e->wire), len);
    fifo_drop(&e->wire, len);
    if (*left != NEVER)
        *left -= (long)len;
    assert_ok(link_feed(to->link, copy, len, err));
    if (cuts) {
        *left = NEVER;
        cut(p);
    }
    return cuts;
}

/* Until nobody has anything to say; joins again when the transport is cut. */
static void run(struct pair *p, size_t piece)
{
    while (fifo_len(&p->ends[HOST].wire) || fifo_len(&p->ends[GUEST].wire))
        for (enum side from = HOST; from <= GUEST; from++)
            if (carry(p, from, piece))
                join(p);
}

static char *pattern(size_t len, unsigned seed)
{
    char *data = malloc(len + 1);
    assert_non_null(data);
    for (size_t i = 0; i < len; i++)
        data[i] = (char)((i * 2654435761u + seed * 40503u) >> 13);
    return data;
}

static void assert_got(const struct pair *p, enum side at, const char *data, size_t len)
{
    const struct buf *got = &p->ends[at].got;
    assert_int_equal(got->len, len);
    if (memcmp(buf_text(got), data, len) != 0)
        fail_msg("other bytes than were sent");
}

/* ---- honest ends ---- */

static void check_transfer(enum link_form form, size_t len, size_t piece)
{
    struct pair p;
    cleanup_free char *there = pattern(len, 1);
    cleanup_free char *back = pattern(len, 2);
    pair_open(&p, form);
    say(&p, HOST, there, len);
    say(&p, GUEST, back, len);
    run(&p, piece);
    assert_got(&p, GUEST, there, len);
    assert_got(&p, HOST, back, len);
    assert_int_equal(link_unacknowledged(p.ends[HOST].link) < LINK_TO_GUEST / 4 + 1, 1);
    pair_close(&p);
}

/* More than the windows, in pieces of any size, in both directions at once. */
static void what_goes_in_comes_out(void **state)
{
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++) {
        check_transfer(form, 1, 1);
        check_transfer(form, 5000, 1);
        check_transfer(form, 100000, 7);
        check_transfer(form, 5 << 20, 65536);
        check_transfer(form, 5 << 20, 10007);
    }
}

/* Small records in both directions, answers among them. */
static void chat(struct pair *p, size_t piece)
{
    static const char *const words[] = { "a", "bc", "defgh",
        "\x1e"
        "DL\x01",
        "0123456789" };
    for (size_t i = 0; i < array_length(words); i++) {
        say(p, HOST, words[i], strlen(words[i]));
        run(p, piece);
        say(p, GUEST, words[i], strlen(words[i]));
        say(p, GUEST, "!", 1);
        if (i % 2)
            link_ping(p->ends[HOST].link);
        run(p, piece);
    }
}

static void assert_chat(const struct pair *p)
{
    static const char there[] = "abcdefgh\x1e"
                                "DL\x01"
                                "0123456789";
    static const char back[] = "a!bc!defgh!\x1e"
                               "DL\x01!0123456789!";
    assert_got(p, GUEST, there, sizeof there - 1);
    assert_got(p, HOST, back, sizeof back - 1);
}

/* The sanitizers see what is wrong at any cut, and take ten times as long. */
#ifdef __SANITIZE_ADDRESS__
enum { CUT_STEP = 7 };
#else
enum { CUT_STEP = 1 };
#endif

/* The transport is cut after each of the bytes of a conversation. */
static void check_each_cut(enum link_form form, enum side from, size_t piece)
{
    struct pair p;
    for (long at = 0;; at += CUT_STEP) {
        pair_open(&p, form);
        p.until_cut[from] = at;
        chat(&p, piece);
        assert_chat(&p);
        bool was_cut = p.cuts > 0;
        pair_close(&p);
        if (!was_cut)
            break;
    }
}

static void a_cut_at_any_byte_loses_and_doubles_nothing(void **state)
{
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++) {
        check_each_cut(form, HOST, 11);
        check_each_cut(form, GUEST, 11);
        check_each_cut(form, GUEST, 65536);
    }
}

/* It is cut again while the first cut is being mended. */
static void a_cut_while_it_resumes_is_mended_too(void **state)
{
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++)
        for (long at = 0; at < LINK_RECORD_MAX + 3000; at += form == LINK_BARE ? 331 : 7) {
            for (enum side from = HOST; from <= GUEST; from++) {
                struct pair p;
                pair_open(&p, form);
                say(&p, HOST, "to the guest", 12);
                say(&p, GUEST, "to the host", 11);
                p.until_cut[HOST] = 20;
                while (p.cuts == 0)
                    carry(&p, HOST, 5);
                join(&p);
                p.until_cut[from] = at;
                run(&p, 4096);
                assert_got(&p, GUEST, "to the guest", 12);
                assert_got(&p, HOST, "to the host", 11);
                pair_close(&p);
            }
            if (form == LINK_TEXT && at > 400)
                break;
        }
}

/* Of full records, one of which takes several pieces: cut within each, and between. */
static void large_records_survive_cuts(void **state)
{
    enum { LEN = 10 * LINK_PAYLOAD_MAX + 5 };
    cleanup_free char *there = pattern(LEN, 1);
    cleanup_free char *back = pattern(LEN, 2);
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++)
        for (long at = 0; at < LEN + 2000; at += LINK_RECORD_MAX / 3 + 1)
            for (enum side from = HOST; from <= GUEST; from++) {
                struct pair p;
                pair_open(&p, form);
                p.until_cut[from] = at;
                say(&p, HOST, there, LEN);
                say(&p, GUEST, back, LEN);
                run(&p, 8192);
                assert_got(&p, GUEST, there, LEN);
                assert_got(&p, HOST, back, LEN);
                pair_close(&p);
            }
}

/* The guest says as much as it may, and more, while nobody hears it, and so does the host. */
static void messages_of_a_cut_link_are_sent_again(void **state)
{
    enum { LEN = 3 << 20 };
    cleanup_free char *data = pattern(LEN, 3);
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++) {
        struct pair p;
        pair_open(&p, form);
        say(&p, HOST, "1", 1);
        run(&p, 65536);
        link_cut(p.ends[HOST].link);
        say(&p, HOST, data, LEN);
        assert_int_equal(fifo_len(&p.ends[HOST].wire), 0);
        say(&p, GUEST, data, LEN);
        /* The tail of a record is still heard, by whom it is nothing to. */
        fifo_drop(&p.ends[GUEST].wire, 1000);
        join(&p);
        run(&p, 65536);
        assert_got(&p, HOST, data, LEN);
        assert_int_equal(p.ends[GUEST].got.len, 1 + LEN);
        assert_memory_equal(p.ends[GUEST].got.data + 1, data, LEN);
        pair_close(&p);
    }
}

static void the_window_bounds_frames_in_flight(void **state)
{
    enum { LEN = 3 << 20 };
    cleanup_free char *data = pattern(LEN, 3);
    struct pair p;
    pair_open(&p, LINK_BARE);
    say(&p, HOST, data, LEN);
    say(&p, GUEST, data, LEN);
    assert_true(fifo_len(&p.ends[HOST].wire) < LINK_TO_GUEST + LINK_TO_GUEST / 1000);
    assert_true(fifo_len(&p.ends[GUEST].wire) < LINK_TO_HOST + LINK_TO_HOST / 1000);
    run(&p, 65536);
    assert_got(&p, GUEST, data, LEN);
    assert_got(&p, HOST, data, LEN);
    pair_close(&p);
}

/* Drops the record that is on its way from this side. */
static void lose(struct pair *p, enum side from)
{
    fifo_free(&p->ends[from].wire);
}

static void a_lost_record_is_asked_for(void **state)
{
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++)
        for (enum side from = HOST; from <= GUEST; from++) {
            struct pair p;
            pair_open(&p, form);
            say(&p, from, "one ", 4);
            run(&p, 100);
            say(&p, from, "two ", 4);
            lose(&p, from);
            say(&p, from, "three ", 6);
            say(&p, from, "four", 4);
            run(&p, 100);
            assert_got(&p, !from, "one two three four", 18);
            pair_close(&p);
        }
}

/* Nothing comes after it that would tell; a ping does. */
static void a_lost_last_record_is_found_by_a_ping(void **state)
{
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++)
        for (enum side from = HOST; from <= GUEST; from++) {
            struct pair p;
            pair_open(&p, form);
            say(&p, from, "all", 3);
            lose(&p, from);
            run(&p, 100);
            assert_got(&p, !from, "", 0);
            link_ping(p.ends[HOST].link);
            run(&p, 100);
            assert_got(&p, !from, "all", 3);
            pair_close(&p);
        }
}

/* RESUME, or its answer, did not arrive; it comes again with the next ping. */
static void a_lost_resume_is_sent_again(void **state)
{
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++)
        for (enum side from = HOST; from <= GUEST; from++) {
            struct pair p;
            pair_open(&p, form);
            cut(&p);
            say(&p, HOST, "hear", 4);
            join(&p);
            if (from == GUEST)
                carry(&p, HOST, 1 << 20);
            lose(&p, from);
            run(&p, 100000);
            assert_false(link_is_live(p.ends[HOST].link));
            link_ping(p.ends[HOST].link);
            run(&p, 100000);
            assert_true(link_is_live(p.ends[HOST].link));
            assert_got(&p, GUEST, "hear", 4);
            pair_close(&p);
        }
}

/* A terminal adds carriage returns, and others write on it too. */
static void noise_between_lines_is_passed_over(void **state)
{
    static const char prompt[] = "root@box:/# \x1bnot a record\r\n\x1e\x1e\r\nZm9v\r\n";
    struct pair p;
    pair_open(&p, LINK_TEXT);
    for (int i = 0; i < 3; i++) {
        cleanup_buf struct buf seen = { 0 };
        struct fifo *wire = &p.ends[GUEST].wire;
        say(&p, GUEST, "said ", 5);
        buf_puts(&seen, prompt);
        for (size_t at = 0; at < fifo_len(wire); at++)
            buf_puts(&seen,
                fifo_data(wire)[at] == '\n' ? "\r\n" : (char[]){ fifo_data(wire)[at], '\0' });
        fifo_free(wire);
        assert_ok(link_feed(p.ends[HOST].link, seen.data, seen.len, err));
    }
    assert_got(&p, HOST, "said said said ", 15);
    pair_close(&p);
}

/* A line into which somebody else wrote is lost, and comes again. */
static void a_damaged_record_comes_again(void **state)
{
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++) {
        struct pair p;
        pair_open(&p, form);
        say(&p, GUEST, "first ", 6);
        p.ends[GUEST].wire.bytes.data[p.ends[GUEST].wire.at + 20] ^= 1;
        say(&p, GUEST, "second", 6);
        run(&p, 10);
        assert_got(&p, HOST, "first second", 12);
        pair_close(&p);
    }
}

/* ---- the bytes ---- */

/* Appends a record as the header of link.h describes it. */
static void add_record(struct buf *out, enum link_form form, enum link_kind kind, uint8_t flags,
    uint64_t seq, uint64_t ack, const void *payload, size_t len)
{
    unsigned char header[LINK_HEADER_SIZE] = { 0x1E, 'D', 'L', 1, (unsigned char)kind, flags,
        (unsigned char)len, (unsigned char)(len >> 8) };
    cleanup_buf struct buf raw = { 0 };
    for (int i = 0; i < 8; i++) {
        header[8 + i] = (unsigned char)(seq >> 8 * i);
        header[16 + i] = (unsigned char)(ack >> 8 * i);
    }
    uint32_t sum = (uint32_t)crc32(0, header, 24);
    if (len > 0)
        sum = (uint32_t)crc32_z(sum, payload, len);
    for (int i = 0; i < 4; i++)
        header[24 + i] = (unsigned char)(sum >> 8 * i);
    buf_append(&raw, header, sizeof header);
    buf_append(&raw, payload, len);
    if (form == LINK_BARE) {
        buf_append(out, raw.data, raw.len);
        return;
    }
    buf_putc(out, LINK_MARK);
    json_append_base64(out, raw.data, raw.len);
    buf_putc(out, '\n');
}

/* The sum was taken from zlib's crc32. */
static void a_record_has_the_documented_bytes(void **state)
{
    static const unsigned char expected[] = { 0x1e, 'D', 'L', 1, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0xda, 0x5c, 0xd1, 0x6d, 'h', 'i' };
    struct pair p;
    pair_open(&p, LINK_BARE);
    say(&p, HOST, "hi", 2);
    assert_int_equal(fifo_len(&p.ends[HOST].wire), sizeof expected);
    assert_memory_equal(fifo_data(&p.ends[HOST].wire), expected, sizeof expected);
    pair_close(&p);
}

/* ---- hostile guests ---- */

/* A host whose guest has got four bytes of it, and the guest's records. */
struct victim {
    struct pair p;
    struct buf records;
};

static void victim_open(struct victim *v)
{
    *v = (struct victim){ 0 };
    pair_open(&v->p, LINK_BARE);
    say(&v->p, HOST, "four", 4);
    run(&v->p, 100);
    fifo_free(&v->p.ends[HOST].wire);
}

static void victim_close(struct victim *v)
{
    buf_free(&v->records);
    pair_close(&v->p);
}

static void tell(struct victim *v, enum link_kind kind, uint8_t flags, uint64_t seq, uint64_t ack,
    const char *payload)
{
    add_record(&v->records, LINK_BARE, kind, flags, seq, ack, payload, strlen(payload));
}

static int hear(struct victim *v, struct error *err)
{
    int rc = link_feed(v->p.ends[HOST].link, buf_text(&v->records), v->records.len, err);
    buf_clear(&v->records);
    return rc;
}

/* What one record does to a fresh host. */
#define refuses(kind, flags, seq, ack, payload)                                                    \
    do {                                                                                           \
        struct victim v_;                                                                          \
        victim_open(&v_);                                                                          \
        tell(&v_, kind, flags, seq, ack, payload);                                                 \
        assert_fails(ERROR_PROTOCOL, hear(&v_, err));                                              \
        victim_close(&v_);                                                                         \
    } while (0)

#define takes(kind, flags, seq, ack, payload)                                                      \
    do {                                                                                           \
        struct victim v_;                                                                          \
        victim_open(&v_);                                                                          \
        tell(&v_, kind, flags, seq, ack, payload);                                                 \
        assert_ok(hear(&v_, err));                                                                 \
        victim_close(&v_);                                                                         \
    } while (0)

static void acks_of_what_was_never_sent_are_refused(void **state)
{
    takes(LINK_ACK, 0, 0, 4, "");
    refuses(LINK_ACK, 0, 0, 5, "");
    refuses(LINK_ACK, 0, 0, UINT64_MAX, "");
    refuses(LINK_DATA, 0, 0, 5, "x");
    refuses(LINK_PING, 0, 0, 5, "");
}

static void offsets_of_nowhere_are_refused(void **state)
{
    takes(LINK_DATA, 0, LINK_TO_HOST, 0, "x"); /* a gap */
    refuses(LINK_DATA, 0, LINK_TO_HOST + 1, 0, "x");
    refuses(LINK_DATA, 0, UINT64_MAX, 0, "x");
    refuses(LINK_ACK, 0, UINT64_MAX, 4, "");
    refuses(LINK_DATA, 0, 0, 4, "");
}

/* The guest is not the one to resume, and does not know the nonce of the one that does. */
static void only_the_nonce_resumes(void **state)
{
    struct victim v;
    victim_open(&v);
    cut(&v.p);
    join(&v.p);
    struct fifo *wire = &v.p.ends[HOST].wire;
    fifo_free(wire);
    tell(&v, LINK_DATA, 0, 0, 4, "forged");
    tell(&v, LINK_RESUME, LINK_ANSWER, 0, 0, "nonce???");
    tell(&v, LINK_RESUME, 0, 0, 0, "nonce???");
    tell(&v, LINK_ACK, LINK_RESEND, 0, 0, "");
    tell(&v, LINK_ACK, 0, 0, UINT64_MAX, "");
    assert_ok(hear(&v, err));
    assert_false(link_is_live(v.p.ends[HOST].link));
    assert_int_equal(fifo_len(wire), 0);
    assert_got(&v.p, HOST, "", 0);
    uint64_t nonce = htole64(v.p.nonce);
    add_record(&v.records, LINK_BARE, LINK_RESUME, LINK_ANSWER, 0, 0, &nonce, sizeof nonce);
    tell(&v, LINK_DATA, 0, 0, 4, "honest");
    assert_ok(hear(&v, err));
    assert_true(link_is_live(v.p.ends[HOST].link));
    assert_got(&v.p, HOST, "honest", 6);
    victim_close(&v);
}

static void a_resume_of_what_is_gone_is_refused(void **state)
{
    struct victim v;
    for (uint64_t ack = 3; ack <= 5; ack++) {
        victim_open(&v);
        tell(&v, LINK_ACK, 0, 0, 4, "");
        assert_ok(hear(&v, err));
        cut(&v.p);
        join(&v.p);
        uint64_t nonce = htole64(v.p.nonce);
        add_record(&v.records, LINK_BARE, LINK_RESUME, LINK_ANSWER, 0, ack, &nonce, sizeof nonce);
        if (ack == 4)
            assert_ok(hear(&v, err));
        else
            assert_fails(ERROR_PROTOCOL, hear(&v, err));
        victim_close(&v);
    }
}

/* Says it so often until the host refuses, or `most` times. */
static unsigned repeat(
    struct victim *v, unsigned most, enum link_kind kind, uint8_t flags, uint64_t seq)
{
    struct error err = { 0 };
    unsigned n = 0;
    int rc = 0;
    while (rc == 0 && n < most) {
        tell(v, kind, flags, seq, 0, kind == LINK_DATA ? "x" : "");
        rc = hear(v, &err);
        n++;
    }
    assert_true(rc == 0 || err.code == ERROR_PROTOCOL);
    return n;
}

/* What it makes the host write piles up if it does not read. */
static void a_guest_cannot_have_everything_sent_again_and_again(void **state)
{
    enum { LEN = 1 << 20 };
    cleanup_free char *data = pattern(LEN, 1);
    struct victim v;
    victim_open(&v);
    say(&v.p, HOST, data, LEN);
    assert_true(repeat(&v, 100000, LINK_ACK, LINK_RESEND, 0) < 10);
    assert_true(v.p.ends[HOST].written < 8 * LEN);
    victim_close(&v);
}

static void a_guest_cannot_have_itself_asked_again_and_again(void **state)
{
    struct victim v;
    victim_open(&v);
    assert_int_equal(repeat(&v, 1000, LINK_DATA, 0, 1), 1000); /* it is asked once */
    assert_true(fifo_len(&v.p.ends[HOST].wire) <= LINK_HEADER_SIZE);
    assert_true(repeat(&v, 100000, LINK_PING, 0, 1) < 100);
    victim_close(&v);
    /* The same with progress in between. */
    victim_open(&v);
    struct error err = { 0 };
    int rc = 0;
    for (uint64_t seq = 0; rc == 0 && seq < 100000; seq++) {
        tell(&v, LINK_DATA, 0, seq, 0, "x");
        tell(&v, LINK_DATA, 0, seq + 2, 0, "x");
        rc = hear(&v, &err);
    }
    assert_int_equal(err.code, ERROR_PROTOCOL);
    victim_close(&v);
}

/* The host does not answer pings: nothing of it would be needed, and it could be flooded. The guest
 * does. */
static void only_the_guest_answers_pings(void **state)
{
    struct victim v;
    victim_open(&v);
    assert_int_equal(repeat(&v, 1000, LINK_PING, 0, 0), 1000);
    assert_int_equal(fifo_len(&v.p.ends[HOST].wire), 0);
    link_ping(v.p.ends[HOST].link);
    carry(&v.p, HOST, 1000);
    assert_int_equal(fifo_len(&v.p.ends[GUEST].wire), LINK_HEADER_SIZE);
    victim_close(&v);
}

/* Beginnings of the largest records, none of which is one: were each followed by a look at all the
 * bytes that it claims, this would take hours; were all kept, the memory would show it. */
static void garbage_costs_one_look_at_each_byte(void **state)
{
    enum { LEN = 4 << 20, TIMES = 16 };
    static const unsigned char start[] = { 0x1E, 'D', 'L', 1, 1, 0, 0, 0x80 };
    cleanup_free char *data = malloc(LEN);
    for (size_t i = 0; i < LEN; i++)
        data[i] = (char)start[i % sizeof start];
    for (enum link_form form = LINK_BARE; form <= LINK_TEXT; form++) {
        struct pair p;
        pair_open(&p, form);
        size_t before = mallinfo2().uordblks;
        for (int i = 0; i < TIMES; i++)
            assert_ok(link_feed(p.ends[HOST].link, data, LEN, err));
        assert_true(mallinfo2().uordblks < before + (1 << 20));
        assert_int_equal(fifo_len(&p.ends[HOST].wire), 0);
        /* The last of it claims what comes next; that is asked for again then. */
        say(&p, GUEST, "still there", 11);
        run(&p, 1000);
        for (int i = 0; i < 2; i++) {
            cleanup_free char *zeros = calloc(1, LINK_RECORD_MAX);
            assert_ok(
                link_feed(p.ends[HOST].link, zeros, form == LINK_BARE ? LINK_RECORD_MAX : 0, err));
            link_ping(p.ends[HOST].link);
            run(&p, 1000);
        }
        assert_got(&p, HOST, "still there", 11);
        pair_close(&p);
    }
}

/* One line without an end, of LINK_TEXT. */
static void an_endless_line_is_not_kept(void **state)
{
    enum { LEN = 1 << 20, TIMES = 32 };
    cleanup_free char *data = malloc(LEN);
    struct pair p;
    pair_open(&p, LINK_TEXT);
    memset(data, 'A', LEN);
    assert_ok(link_feed(p.ends[HOST].link, "\x1e", 1, err));
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < TIMES; i++)
        assert_ok(link_feed(p.ends[HOST].link, data, LEN, err));
    assert_true(mallinfo2().uordblks < before + (1 << 20));
    say(&p, GUEST, "lost", 4);
    say(&p, GUEST, " and found", 10);
    run(&p, 1000);
    assert_got(&p, HOST, "lost and found", 14);
    pair_close(&p);
}

/* ERROR_MEMORY is the receiver's own, and so is any other error. */
static int say_no(void *arg, const char *data, size_t len, struct error *err)
{
    return error_set(err, ERROR_CANCELLED, "no");
}

static void an_error_of_the_receiver_ends_the_feeding(void **state)
{
    static const struct link_events refusing = { on_write, say_no };
    struct link_options options = { .form = LINK_BARE };
    struct end end = { 0 };
    cleanup_buf struct buf records = { 0 };
    assert_ok(link_open(&options, &refusing, &end, &end.link, err));
    link_begin(end.link);
    add_record(&records, LINK_BARE, LINK_DATA, 0, 0, 0, "x", 1);
    assert_fails(ERROR_CANCELLED, link_feed(end.link, records.data, records.len, err));
    link_free(end.link);
    fifo_free(&end.wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(a_cut_at_any_byte_loses_and_doubles_nothing),
        cmocka_unit_test(a_cut_while_it_resumes_is_mended_too),
        cmocka_unit_test(large_records_survive_cuts),
        cmocka_unit_test(messages_of_a_cut_link_are_sent_again),
        cmocka_unit_test(the_window_bounds_frames_in_flight),
        cmocka_unit_test(a_lost_record_is_asked_for),
        cmocka_unit_test(a_lost_last_record_is_found_by_a_ping),
        cmocka_unit_test(a_lost_resume_is_sent_again),
        cmocka_unit_test(noise_between_lines_is_passed_over),
        cmocka_unit_test(a_damaged_record_comes_again),
        cmocka_unit_test(a_record_has_the_documented_bytes),
        cmocka_unit_test(acks_of_what_was_never_sent_are_refused),
        cmocka_unit_test(offsets_of_nowhere_are_refused),
        cmocka_unit_test(only_the_nonce_resumes),
        cmocka_unit_test(a_resume_of_what_is_gone_is_refused),
        cmocka_unit_test(a_guest_cannot_have_everything_sent_again_and_again),
        cmocka_unit_test(a_guest_cannot_have_itself_asked_again_and_again),
        cmocka_unit_test(only_the_guest_answers_pings),
        cmocka_unit_test(garbage_costs_one_look_at_each_byte),
        cmocka_unit_test(an_endless_line_is_not_kept),
        cmocka_unit_test(an_error_of_the_receiver_ends_the_feeding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
