/* env/remote/boot.c: the host's side of the loader.
 *
 *   loader ──► RS DROSTE <magic number in hex> <version> LF       or: RS DROSTE - <reason> LF
 *   host   ──► <length> <CRC-32> <code|text> <plain|base64> <arguments of supervise()> LF, then so
 *              many bytes
 *
 * The loader repeats its greeting for an empty line, in case the transport was cut before it
 * arrived. After this exchange both ends speak the link's protocol (wire/link.h).
 */
#include "env/remote/boot.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/json/json.h"
#include "base/text.h"
#include "env/common/embedded.h"

enum {
    HEARD_MAX = 2048, /* bytes before the greeting to search */
    WORD_MAX = 300,
    MAGIC_SIZE = 4,
    FORM_HEADER = 8, /* a form in the embedded guest starts with a tag and a size */
};

/* In two pieces: the D would be another digit of the escape. */
static const char word_start[] = "\x1e"
                                 "DROSTE ";

/* Must parse in any Python, so that one that is too old can say so. Imports nothing from the
 * current directory. */
static const char loader[] =
    "import os,sys\n"
    "sys.path[:]=[p for p in sys.path if p]\n"
    "def say(t):\n"
    " os.write(1,('\\x1eDROSTE '+t+'\\n').encode('ascii','replace'))\n"
    "def read(n):\n"
    " b=bytearray()\n"
    " while len(b)<n:\n"
    "  c=os.read(0,n-len(b))\n"
    "  if not c: os._exit(0)\n"
    "  b+=c\n"
    " return bytes(b)\n"
    "v='.'.join(map(str,sys.version_info[:3]))\n"
    "i=getattr(getattr(sys,'implementation',None),'name','python')\n"
    "if os.isatty(0):\n"
    " import tty\n"
    " tty.setraw(0)\n"
    "if sys.version_info<(3,8) or i!='cpython' or not hasattr(os,'fork'):\n"
    " say('- this is '+i+' '+v+' on '+sys.platform)\n"
    " os._exit(1)\n"
    "from _frozen_importlib_external import MAGIC_NUMBER as g\n"
    "import binascii,marshal\n"
    "a=[]\n"
    "while not a:\n"
    " say(g.hex()+' '+v)\n"
    " while a[-1:]!=[b'\\n']: a.append(read(1))\n"
    " a=b''.join(a).decode().split()\n"
    "s=read(int(a[0]))\n"
    "if binascii.crc32(s)!=int(a[1]):\n"
    " say('- '+i+' '+v+' was sent a guest that did not come whole')\n"
    " os._exit(1)\n"
    "if a[3]=='base64': s=binascii.a2b_base64(s)\n"
    "if a[2]=='code':\n"
    " c=marshal.loads(s)\n"
    "else: c=compile(s,'<droste>','exec')\n"
    "m=type(os)('droste_guest');m.__file__='<droste>';sys.modules['droste_guest']=m\n"
    "exec(c,m.__dict__)\n"
    "del c,s\n"
    "m.supervise(a[4:])\n";

const char *remote_loader(void)
{
    return loader;
}

/* ---- the form of the guest for this interpreter; scripts/precompile has the format ---- */

struct form {
    const char *data;
    size_t len;
    bool is_code;
};

static struct form find_form(const unsigned char tag[MAGIC_SIZE])
{
    struct form form = { 0 };
    for (size_t at = 0; at + FORM_HEADER <= embedded_guest_size; at += FORM_HEADER + form.len) {
        const unsigned char *p = embedded_guest + at;
        form.data = (const char *)p + FORM_HEADER;
        form.len = p[4] | (size_t)p[5] << 8 | (size_t)p[6] << 16 | (size_t)p[7] << 24;
        form.is_code = memcmp(p, "text", MAGIC_SIZE) != 0;
        if (!form.is_code || memcmp(p, tag, MAGIC_SIZE) == 0)
            break; /* the source comes last and suits every version */
    }
    return form;
}

