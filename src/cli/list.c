/* cli/list.c: see list.h. */
#include "cli/list.h"

#include <limits.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/terminal/screen.h"
#include "export/describe.h"
#include "export/steps.h"

enum column { ID, WHEN, STATUS, MODEL, TASK, TURNS, CALLS, TOKENS, COST, SECONDS, COLUMNS };

static const struct {
    const char *name;
    bool number; /* to the right */
} columns[COLUMNS] = {
    [ID] = { "RUN", false },
    [WHEN] = { "WHEN", false },
    [STATUS] = { "STATUS", false },
    [MODEL] = { "MODEL", false },
    [TASK] = { "BATCH:TASK", false },
    [TURNS] = { "TURNS", true },
    [CALLS] = { "CALLS", true },
    [TOKENS] = { "TOKENS", true },
    [COST] = { "COST", true },
    [SECONDS] = { "SECONDS", true },
};

/* Those that a narrow terminal does without, in this order; an id has the time, too. */
static const enum column dispensable[] = { WHEN, CALLS, TURNS, SECONDS, TOKENS, TASK, MODEL, COST };

enum {
    MODEL_CHARACTERS = 32,
    TASK_CHARACTERS = 32,
    QUESTION_CHARACTERS = 200,
    QUESTION_LEAST = 20,
};

struct row {
    struct buf cells[COLUMNS];
    struct buf question;
};

struct table {
    struct row *rows;
    size_t count;
    size_t width[COLUMNS]; /* 0: the column is not shown */
    size_t room;           /* for the question, on a terminal */
};

/* "results.jsonl:task-7"; `runs show` has the full name of the batch. */
static void fill_task(struct buf *cell, const char *batch, const char *task)
{
    cleanup_buf struct buf both = { 0 };
    const char *slash = batch ? strrchr(batch, '/') : NULL;
    if (!batch)
        return;
    buf_printf(&both, "%s:%s", slash ? slash + 1 : batch, task ? task : "");
    describe_line(cell, (droste_value){ buf_text(&both), both.len }, TASK_CHARACTERS);
}

