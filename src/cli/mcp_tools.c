/* cli/mcp_tools.c: see mcp_tools.h. A sandbox prints them, so that they are what its code finds. */
#include "cli/mcp_tools.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"

static const char shown[] =
    "import inspect as _inspect, textwrap as _textwrap\n"
    "for _name in _names:\n"
    "    _module = getattr(__builtins__, _name, None) or {}\n"
    "    for _function in getattr(_module, '__functions__', {}).values():\n"
    "        print('%s.%s%s' % (_name, _function.__name__, _inspect.signature(_function)))\n"
    "        if _function.__doc__:\n"
    "            print(_textwrap.indent(_function.__doc__, '    '))\n"
    "        print()\n";

/* Prints what the cell has printed, and what it failed with. */
static int mcp_print_result(const droste_result *r, struct error *err)
{
    cleanup_buf struct buf seen = { 0 };
    size_t len;
    const char *text = droste_result_stdout(r, &len);
    if (strcmp(droste_result_status(r), "ok") != 0)
        return error_set(err, ERROR_LOST, "listing the functions failed: %.200s",
            droste_result_message(r) ? droste_result_message(r) : droste_result_status(r));
    text_append_visible(&seen, text, text ? len : 0);
    fputs(buf_text(&seen), stdout);
    return 0;
}

int mcp_tools(const struct command *self, droste *d, const char *const *servers, size_t count)
{
    cleanup_buf struct buf code = { 0 };
    droste_session *session = NULL;
    droste_result *result = NULL;
    struct error err = { 0 };
    int rc = 0;
    if (count == 0)
        return cli_usage(self, "tools: expected NAME=COMMAND or NAME=URL");
    buf_puts(&code, "_names = (");
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const char *equals = strchr(servers[i], '=');
        rc = droste_set(d, "mcp-server", servers[i], &err);
        buf_putc(&code, '\'');
        buf_append(&code, servers[i], equals ? (size_t)(equals - servers[i]) : 0);
        buf_puts(&code, "',");
    }
    buf_printf(&code, ")\n%s", shown);
    if (rc == 0)
        rc = droste_session_open(d, &session, &err);
    if (rc == 0)
        rc = droste_session_exec(session, code.data, code.len, 0, &result, &err);
    if (rc == 0)
        rc = mcp_print_result(result, &err);
    droste_result_free(result);
    droste_session_close(session);
    return cli_end(rc, &err, "the functions");
}