static void write_guest(
    const unsigned char tag[MAGIC_SIZE], const struct boot_options *options, struct buf *out)
{
    struct form form = find_form(tag);
    cleanup_buf struct buf lines = { 0 };
    const char *data = form.data;
    size_t len = form.len;
    bool text = options->form == LINK_TEXT;
    if (text) {
        json_append_base64(&lines, form.data, form.len);
        out->failed |= buf_failed(&lines);
        data = buf_text(&lines);
        len = lines.len;
    }
    buf_printf(out, "%zu %lu %s %s %s %.0f %d\n", len, crc32_z(0, (const Bytef *)data, len),
        form.is_code ? "code" : "text", text ? "base64" : "plain", text ? "text" : "bare",
        options->lease, options->eof_ends);
    buf_append(out, data, len);
}

/* ---- the greeting ---- */

static int boot_refuse(const char *why, size_t len, struct error *err)
{
    cleanup_buf struct buf shown = { 0 };
    text_append_visible(&shown, why, len);
    return error_set(err, ERROR_ENVIRONMENT,
        "the sandbox's python3 cannot run the guest: %.100s; use an image with CPython 3.8 or newer",
        buf_text(&shown));
}

static int read_word(const char *word, size_t len, unsigned char tag[MAGIC_SIZE], struct error *err)
{
    char text[WORD_MAX + 1];
    unsigned bytes[MAGIC_SIZE];
    int end = 0;
    snprintf(text, sizeof text, "%.*s", (int)len, word);
    if (len >= 2 && strncmp(text, "- ", 2) == 0)
        return boot_refuse(word + 2, len - 2, err);
    if (sscanf(text, "%2x%2x%2x%2x %n", &bytes[0], &bytes[1], &bytes[2], &bytes[3], &end) != 4 ||
        end == 0)
        return boot_refuse(
            "it does not say which it is", strlen("it does not say which it is"), err);
    for (int i = 0; i < MAGIC_SIZE; i++)
        tag[i] = (unsigned char)bytes[i];
    return 0;
}

static const char *find_start(const char *data, size_t len)
{
    return memmem(data, len, word_start, sizeof word_start - 1);
}

int remote_boot_feed(struct remote_boot *b, const struct boot_options *options, const char *data,
    size_t len, size_t *used, struct buf *out, struct error *err)
{
    unsigned char tag[MAGIC_SIZE];
    *used = len;
    size_t before = b->heard.len;
    buf_append(&b->heard, data, len);
    if (buf_failed(&b->heard))
        return error_memory(err);
    const char *start = find_start(buf_text(&b->heard), b->heard.len), *end = NULL;
    const char *word = start ? start + sizeof word_start - 1 : NULL;
    size_t left = 0;
    /* A greeting that was cut is incomplete, and was repeated. */
    for (const char *next = start; next;
         next = find_start(word, end ? (size_t)(end - word) : left)) {
        start = next;
        word = start + sizeof word_start - 1;
        left = b->heard.len - (size_t)(word - b->heard.data);
        end = memchr(word, '\n', left);
    }
    if (!end && left > WORD_MAX)
        return read_word("", 0, tag, err);
    if (!end) {
        if (b->heard.len > HEARD_MAX)
            buf_consume(&b->heard, b->heard.len - HEARD_MAX);
        return 0;
    }
    *used = (size_t)(end + 1 - b->heard.data) - before;
    int rc = end - word > WORD_MAX ? read_word("", 0, tag, err)
                                   : read_word(word, (size_t)(end - word), tag, err);
    b->heard.len = (size_t)(start - b->heard.data);
    if (rc < 0)
        return rc;
    write_guest(tag, options, out);
    return buf_failed(out) ? error_memory(err) : 1;
}

void remote_boot_free(struct remote_boot *b)
{
    buf_free(&b->heard);
}