static void fill_row(struct row *row, const droste_record_run *run)
{
    time_t seconds = (time_t)(run->started_ms / 1000);
    struct tm tm = { 0 };
    char when[32];
    localtime_r(&seconds, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    buf_puts(&row->cells[ID], run->id);
    buf_puts(&row->cells[WHEN], when);
    buf_puts(&row->cells[STATUS], run->status);
    describe_line(&row->cells[MODEL], steps_text_value(run->model), MODEL_CHARACTERS);
    fill_task(&row->cells[TASK], run->batch, run->task);
    if (run->previous) /* of a conversation */
        buf_puts(&row->question, "↳ ");
    describe_line(&row->question, run->question, QUESTION_CHARACTERS);
    if (!run->ended_ms) {
        for (enum column c = TURNS; c < COLUMNS; c++)
            if (c != COST)
                buf_putc(&row->cells[c], '-');
        return;
    }
    buf_printf(&row->cells[TURNS], "%lld", (long long)run->iterations);
    buf_printf(&row->cells[CALLS], "%lld", (long long)run->calls);
    buf_printf(&row->cells[TOKENS], "%lld", (long long)(run->input_tokens + run->output_tokens));
    if (run->cost >= 0)
        buf_printf(&row->cells[COST], "$%.4f", run->cost);
    buf_printf(&row->cells[SECONDS], "%.2f", run->seconds);
}

static size_t width_of(const struct buf *cell)
{
    return text_utf8_length(buf_text(cell), cell->len);
}

static int add_row(void *arg, const droste_record_run *run, droste_error *err)
{
    struct table *table = arg;
    struct row *rows = realloc(table->rows, (table->count + 1) * sizeof *rows);
    if (!rows)
        return error_memory(err);
    table->rows = rows;
    struct row *row = &rows[table->count++];
    *row = (struct row){ 0 };
    fill_row(row, run);
    for (enum column c = 0; c < COLUMNS; c++)
        if (width_of(&row->cells[c]) > table->width[c])
            table->width[c] = width_of(&row->cells[c]);
    return 0;
}

static void print_cell(const struct table *table, enum column c, const char *text, size_t width)
{
    if (table->width[c] == 0)
        return;
    int blanks = (int)(table->width[c] - width);
    if (columns[c].number)
        printf("%*s", blanks, "");
    cli_print(stdout, text, strlen(text));
    printf("%*s", columns[c].number ? 2 : blanks + 2, "");
}

static size_t list_width(const struct table *table)
{
    size_t used = 0;
    for (enum column c = 0; c < COLUMNS; c++)
        used += table->width[c] > 0 ? table->width[c] + 2 : 0;
    return used;
}

/* Costs and tasks are shown only if a run has some. On a terminal, a row is one line. */
static void list_lay_out(struct table *table, const struct screen *screen)
{
    for (enum column c = 0; c < COLUMNS; c++)
        if (strlen(columns[c].name) > table->width[c] &&
            (table->width[c] > 0 || (c != TASK && c != COST)))
            table->width[c] = strlen(columns[c].name);
    if (!screen->visible)
        return;
    size_t all = screen_columns(screen) - 1;
    for (size_t i = 0; i < array_length(dispensable); i++)
        if (list_width(table) + QUESTION_LEAST > all)
            table->width[dispensable[i]] = 0;
    table->room = list_width(table) < all ? all - list_width(table) : 1;
}

static void list_print_table(struct table *table)
{
    struct screen screen;
    screen_open(&screen, stdout);
    list_lay_out(table, &screen);
    for (enum column c = 0; c < COLUMNS; c++)
        print_cell(table, c, columns[c].name, strlen(columns[c].name));
    printf("%.*s\n", screen.visible ? (int)table->room : INT_MAX, "QUESTION");
    for (size_t i = 0; i < table->count; i++) {
        const struct row *row = &table->rows[i];
        cleanup_buf struct buf question = { 0 };
        for (enum column c = 0; c < COLUMNS; c++)
            print_cell(table, c, buf_text(&row->cells[c]), width_of(&row->cells[c]));
        if (screen.visible)
            screen_fit(
                &screen, &question, buf_text(&row->question), row->question.len, table->room);
        puts(buf_text(screen.visible ? &question : &row->question));
    }
    screen_close(&screen);
}

static void free_table(struct table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        for (enum column c = 0; c < COLUMNS; c++)
            buf_free(&table->rows[i].cells[c]);
        buf_free(&table->rows[i].question);
    }
    free(table->rows);
}

static int list_add_json(void *arg, const droste_record_run *run, droste_error *err)
{
    struct steps_out *out = arg;
    field_open(&out->text, NULL, '{');
    steps_run_begin(out, run);
    steps_run_end(out, run);
    steps_close(out);
    return 0;
}

int list_as_json(droste_record *record, const droste_record_filter *filter, droste_error *err)
{
    cleanup_steps struct steps_out out = { .record = record };
    field_open(&out.text, NULL, '[');
    int rc = record ? droste_record_list(record, filter, list_add_json, &out, err) : 0;
    field_close(&out.text, ']');
    if (rc == 0)
        rc = steps_flush(&out, err);
    if (rc == 0)
        cli_print_json(buf_text(&out.text));
    return rc;
}

static bool is_narrow(const droste_record_filter *filter)
{
    return filter->status || filter->model || filter->batch || filter->task;
}

static int list_show(struct table *table, bool narrow, const char *where, int rc)
{
    if (rc == 0 && table->count > 0)
        list_print_table(table);
    else if (rc == 0)
        cli_note(narrow ? "no such runs in %s; use fewer filters" : "no runs yet in %s", where);
    free_table(table);
    return rc;
}

int list_rows_as_text(
    const droste_record_run *rows, size_t count, bool narrow, const char *where, droste_error *err)
{
    struct table table = { 0 };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add_row(&table, &rows[i], err);
    return list_show(&table, narrow, where, rc);
}

int list_as_text(
    droste_record *record, const droste_record_filter *filter, const char *path, droste_error *err)
{
    struct table table = { 0 };
    int rc = record ? droste_record_list(record, filter, add_row, &table, err) : 0;
    return list_show(&table, is_narrow(filter), path, rc);
}
