/* cli/remote/queue.c: a batch whose runs are in the queue of a cluster (droste batch --cluster).
 *
 * The tasks, the results and the grades are those of a batch of this machine (droste/batch.h), and
 * only the runs are elsewhere. Each has a request under way to one of the nodes, which first puts
 * it into the queue and then waits for its end; the node that answered last is asked first.
 *
 * The id of a run is a hash of the batch, the task, what is asked, and the result that it replaces
 * (--again). RESULTS.batch has the batch's name, so the same command again finds the runs of an
 * earlier one, which go on without it.
 */
#include <curl/curl.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/line_reader.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"

enum {
    NODES_MAX = 64,
    WAIT_SECONDS = 20,      /* of one request for the end of a run */
    ANSWER_SECONDS = 10,    /* after which a node that says nothing is left for another one */
    PATIENCE_SECONDS = 300, /* how long a request is repeated while no node accepts it */
    TURN_MS = 100,
    CONTEXT_MAX = 64 << 20,
    NOTE_MAX = 4096,
    RUN_ID_DIGITS = 40,
};

static const char note_prefix[] = "queue-";

enum queue_step { STEP_CANCEL, STEP_PUT, STEP_WAIT };

struct queue_task {
    TAILQ_ENTRY(queue_task) link;
    struct queue_batch *batch;
    const droste_request *request;
    char id[RUN_ID_DIGITS + 1];
    enum queue_step step;
    struct buf body, answer;
    CURL *curl; /* NULL: it is sent at send_ns */
    struct curl_slist *headers;
    unsigned node;
    uint64_t send_ns, since_ns; /* since: of the first attempt */
};

struct queue_batch {
    const struct remote_queue *o;
    struct remote *nodes[NODES_MAX];
    unsigned count, node; /* which is asked next */
    CURLM *multi;
    TAILQ_HEAD(, queue_task) tasks;
    char note[NOTE_MAX];        /* the batch's name */
    struct json_object *before; /* --again: the runs of results, by the ids of tasks */
    droste_running_batch *running;
    droste_batch_state *state;
    droste_error failed;
    bool is_done;
};

/* ---- requests ---- */

static void queue_task_unsend(struct queue_task *t)
{
    if (!t->curl)
        return;
    curl_multi_remove_handle(t->batch->multi, t->curl);
    curl_easy_cleanup(t->curl);
    curl_slist_free_all(t->headers);
    t->curl = NULL;
    t->headers = NULL;
    buf_clear(&t->answer);
}

static void queue_task_free(struct queue_task *t)
{
    queue_task_unsend(t);
    TAILQ_REMOVE(&t->batch->tasks, t, link);
    buf_free(&t->body);
    buf_free(&t->answer);
    free(t);
}

static size_t queue_on_data(char *data, size_t size, size_t count, void *arg)
{
    struct queue_task *t = arg;
    buf_append(&t->answer, data, size * count);
    return buf_failed(&t->answer) ? 0 : size * count;
}

static void queue_task_send(struct queue_task *t)
{
    static const char *const methods[] = { "DELETE", "POST", "GET" };
    struct queue_batch *b = t->batch;
    char path[RUN_ID_DIGITS + 40] = "/v1/queue";
    long seconds = ANSWER_SECONDS;
    if (t->step != STEP_PUT)
        snprintf(path, sizeof path, "/v1/queue/%s", t->id);
    if (t->step == STEP_WAIT) {
        snprintf(path + strlen(path), 20, "?wait=%d", WAIT_SECONDS);
        seconds += WAIT_SECONDS;
    }
    t->node = b->node;
    t->curl = remote_handle(b->nodes[t->node], methods[t->step], path, &t->headers);
    if (!t->curl) {
        t->send_ns = clock_ns() + 1000000000;
        return;
    }
    if (t->step == STEP_PUT) {
        curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body.len);
        curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, buf_text(&t->body));
    }
    curl_easy_setopt(t->curl, CURLOPT_TIMEOUT, seconds);
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, queue_on_data);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_PRIVATE, t);
    curl_multi_add_handle(b->multi, t->curl);
}

