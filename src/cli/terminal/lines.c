/* cli/terminal/lines.c: see lines.h.
 *
 * Signals are blocked except while waiting for a key (ppoll) and while the library runs a cell: a
 * signal between the check of a flag and the wait would be noticed a line too late. On a terminal,
 * libedit edits the line and calls read_character for each key; otherwise, lines are split from the
 * bytes of read(2).
 */
#include "cli/terminal/lines.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "base/os/file.h"
#include "base/text.h"
#include "cli/cli.h"

enum { HISTORY_SIZE = 2000, READ_SIZE = 65536 };

struct lines {
    sigset_t outside; /* the mask that lets signals in */
    EditLine *edit;   /* NULL: no terminal */
    History *history;
    char *history_file;
    const char *prompt;
    lines_complete_fn *complete; /* NULL: Tab is a character */
    void *complete_arg;
    struct buf unread; /* of a pipe */
    bool ended;
};

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

static volatile sig_atomic_t caught, resized;
static droste *volatile busy;

static void lines_on_signal(int number)
{
    caught = number;
    if (busy)
        droste_interrupt(busy);
}

static void on_resize(int number)
{
    resized = 1;
}

static enum lines_event take_signal(void)
{
    int number = caught;
    caught = 0;
    if (number == 0)
        return LINES_LINE;
    return number == SIGINT ? LINES_INTERRUPT : LINES_LEAVE;
}

/* Without SA_RESTART, so that a wait ends. */
static void catch_signals(struct lines *l)
{
    struct sigaction action = { .sa_handler = lines_on_signal };
    struct sigaction resize = { .sa_handler = on_resize };
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < array_length(signals); i++) {
        sigaction(signals[i], &action, NULL);
        sigaddset(&blocked, signals[i]);
    }
    sigaction(SIGWINCH, &resize, NULL);
    sigaddset(&blocked, SIGWINCH);
    sigprocmask(SIG_BLOCK, &blocked, &l->outside);
}

void lines_busy(struct lines *l, droste *d)
{
    busy = d;
    sigprocmask(SIG_SETMASK, &l->outside, NULL);
}

enum lines_event lines_busy_end(struct lines *l)
{
    sigset_t blocked;
    busy = NULL;
    sigemptyset(&blocked);
    for (size_t i = 0; i < array_length(signals); i++)
        sigaddset(&blocked, signals[i]);
    sigaddset(&blocked, SIGWINCH);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    return take_signal();
}

/* True when there is something to read, false when a signal came. */
static bool wait_for_input(struct lines *l)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    while (!caught) {
        if (resized && l->edit)
            el_resize(l->edit);
        resized = 0;
        int n = ppoll(&p, 1, NULL, &l->outside);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* read(2) reports any error */
    }
    return false;
}

/* ---- a terminal ---- */

/* libedit's reader: 1 a character, 0 the end, -1 leave the line. */
static int read_character(EditLine *edit, wchar_t *out)
{
    struct lines *l;
    mbstate_t state = { 0 };
    el_get(edit, EL_CLIENTDATA, &l);
    for (;;) {
        char byte;
        if (!wait_for_input(l))
            return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n <= 0)
            return (int)n;
        size_t rc = mbrtowc(out, &byte, 1, &state);
        if (rc == (size_t)-1)
            state = (mbstate_t){ 0 };
        else if (rc != (size_t)-2)
            return 1;
    }
}

static char *give_prompt(EditLine *edit)
{
    struct lines *l;
    el_get(edit, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)l->prompt;
}

/* ---- completion ---- */

enum { COMPLETIONS_MAX = 200 };

static bool is_name_byte(char c)
{
    return c == '_' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

/* A candidate comes from the sandbox: it must be the word with more of a name behind it. */
static bool candidate_is_fine(const char *text, size_t len, const char *word, size_t word_len)
{
    if (len < word_len || memcmp(text, word, word_len) != 0)
        return false;
    for (size_t i = word_len; i < len; i++)
        if (!is_name_byte(text[i]) && !strchr("() ", text[i]))
            return false;
    return true;
}

struct candidates {
    struct list names;
    size_t common; /* bytes that all of them begin with */
};

static void take_candidates(
    struct candidates *c, const struct buf *found, const char *word, size_t word_len)
{
    const char *at = buf_text(found), *end = at + found->len;
    while (at < end && c->names.count < COMPLETIONS_MAX) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((newline ? newline : end) - at);
        cleanup_free char *name =
            candidate_is_fine(at, len, word, word_len) ? text_copy(at, len) : NULL;
        if (name && list_add(&c->names, name, NULL) == 0) {
            const char *first = c->names.items[0];
            size_t same = 0;
            while (first[same] && first[same] == name[same])
                same++;
            c->common = c->names.count == 1 || same < c->common ? same : c->common;
        }
        at += len + (newline != NULL);
    }
}

static void show_candidates(const struct list *names)
{
    putchar('\n');
    for (size_t i = 0; i < names->count; i++) {
        cli_print(stdout, names->items[i], strlen(names->items[i]));
        fputs(i + 1 < names->count ? "  " : "\n", stdout);
    }
    fflush(stdout);
}

