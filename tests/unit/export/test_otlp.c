/* Runs of a record as spans of OpenTelemetry. */
#include "../store/open_record.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "export/otlp.h"

/* A run with a turn, in which the model was asked and a cell was run. */
static void write_run(const char *id)
{
    begin_run(store, id);
    assert_ok(store_turn_begin(store, id, 1, err));
    end_call(store, begin_call(store, id, "[]"), "reply");
    end_cell(store, begin_cell(store, id, store_text("1 / 0")), store_text("out"));
    end_run(store, id);
}

/* The export of one run, as text and as the array of its spans. */
static struct json_object *export_run(const char *id, struct buf *out, struct json_object **spans)
{
    struct json_object *line = NULL, *at = NULL;
    const droste_export runs = { .runs = &id, .count = 1, .format = DROSTE_EXPORT_OTLP };
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    assert_ok(otlp_write(record, &runs, file, err));
    fclose(file);
    buf_append(out, text, len);
    free(text);
    assert_ok(json_parse(out->data, out->len, &json_limits_large, &line, err));
    at = json_object_array_get_idx(json_get_typed(line, "resourceSpans", json_type_array), 0);
    at = json_object_array_get_idx(json_get_typed(at, "scopeSpans", json_type_array), 0);
    *spans = json_get_typed(at, "spans", json_type_array);
    assert_non_null(*spans);
    return line;
}

static struct json_object *span_named(struct json_object *spans, const char *name)
{
    for (size_t i = 0; i < json_length(spans); i++) {
        struct json_object *span = json_object_array_get_idx(spans, i);
        if (strcmp(json_get_string(span, "name", ""), name) == 0)
            return span;
    }
    fail_msg("no span is named '%s'", name);
    return NULL;
}

static void assert_child(struct json_object *child, struct json_object *parent)
{
    assert_string_equal(json_get_string(child, "parentSpanId", "none"),
        json_get_string(parent, "spanId", "missing"));
    assert_string_equal(
        json_get_string(child, "traceId", "none"), json_get_string(parent, "traceId", "missing"));
}

/* The run is the root; its turn is below it, and the call and the cell below the turn. */
static void steps_are_below_their_turn(void **state)
{
    cleanup_buf struct buf out = { 0 };
    struct json_object *spans;
    write_run("r1");
    cleanup_json struct json_object *line = export_run("r1", &out, &spans);
    struct json_object *run = span_named(spans, "invoke_agent droste"),
                       *turn = span_named(spans, "turn 1");
    assert_int_equal(json_length(spans), 4);
    assert_string_equal(json_get_string(run, "parentSpanId", ""), "");
    assert_int_equal(strlen(json_get_string(run, "traceId", "")), 32);
    assert_int_equal(strlen(json_get_string(run, "spanId", "")), 16);
    assert_child(turn, run);
    assert_child(span_named(spans, "chat m"), turn);
    assert_child(span_named(spans, "execute_tool python"), turn);
}

/* A collector that gets a run twice sees one. */
static void the_same_run_has_the_same_spans(void **state)
{
    cleanup_buf struct buf one = { 0 }, two = { 0 };
    struct json_object *spans;
    write_run("r1");
    cleanup_json struct json_object *first = export_run("r1", &one, &spans);
    cleanup_json struct json_object *second = export_run("r1", &two, &spans);
    assert_string_equal(buf_text(&one), buf_text(&two));
}

static void runs_are_traces_of_their_own(void **state)
{
    cleanup_buf struct buf one = { 0 }, two = { 0 };
    struct json_object *first, *second;
    write_run("r1");
    write_run("r2");
    cleanup_json struct json_object *line_one = export_run("r1", &one, &first);
    cleanup_json struct json_object *line_two = export_run("r2", &two, &second);
    assert_string_not_equal(
        json_get_string(span_named(first, "invoke_agent droste"), "traceId", ""),
        json_get_string(span_named(second, "invoke_agent droste"), "traceId", ""));
}

/* The trace that the program named has the run as a child of its span. */
static void a_run_joins_the_trace_of_its_traceparent(void **state)
{
    static const char settings[] =
        "{\"traceparent\": \"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\"}";
    char made[STORE_RUN_ID_SIZE];
    cleanup_buf struct buf out = { 0 };
    struct json_object *spans;
    droste_record_run begin = plain_run("r1");
    begin.settings = store_text(settings);
    assert_ok(store_run_begin(store, &begin, made, err));
    end_run(store, "r1");
    cleanup_json struct json_object *line = export_run("r1", &out, &spans);
    struct json_object *run = span_named(spans, "invoke_agent droste");
    assert_string_equal(json_get_string(run, "traceId", ""), "0af7651916cd43dd8448eb211c80319c");
    assert_string_equal(json_get_string(run, "parentSpanId", ""), "b7ad6b7169203331");
}

static void a_run_that_is_not_there_is_an_error(void **state)
{
    const char *id = "r9";
    const droste_export runs = { .runs = &id, .count = 1, .format = DROSTE_EXPORT_OTLP };
    FILE *file = fopen("/dev/null", "w");
    write_run("r1");
    assert_fails(ERROR_NOT_FOUND, otlp_write(record, &runs, file, err));
    fclose(file);
}

static void a_full_disk_is_an_error(void **state)
{
    const char *id = "r1";
    const droste_export runs = { .runs = &id, .count = 1, .format = DROSTE_EXPORT_OTLP };
    FILE *file = fopen("/dev/full", "w");
    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    write_run("r1");
    assert_fails(ERROR_IO, otlp_write(record, &runs, file, err));
    fclose(file);
}

#define otlp_test(f) cmocka_unit_test_setup_teardown(f, record_begin, record_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        otlp_test(steps_are_below_their_turn),
        otlp_test(the_same_run_has_the_same_spans),
        otlp_test(runs_are_traces_of_their_own),
        otlp_test(a_run_joins_the_trace_of_its_traceparent),
        otlp_test(a_run_that_is_not_there_is_an_error),
        otlp_test(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
