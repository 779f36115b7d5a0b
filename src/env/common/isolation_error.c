/* env/common/isolation_error.c: composes the explanation of unavailable isolation. */
#include "env/common/isolation_error.h"

#include <string.h>

#include "base/buf.h"
#include "base/text.h"

const enum isolation isolation_auto_levels[ISOLATION_AUTO_LEVELS] = { ISOLATION_FULL,
    ISOLATION_LIGHT, ISOLATION_LANDLOCK };

int isolation_error(enum isolation isolation, struct error *err)
{
    static const char cure[] = ". `droste doctor` says what is missing; for code that you trust, "
                               "--isolation process";
    if (!err)
        return -(int)ERROR_UNSUPPORTED;
    struct error why = *err;
    error_set(err, ERROR_UNSUPPORTED, "isolation '%s' is not available here: %s",
        isolation_name(isolation), why.text);
    size_t len = strlen(err->text);
    if (len + sizeof cure <= sizeof err->text)
        memcpy(err->text + len, cure, sizeof cure);
    return -(int)ERROR_UNSUPPORTED;
}

static bool is_said_before(const struct error why[ISOLATION_AUTO_LEVELS], size_t level)
{
    bool found = false;
    for (size_t i = 0; i < level; i++)
        found = found || strcmp(why[i].text, why[level].text) == 0;
    return found;
}

/* A sentence of at most so many bytes: the levels that share a reason, and the reason. */
static void put_reason(
    struct buf *out, const struct error why[ISOLATION_AUTO_LEVELS], size_t first, size_t most)
{
    const char *reason = why[first].text;
    size_t start = out->len, len = strlen(reason);
    for (size_t i = first; i < ISOLATION_AUTO_LEVELS; i++)
        if (strcmp(why[i].text, reason) == 0)
            buf_printf(
                out, "%s%s", i > first ? ", " : " ", isolation_name(isolation_auto_levels[i]));
    size_t used = out->len - start + strlen(": ….");
    size_t room = most > used ? most - used : 0;
    size_t shown = len <= room ? len : text_utf8_floor(reason, len, room);
    buf_printf(out, ": %.*s%s.", (int)shown, reason, shown < len ? "…" : "");
}

/* A sentence for each reason; if they are too long together, each is shortened. */
int isolation_error_all(const struct error why[ISOLATION_AUTO_LEVELS], struct error *err)
{
    static const char begin[] = "no isolation level is available here.";
    static const char end[] = " See `droste doctor`; for trusted code: --isolation process";
    enum { ROOM = sizeof err->text - sizeof begin - sizeof end };
    cleanup_buf struct buf text = { 0 };
    size_t reasons = 0;
    for (size_t i = 0; i < ISOLATION_AUTO_LEVELS; i++)
        if (!is_said_before(why, i) && ++reasons)
            put_reason(&text, why, i, sizeof err->text);
    bool fits = text.len <= ROOM;
    if (!fits)
        buf_clear(&text);
    for (size_t i = 0; i < ISOLATION_AUTO_LEVELS && !fits; i++)
        if (!is_said_before(why, i))
            put_reason(&text, why, i, ROOM / reasons);
    return error_set(err, ERROR_UNSUPPORTED, "%s%s%s", begin, buf_text(&text), end);
}