static unsigned char complete_word(EditLine *edit, int key)
{
    struct lines *l;
    cleanup_buf struct buf found = { 0 }, rest = { 0 };
    struct candidates c = { 0 };
    unsigned char did = CC_ERROR;
    el_get(edit, EL_CLIENTDATA, &l);
    const LineInfo *line = el_line(edit);
    const char *word = line->cursor;
    while (word > line->buffer && is_name_byte(word[-1]))
        word--;
    size_t len = (size_t)(line->cursor - word);
    if (len == 0)
        return el_insertstr(edit, "    ") < 0 ? CC_ERROR : CC_REFRESH;
    l->complete(l->complete_arg, word, len, &found);
    take_candidates(&c, &found, word, len);
    if (c.common > len) {
        buf_append(&rest, c.names.items[0] + len, c.common - len);
        did = el_insertstr(edit, buf_text(&rest)) < 0 ? CC_ERROR : CC_REFRESH;
    } else if (c.names.count > 1) {
        show_candidates(&c.names);
        did = CC_REDISPLAY;
    }
    list_clear(&c.names);
    return did;
}

void lines_complete_with(struct lines *l, lines_complete_fn *fn, void *arg)
{
    l->complete = fn;
    l->complete_arg = arg;
    if (!l->edit)
        return;
    el_set(l->edit, EL_ADDFN, "droste-complete", "Completes a name", complete_word);
    el_set(l->edit, EL_BIND, "^I", "droste-complete", NULL);
}

void lines_remember(struct lines *l, const struct buf *text)
{
    HistEvent event;
    if (l->history && memchr(buf_text(text), '\n', text->len))
        history(l->history, &event, H_ENTER, buf_text(text));
}

/* Creates the file here, because libedit would create it readable by others. */
static int open_history(struct lines *l, struct error *err)
{
    cleanup_free char *home = NULL;
    struct buf path = { 0 };
    HistEvent event;
    int rc = file_data_home(&home, err);
    if (rc == 0)
        rc = file_make_directories(home, err);
    if (rc < 0)
        return rc;
    buf_printf(&path, "%s/history", home);
    cleanup_free char *file = buf_steal(&path);
    if (!file)
        return error_memory(err);
    cleanup_fd int fd = file_open(file, O_RDWR | O_CREAT, 0, "the history", err);
    if (fd < 0)
        return fd;
    history(l->history, &event, H_LOAD, file);
    l->history_file = steal(&file);
    return 0;
}

/* Without a UTF-8 locale, libedit would show é as two characters. */
static void set_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static int open_terminal(struct lines *l, struct error *err)
{
    HistEvent event;
    struct error why = { 0 };
    set_locale();
    l->edit = el_init("droste", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->edit || !l->history)
        return error_memory(err);
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_PROMPT, give_prompt);
    el_set(l->edit, EL_GETCFN, read_character);
    el_set(l->edit, EL_BIND, "^I", "ed-insert", NULL);
    el_set(l->edit, EL_HIST, history, l->history);
    el_source(l->edit, NULL); /* ~/.editrc */
    history(l->history, &event, H_SETSIZE, HISTORY_SIZE);
    history(l->history, &event, H_SETUNIQUE, 1);
    if (open_history(l, &why) < 0)
        cli_note("the history will not be kept: %s", why.text);
    return 0;
}

static enum lines_event read_terminal(struct lines *l, struct buf *line)
{
    int count = 0;
    HistEvent event;
    /* Before the prompt is shown: keys typed at it must not reach the kernel's line editing,
     * which would swallow a Ctrl-D. */
    el_set(l->edit, EL_PREP_TERM, 1);
    const char *text = el_gets(l->edit, &count);
    if (!text || count <= 0)
        return caught ? take_signal() : LINES_END;
    buf_append(line, text, (size_t)count);
    if (line->len > 0 && line->data[line->len - 1] == '\n')
        line->data[--line->len] = '\0';
    if (strspn(buf_text(line), " \t") < line->len)
        history(l->history, &event, H_ENTER, buf_text(line));
    return LINES_LINE;
}

/* ---- a pipe or a file ---- */

static bool lines_take_line(struct lines *l, struct buf *line)
{
    const char *text = buf_text(&l->unread), *end = memchr(text, '\n', l->unread.len);
    if (!end && !(l->ended && l->unread.len > 0))
        return false;
    size_t n = end ? (size_t)(end - text) : l->unread.len;
    buf_append(line, text, n);
    buf_consume(&l->unread, n + (end != NULL));
    return true;
}

static enum lines_event read_pipe(struct lines *l, struct buf *line)
{
    while (!lines_take_line(l, line)) {
        if (l->ended)
            return LINES_END;
        if (!wait_for_input(l))
            return take_signal();
        if (!buf_reserve(&l->unread, READ_SIZE))
            return LINES_END;
        ssize_t n = read(STDIN_FILENO, l->unread.data + l->unread.len, READ_SIZE);
        l->ended = n <= 0;
        if (n > 0)
            l->unread.len += (size_t)n;
    }
    return LINES_LINE;
}

/* ---- both ---- */

int lines_open(struct lines **out, struct error *err)
{
    struct lines *l = calloc(1, sizeof *l);
    int rc = 0;
    if (!l)
        return error_memory(err);
    catch_signals(l);
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        rc = open_terminal(l, err);
    if (rc < 0) {
        lines_close(l);
        return rc;
    }
    *out = l;
    return 0;
}

void lines_close(struct lines *l)
{
    HistEvent event;
    if (!l)
        return;
    if (l->history_file)
        history(l->history, &event, H_SAVE, l->history_file);
    if (l->edit)
        el_end(l->edit);
    if (l->history)
        history_end(l->history);
    buf_free(&l->unread);
    free(l->history_file);
    free(l);
}

bool lines_is_terminal(const struct lines *l)
{
    return l->edit != NULL;
}

enum lines_event lines_read(struct lines *l, const char *prompt, struct buf *line)
{
    l->prompt = prompt;
    return l->edit ? read_terminal(l, line) : read_pipe(l, line);
}
