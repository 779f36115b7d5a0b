/* cli/runs.c: droste runs: the record of runs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/fields.h"
#include "cli/show.h"

/* ---- the list ---- */

enum column { ID, WHEN, STATUS, MODEL, TURNS, CALLS, TOKENS, SECONDS, COLUMNS };

static const struct {
    const char *name;
    bool number; /* to the right */
} columns[COLUMNS] = {
    [ID] = { "RUN", false },
    [WHEN] = { "WHEN", false },
    [STATUS] = { "STATUS", false },
    [MODEL] = { "MODEL", false },
    [TURNS] = { "TURNS", true },
    [CALLS] = { "CALLS", true },
    [TOKENS] = { "TOKENS", true },
    [SECONDS] = { "SECONDS", true },
};

enum { MODEL_CHARACTERS = 32, QUESTION_CHARACTERS = 200, QUESTION_LEAST = 20 };

struct row {
    struct buf cells[COLUMNS];
    struct buf question;
};

struct table {
    struct row *rows;
    size_t count;
    size_t width[COLUMNS];
};

static void fill_row(struct row *row, const struct store_run *run)
{
    const struct store_run_end *e = &run->end;
    time_t seconds = (time_t)(run->started_ms / 1000);
    struct tm tm = { 0 };
    char when[32];
    localtime_r(&seconds, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    buf_puts(&row->cells[ID], run->begin.id);
    buf_puts(&row->cells[WHEN], when);
    buf_puts(&row->cells[STATUS], e->status);
    show_one_line(&row->cells[MODEL], store_text(run->begin.model), MODEL_CHARACTERS);
    show_one_line(&row->question, run->begin.question, QUESTION_CHARACTERS);
    if (!run->ended_ms) {
        for (enum column c = TURNS; c < COLUMNS; c++)
            buf_putc(&row->cells[c], '-');
        return;
    }
    buf_printf(&row->cells[TURNS], "%lld", (long long)e->iterations);
    buf_printf(&row->cells[CALLS], "%lld", (long long)e->calls);
    buf_printf(&row->cells[TOKENS], "%lld", (long long)(e->input_tokens + e->output_tokens));
    buf_printf(&row->cells[SECONDS], "%.2f", e->seconds);
}

static size_t width_of(const struct buf *cell)
{
    return text_utf8_length(buf_text(cell), cell->len);
}

static int add_row(void *arg, const struct store_run *run, struct error *err)
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
    int blanks = (int)(table->width[c] - width);
    if (columns[c].number)
        printf("%*s", blanks, "");
    cli_print(stdout, text, strlen(text));
    printf("%*s", columns[c].number ? 2 : blanks + 2, "");
}

/* The characters that are left for the question on a terminal; all of them elsewhere. */
static size_t room_for_question(const struct table *table)
{
    struct winsize size;
    size_t used = 0;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return QUESTION_CHARACTERS;
    for (enum column c = 0; c < COLUMNS; c++)
        used += table->width[c] + 2;
    return size.ws_col > used + QUESTION_LEAST ? size.ws_col - used - 1 : QUESTION_LEAST;
}

static void print_table(struct table *table)
{
    for (enum column c = 0; c < COLUMNS; c++)
        if (strlen(columns[c].name) > table->width[c])
            table->width[c] = strlen(columns[c].name);
    size_t room = room_for_question(table);
    for (enum column c = 0; c < COLUMNS; c++)
        print_cell(table, c, columns[c].name, strlen(columns[c].name));
    puts("QUESTION");
    for (size_t i = 0; i < table->count; i++) {
        const struct row *row = &table->rows[i];
        cleanup_buf struct buf question = { 0 };
        for (enum column c = 0; c < COLUMNS; c++)
            print_cell(table, c, buf_text(&row->cells[c]), width_of(&row->cells[c]));
        struct store_value all = { buf_text(&row->question), row->question.len };
        show_one_line(&question, all, room);
        cli_print(stdout, buf_text(&question), question.len);
        putchar('\n');
    }
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

static int add_json(void *arg, const struct store_run *run, struct error *err)
{
    struct buf *out = arg;
    field_open(out, NULL, '{');
    show_run_fields(out, run);
    field_close(out, '}');
    return buf_failed(out) ? error_memory(err) : 0;
}

static int list_as_json(struct store *store, const struct store_filter *filter, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '[');
    int rc = store ? store_run_list(store, filter, add_json, &out, err) : 0;
    field_close(&out, ']');
    if (rc == 0)
        printf("%s\n", buf_text(&out));
    return rc;
}

static int list_as_text(struct store *store, const struct store_filter *filter, const char *path,
    struct error *err)
{
    struct table table = { 0 };
    int rc = store ? store_run_list(store, filter, add_row, &table, err) : 0;
    if (rc == 0 && table.count > 0)
        print_table(&table);
    else if (rc == 0)
        cli_fail(0, "no runs yet in %s", path);
    free_table(&table);
    return rc;
}

