/* serve/console.c: the console: files that are part of the program, and what browsers may do with
 * them.
 *
 * The page runs only this server's script and asks only this server. It holds texts of guests, so
 * it may make no markup of a text: the one policy of trusted types is that of the document that
 * tables of results are read from, which is never shown (web/results.js).
 */
#include "serve/console.h"

#include <string.h>

#include "base/cleanup.h"
#include "serve/embedded.h"
#include "serve/http/request.h"

#define CONSOLE_PAGE                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "      \
    "'script'; trusted-types droste-tables"
#define CONSOLE_FILE "default-src 'none'; sandbox"

static const struct console_file {
    const char *name, *type, *policy;
    const unsigned char *data;
    const size_t *size;
} console_files[] = {
    { "", "text/html; charset=utf-8", CONSOLE_PAGE, embedded_console_html,
        &embedded_console_html_size },
    { "console.css", "text/css; charset=utf-8", CONSOLE_FILE, embedded_console_css,
        &embedded_console_css_size },
    { "console.js", "text/javascript; charset=utf-8", CONSOLE_FILE, embedded_console_js,
        &embedded_console_js_size },
};

static void handle_console(struct request *r)
{
    for (size_t i = 0; i < array_length(console_files); i++) {
        const struct console_file *f = &console_files[i];
        if (strcmp(f->name, r->name) != 0)
            continue;
        request_reply(r, 200, f->type, f->data, *f->size);
        request_header(r, "Content-Security-Policy", f->policy);
        request_header(r, "Referrer-Policy", "no-referrer");
        request_header(r, "Cross-Origin-Resource-Policy", "same-origin");
        return;
    }
    request_refuse(r, 404, "not_found", "the console has no file '%s'", r->name);
}

static const struct route console_rows[] = {
    { "GET", "/", BODY_NONE, NULL, NULL, 200, "text/html", NULL, "the console", handle_console,
        SCOPE_NONE },
    { "GET", "/console/{name}", BODY_NONE, NULL, NULL, 200, NULL, NULL, "a file of the console",
        handle_console, SCOPE_NONE },
};

const struct routes console_routes = { .rows = console_rows, .count = array_length(console_rows) };