static void queue_task_step(struct queue_task *t, enum queue_step step)
{
    t->step = step;
    t->since_ns = clock_ns();
    queue_task_unsend(t);
    queue_task_send(t);
}

/* ---- answers ---- */

static void queue_task_refuse(struct queue_task *t, int code, const char *why)
{
    droste_error err = { .code = code };
    const droste_request *request = t->request;
    struct queue_batch *b = t->batch;
    snprintf(err.text, sizeof err.text, "%s", why);
    queue_task_free(t);
    droste_batch_refuse(b->running, request, &err);
}

/* The run has this end, as GET /v1/runs/ID says it. */
static void queue_task_end(struct queue_task *t, const char *json, size_t len)
{
    const droste_request *request = t->request;
    struct queue_batch *b = t->batch;
    droste_error err = { 0 };
    if (droste_batch_take(b->running, request, json, len, &err) < 0) {
        queue_task_refuse(t, err.code, err.text);
        return;
    }
    queue_task_free(t);
}

static void queue_task_on_state(struct queue_task *t)
{
    cleanup_json struct json_object *o = NULL;
    cleanup_buf struct buf why = { 0 };
    size_t len = 0;
    json_parse(buf_text(&t->answer), t->answer.len, &json_limits_large, &o, NULL);
    struct json_object *run = json_get_typed(o, "run", json_type_object);
    const char *state = json_get_string(o, "state", "");
    if (strcmp(state, "ended") == 0 && run) {
        const char *text = json_text(run, &len);
        queue_task_end(t, text, len);
    } else if (strcmp(state, "dead") == 0) {
        buf_printf(&why, "the run could not begin: %s", json_get_string(o, "reason", ""));
        queue_task_refuse(t, DROSTE_ERROR_LOST, buf_text(&why));
    } else {
        queue_task_step(t, STEP_WAIT);
    }
}

static void queue_task_on_answer(struct queue_task *t, long status, const char *why)
{
    char id[RUN_ID_DIGITS + 80];
    if (t->step == STEP_CANCEL && status == 404) { /* it was not put */
        int n =
            snprintf(id, sizeof id, "{\"run\": null, \"status\": \"cancelled\", \"answer\": null}");
        queue_task_end(t, id, (size_t)n);
    } else if (t->step == STEP_CANCEL && (status < 300 || status == 409)) {
        queue_task_step(t, STEP_WAIT);
    } else if (status >= 400) {
        bool is_of_task = status == 400 || status == 404 || status == 413;
        queue_task_refuse(t, is_of_task ? DROSTE_ERROR_ARGUMENT : DROSTE_ERROR_ENVIRONMENT, why);
    } else if (t->step == STEP_PUT) {
        queue_task_step(t, STEP_WAIT);
    } else {
        queue_task_on_state(t);
    }
}

/* No node has taken the request: the next one is asked, after a pause. */
static void queue_task_retry(struct queue_task *t, bool is_away, const char *why)
{
    struct queue_batch *b = t->batch;
    curl_off_t seconds = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RETRY_AFTER, &seconds);
    queue_task_unsend(t);
    if (clock_ns() - t->since_ns > PATIENCE_SECONDS * 1000000000ull) {
        droste_batch_stop(b->running, "error", why);
        return;
    }
    if (is_away && b->node == t->node) /* else another task has gone on already */
        b->node = (t->node + 1) % b->count;
    bool is_quick = is_away && seconds <= 0 && b->node != t->node;
    t->send_ns = clock_ns() + (is_quick                         ? 0
                                  : seconds > 0 && seconds < 60 ? (uint64_t)seconds
                                                                : 1) *
                                  1000000000ull;
}