/* ---- the command ---- */

struct request {
    const char *words[2]; /* ls, or show and the beginning of an id */
    size_t count;
    const char *limit, *database;
    bool json, full;
};

int cli_record_path(droste *d, char **out, struct error *err)
{
    cleanup_free char *home = NULL;
    const char *given = d->settings.database;
    struct buf path = { 0 };
    int rc = given ? 0 : file_data_home(&home, err);
    if (rc < 0)
        return rc;
    if (given)
        buf_puts(&path, given);
    else
        buf_printf(&path, "%s/runs.db", home);
    *out = buf_steal(&path);
    return *out ? 0 : error_memory(err);
}

/* Looking at a record must not make one: *store stays NULL where there is none. */
static int open_record(const char *path, struct store **store, struct error *err)
{
    if (strcmp(path, "none") == 0)
        return error_set(err, ERROR_CONFIG, "the record is turned off (database = none)");
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return 0;
    return store_open(path, store, err);
}

static int show(struct store *store, const struct request *r, const char *path, struct error *err)
{
    char id[STORE_RUN_ID_SIZE];
    if (!store)
        return error_set(err, ERROR_NOT_FOUND, "no run '%.64s': there is no record at %.120s yet",
            r->words[1], path);
    int rc = store_run_find(store, r->words[1], id, err);
    if (rc < 0)
        return rc;
    return r->json ? show_as_json(store, id, err) : show_as_text(store, id, r->full, err);
}

static int look(droste *d, const struct request *r, const struct store_filter *filter)
{
    cleanup_free char *path = NULL;
    struct store *store = NULL;
    struct error err = { 0 };
    int rc = cli_record_path(d, &path, &err);
    if (rc == 0)
        rc = open_record(path, &store, &err);
    if (rc == 0 && r->count == 2)
        rc = show(store, r, path, &err);
    else if (rc == 0 && r->json)
        rc = list_as_json(store, filter, &err);
    else if (rc == 0)
        rc = list_as_text(store, filter, path, &err);
    store_close(store);
    if (rc < 0)
        return cli_inner_error(&err);
    if (fflush(stdout) != 0)
        return cli_fail(EXIT_ENVIRONMENT, "writing: %s", strerror(errno));
    return EXIT_FINE;
}

static int check(const struct command *self, const struct request *r, struct store_filter *filter)
{
    bool ls = r->count == 1 && strcmp(r->words[0], "ls") == 0;
    bool show = r->count == 2 && strcmp(r->words[0], "show") == 0;
    char *end = NULL;
    if (r->count == 1 && strcmp(r->words[0], "show") == 0)
        return cli_usage(self, "show which run? `droste runs ls` lists them");
    if (!ls && !show)
        return cli_usage(self, "say `ls`, or `show` and the beginning of a run's id");
    if (r->limit)
        filter->limit = strtoll(r->limit, &end, 10);
    if (r->limit && (!ls || end == r->limit || *end || filter->limit < 1))
        return cli_usage(self, "--limit takes a number of runs to list, 1 or more");
    return -1;
}

static int run(const struct command *self, int argc, char **argv)
{
    struct request r = { 0 };
    struct store_filter filter = { .limit = 20 };
    const struct flag flags[] = {
        { "limit", "N", "How many runs to list, the newest first [20].", &r.limit, NULL },
        { "json", NULL, "Print JSON.", NULL, &r.json },
        { "full", NULL, "Shorten nothing; prompts too.", NULL, &r.full },
        { "database", "FILE", "The record ($DROSTE_DATABASE).", &r.database, NULL },
        { 0 },
    };
    droste *d = NULL;
    droste_error err;
    if (droste_new(&d, &err) < 0)
        return cli_error(&err);
    int status = cli_parse(self, argc, argv, flags, d, r.words, 2, &r.count);
    if (status < 0)
        status = check(self, &r, &filter);
    if (status < 0 && r.database && droste_set(d, "database", r.database, &err) < 0)
        status = cli_error(&err);
    if (status < 0)
        status = look(d, &r, &filter);
    droste_free(d);
    return status;
}

const struct command command_runs = {
    .name = "runs",
    .synopsis = "ls [--limit N] [--json] | show RUN [--full] [--json]",
    .summary = "list past runs, or show one turn by turn",
    .details =
        "RUN is a run's id or its beginning. In what `show` prints, `<` is what a model was asked\n"
        "(with --full), `>` code, `|` output, `|!` standard error, `!` an exception, `=` what was\n"
        "submitted. A run whose process is gone before its end is `interrupted`.\n"
        "Exit status: 0, 2 usage or no such run, 1 the record cannot be read.\n",
    .examples = "  droste runs ls\n"
                "  droste runs ls --limit 100 --json\n"
                "  droste runs show 20261120-1915\n"
                "  droste runs show 20261120-1915 --full | less\n",
    .run = run,
};