static void queue_on_ended(struct queue_task *t, CURLcode code)
{
    cleanup_json struct json_object *o = NULL;
    cleanup_buf struct buf why = { 0 };
    const char *address = remote_server_address(t->batch->nodes[t->node]);
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK) {
        buf_printf(
            &why, "the node %.200s cannot be reached: %s", address, curl_easy_strerror(code));
        queue_task_retry(t, true, buf_text(&why));
        return;
    }
    if (status >= 400) {
        json_parse(buf_text(&t->answer), t->answer.len, &json_limits_small, &o, NULL);
        buf_printf(&why, "the node %.200s: %.600s", address,
            json_get_string(json_get_typed(o, "error", json_type_object), "message",
                status == 401 ? "it wants a key: set DROSTE_API_KEY" : "it refused the run"));
    }
    if (status == 429 || status == 502 || status == 503)
        queue_task_retry(t, status != 429, buf_text(&why));
    else
        queue_task_on_answer(t, status, buf_text(&why));
}

/* ---- a task ---- */

static int queue_on_check(void *arg, const droste_request *request, droste_error *err)
{
    *err = (droste_error){ 0 };
    if (request->contexts && request->contexts[0])
        error_set(err, ERROR_UNSUPPORTED,
            "a run of a cluster's queue has one context: use `context`, or a server (--server)");
    else if (request->context && access(request->context, R_OK) < 0)
        error_set_errno(err, ERROR_NOT_FOUND, "the context %.200s", request->context);
    return -err->code;
}

/* A file is text; JSON if its name says so. */
static int queue_put_context(struct buf *out, const droste_request *q, struct error *err)
{
    cleanup_buf struct buf file = { 0 };
    const char *data = q->data;
    size_t len = q->len, n = q->context ? strlen(q->context) : 0;
    bool is_json = data && q->kind && strcmp(q->kind, "json") == 0;
    if (!q->context && !data)
        return 0;
    if (q->context) {
        int rc = file_read(q->context, CONTEXT_MAX, &file, err);
        if (rc < 0)
            return rc;
        data = buf_text(&file);
        len = file.len;
        is_json = n > 5 && strcmp(q->context + n - 5, ".json") == 0;
    }
    if (!text_is_utf8(data, len, NULL))
        return error_set(err, ERROR_UNSUPPORTED,
            "the context of a run of a cluster's queue is UTF-8 text or JSON");
    if (is_json) {
        cleanup_json struct json_object *value = NULL;
        int rc = json_parse(data, len, &json_limits_large, &value, err);
        if (rc < 0)
            return rc;
    }
    buf_puts(out, ", \"context\": ");
    if (is_json)
        buf_append(out, data, len);
    else
        json_append_string(out, data, len);
    return 0;
}

/* The body without its last members: `{"question": …, "options": {…}`. */
static int queue_put_request(struct buf *out, const droste_request *q, struct error *err)
{
    struct list settings = { 0 };
    int rc = 0;
    for (size_t i = 0; rc == 0 && q->settings && q->settings[i]; i++)
        rc = list_add(&settings, q->settings[i], err);
    cleanup_json struct json_object *options = remote_options(&settings);
    list_clear(&settings);
    if (rc == 0 && !options)
        rc = error_memory(err);
    if (rc < 0)
        return rc;
    buf_puts(out, "{\"question\": ");
    json_append_string(out, q->question, strlen(q->question));
    buf_printf(out, ", \"options\": %s", json_text(options, NULL));
    return queue_put_context(out, q, err);
}

static int queue_name_run(struct queue_task *t, struct error *err)
{
    const struct queue_batch *b = t->batch;
    const char *before = json_get_string(b->before, t->request->task, "");
    char hash[HASH_TEXT_SIZE];
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "%s\n%s\n%s\n", b->note, t->request->task, before);
    buf_append(&text, buf_text(&t->body), t->body.len);
    int rc = buf_failed(&text) ? error_memory(err) : hash_sha256(text.data, text.len, hash, err);
    if (rc == 0)
        snprintf(t->id, sizeof t->id, "%.*s", RUN_ID_DIGITS, hash);
    return rc;
}

static int queue_on_start(void *arg, const droste_request *request, droste_error *err)
{
    struct queue_batch *b = arg;
    struct queue_task *t = calloc(1, sizeof *t);
    if (!t)
        return error_memory(err);
    t->batch = b;
    t->request = request;
    TAILQ_INSERT_TAIL(&b->tasks, t, link);
    int rc = queue_put_request(&t->body, request, err);
    if (rc == 0)
        rc = queue_name_run(t, err);
    buf_printf(&t->body, ", \"id\": \"%s\", \"priority\": %lld}", t->id, (long long)b->o->priority);
    if (rc == 0 && buf_failed(&t->body))
        rc = error_memory(err);
    if (rc < 0) {
        queue_task_free(t);
        return rc;
    }
    queue_task_step(t, b->o->cancels ? STEP_CANCEL : STEP_PUT);
    return 0;
}

/* The run goes on without this batch. */
static int queue_on_stop(void *arg, const droste_request *request)
{
    struct queue_batch *b = arg;
    struct queue_task *t;
    TAILQ_FOREACH(t, &b->tasks, link)
    {
        if (t->request == request) {
            queue_task_free(t);
            break;
        }
    }
    return 1;
}

/* ---- the batch ---- */

static void queue_on_event(void *arg, const droste_batch_event *event)
{
    struct queue_batch *b = arg;
    b->o->fn(b->o->arg, event);
}

static void queue_on_done(void *arg, const droste_batch_state *end, const droste_error *err)
{
    struct queue_batch *b = arg;
    *b->state = *end;
    if (err)
        b->failed = *err;
    b->is_done = true;
}

static int queue_open_nodes(struct queue_batch *b, struct error *err)
{
    cleanup_free char *urls = strdup(b->o->cluster);
    char *rest = urls;
    if (!urls)
        return error_memory(err);
    for (const char *url; (url = strsep(&rest, ","));) {
        if (!url[0])
            continue;
        if (b->count == NODES_MAX)
            return error_set(err, ERROR_ARGUMENT, "--cluster names at most %d nodes", NODES_MAX);
        int rc = remote_server_open(url, &b->nodes[b->count], err);
        if (rc < 0)
            return rc;
        b->count++;
    }
    b->multi = curl_multi_init();
    if (b->count == 0)
        return error_set(err, ERROR_ARGUMENT, "--cluster takes the URL of a node, or several");
    return b->multi ? 0 : error_memory(err);
}

/* The batch's name, which the first command chooses. */
static int queue_name_batch(struct queue_batch *b, struct error *err)
{
    const char *results = b->o->options->results;
    cleanup_free char *path = text_printf("%s.batch", results);
    cleanup_buf struct buf text = { 0 }, had = { 0 };
    char digits[33];
    if (!path)
        return error_memory(err);
    if (access(path, F_OK) == 0) {
        int rc = file_read(path, NOTE_MAX - 1, &text, err);
        if (rc == 0 && strncmp(buf_text(&text), note_prefix, strlen(note_prefix)) != 0)
            rc = error_set(err, ERROR_ARGUMENT,
                "%.100s has a batch of a server; give --out another file", results);
        snprintf(b->note, sizeof b->note, "%s", buf_text(&text));
        return rc;
    }
    if (access(results, F_OK) == 0 && (file_read(results, 1, &had, NULL) < 0 || had.len > 0))
        return error_set(err, ERROR_ARGUMENT,
            "%.100s has results of another batch; give --out another file", results);
    int rc = random_hex(digits, 32, err);
    snprintf(b->note, sizeof b->note, "%s%s", note_prefix, digits);
    return rc < 0 ? rc : file_replace(path, b->note, strlen(b->note), err);
}

/* Of a task with several results, the last one counts. */
static int queue_take_before(void *arg, const struct line *line, struct error *err)
{
    struct queue_batch *b = arg;
    cleanup_json struct json_object *o = NULL;
    struct json_object *id = NULL;
    if (json_parse(line->text, line->len, &json_limits_large, &o, NULL) < 0 ||
        !json_object_object_get_ex(o, "id", &id))
        return 0;
    bool is_put = json_put_text(
        b->before, json_object_get_string(id), json_get_string(o, "run", "without a run"));
    return is_put ? 0 : error_memory(err);
}

static int queue_look_back(struct queue_batch *b, struct error *err)
{
    const char *results = b->o->options->results;
    b->before = json_object_new_object();
    if (!b->before)
        return error_memory(err);
    if (!b->o->options->again || access(results, F_OK) < 0)
        return 0;
    cleanup_fd int fd = file_open(results, O_RDONLY, 0, "the results file", err);
    return fd < 0 ? fd : line_reader_read(fd, results, queue_take_before, b, err);
}

static void queue_drive(struct queue_batch *b)
{
    struct queue_task *t, *next;
    uint64_t now = clock_ns();
    int left = 0;
    CURLMsg *m;
    for (t = TAILQ_FIRST(&b->tasks); t; t = next) {
        next = TAILQ_NEXT(t, link);
        if (!t->curl && now >= t->send_ns)
            queue_task_send(t);
    }
    curl_multi_perform(b->multi, &left);
    while ((m = curl_multi_info_read(b->multi, &left))) {
        CURLcode code = m->data.result;
        if (m->msg == CURLMSG_DONE && curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t) == 0)
            queue_on_ended(t, code);
    }
}

static int queue_wait(struct queue_batch *b, droste *d, struct error *err)
{
    droste_error why = { 0 };
    int fd = droste_fd(d, &why), rc = fd < 0 ? -1 : 0;
    bool stops = false;
    while (rc >= 0 && !b->is_done) {
        struct curl_waitfd loop = { .fd = fd, .events = CURL_WAIT_POLLIN };
        if (!stops && (cli_was_interrupted() || cli_output_gone())) {
            stops = true;
            droste_batch_stop(b->running, "interrupt", "the batch was interrupted");
        }
        queue_drive(b);
        rc = droste_turn(d, 0, &why);
        if (rc >= 0 && !b->is_done)
            curl_multi_poll(b->multi, &loop, 1, stops ? 1 : TURN_MS, NULL);
    }
    return rc < 0 ? error_set(err, (enum error_code)why.code, "%s", why.text) : 0;
}

static int queue_begin(struct queue_batch *b, droste *d, droste_batch_host *host, struct error *err)
{
    droste_error why = { 0 };
    int rc = queue_open_nodes(b, err);
    if (rc == 0)
        rc = queue_look_back(b, err);
    if (rc == 0)
        rc = queue_name_batch(b, err);
    if (rc < 0)
        return rc;
    rc = droste_batch_start(
        d, b->o->options, host, queue_on_event, queue_on_done, b, &b->running, &why);
    return rc < 0 ? error_set(err, (enum error_code)why.code, "%s", why.text) : 0;
}

int remote_queue(droste *d, const struct remote_queue *o, const struct list *asked,
    droste_batch_state *state, struct error *err)
{
    struct queue_batch b = { .o = o, .state = state };
    struct list settings = { 0 };
    TAILQ_INIT(&b.tasks);
    int rc = list_add_all(&settings, asked, err);
    if (rc == 0)
        rc = list_add_end(&settings, err);
    droste_batch_host host = { .settings = (const char *const *)settings.items,
        .check = queue_on_check,
        .start = queue_on_start,
        .stop = queue_on_stop,
        .is_elsewhere = 1,
        .arg = &b };
    if (rc == 0)
        rc = queue_begin(&b, d, &host, err);
    if (rc == 0)
        rc = queue_wait(&b, d, err);
    while (!TAILQ_EMPTY(&b.tasks))
        queue_task_free(TAILQ_FIRST(&b.tasks));
    if (rc == 0 && b.failed.code)
        rc = error_set(err, (enum error_code)b.failed.code, "%s", b.failed.text);
    for (unsigned i = 0; i < b.count; i++)
        remote_server_close(b.nodes[i]);
    curl_multi_cleanup(b.multi);
    json_object_put(b.before);
    list_clear(&settings);
    return rc;
}
