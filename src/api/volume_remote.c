/* api/volume_remote.c: see volume_remote.h. The sandbox's output is untrusted: names are
 * hexadecimal digits, and files are unpacked with the checks of volume/unpack.c into a private
 * volume of this machine.
 */
#include "api/volume_remote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/session_api.h"
#include "base/cleanup.h"
#include "base/json/json.h"
#include "volume/pack.h"

struct volume_remote {
    droste_session *session;
    const char *name;
};

/* ---- in the sandbox ---- */

/* Links are never followed, as on this machine. Directories are packed as in volume/pack.h. */
static const char library[] =
    "import base64, os, shutil, stat, struct, time\n"
    "ROOT, PACK = os.environ['DROSTE_VOLUME'], '/tmp/.droste-pack'\n"
    "class Refused(Exception): pass\n"
    "def inner(path):\n"
    "    parts = [p for p in path.split('/') if p not in ('', '.')]\n"
    "    if '..' in parts: raise Refused('argument', 'the path leads out of the volume')\n"
    "    for n in range(1, len(parts)):\n"
    "        if os.path.islink(os.path.join(ROOT, *parts[:n])):\n"
    "            raise Refused('permission', 'there is a link on the way')\n"
    "    return '/'.join(parts)\n"
    "def look(path):\n"
    "    inside = inner(path)\n"
    "    try: return inside, os.lstat(os.path.join(ROOT, inside))\n"
    "    except (FileNotFoundError, NotADirectoryError):\n"
    "        raise Refused('not_found', 'opening %s: there is no such file' % path) from None\n"
    "def row(name, s):\n"
    "    return [os.fsencode(name).hex(), s.st_mode, s.st_size, int(s.st_mtime)]\n"
    "def listed(path, depth, most):\n"
    "    inside, s = look(path)\n"
    "    if not stat.S_ISDIR(s.st_mode): return {'rows': [row(os.path.basename(inside), s)], 'more': False}\n"
    "    rows = []\n"
    "    def walk(at, prefix, left):\n"
    "        for name in sorted(os.listdir(at), key=os.fsencode):\n"
    "            if len(rows) > most: return\n"
    "            full = os.path.join(at, name)\n"
    "            try: s = os.lstat(full)\n"
    "            except FileNotFoundError: continue\n"
    "            rows.append(row(prefix + name, s))\n"
    "            if stat.S_ISDIR(s.st_mode) and left > 1: walk(full, prefix + name + '/', left - 1)\n"
    "    walk(os.path.join(ROOT, inside), '', depth)\n"
    "    return {'rows': rows[:most], 'more': len(rows) > most}\n"
    "def packed(path):\n"
    "    inside, s = look(path)\n"
    "    with open(PACK, 'wb') as out:\n"
    "        def entry(kind, name, s, size=0):\n"
    "            name = os.fsencode(name)\n"
    "            out.write(struct.pack('<BBHIQQ', kind, 0, stat.S_IMODE(s.st_mode) & 0o777, len(name), size, int(s.st_mtime)) + name)\n"
    "        def add(name):\n"
    "            full = os.path.join(ROOT, name)\n"
    "            s = os.lstat(full)\n"
    "            if stat.S_ISDIR(s.st_mode):\n"
    "                if name: entry(1, name, s)\n"
    "                for below in sorted(os.listdir(full), key=os.fsencode): add(os.path.join(name, below))\n"
    "            elif stat.S_ISREG(s.st_mode):\n"
    "                with open(full, 'rb', opener=lambda p, f: os.open(p, f | os.O_NOFOLLOW)) as f:\n"
    "                    size = os.fstat(f.fileno()).st_size\n"
    "                    entry(2, name, s, size)\n"
    "                    while size > 0:\n"
    "                        data = f.read(min(size, 1 << 20))\n"
    "                        if not data: raise Refused('io', 'the file %s changes while it is read' % name)\n"
    "                        out.write(data); size -= len(data)\n"
    "            elif stat.S_ISLNK(s.st_mode):\n"
    "                target = os.fsencode(os.readlink(full))\n"
    "                entry(3, name, s, len(target)); out.write(target)\n"
    "        above = inside.split('/')[:-1]\n"
    "        for n in range(1, len(above) + 1):\n"
    "            name = '/'.join(above[:n])\n"
    "            entry(1, name, os.lstat(os.path.join(ROOT, name)))\n"
    "        add(inside)\n"
    "        out.write(struct.pack('<BBHIQQ', 4, 0, 0, 0, 0, time.time_ns()))\n"
    "    return {'size': os.path.getsize(PACK)}\n"
    "def piece(at, size):\n"
    "    with open(PACK, 'rb') as f:\n"
    "        f.seek(at)\n"
    "        return {'data': f.read(size).hex()}\n"
    /* shutil.copytree gives directories their modes, which a bucket refuses. */
    "def copied(source, target):\n"
    "    if os.path.islink(source): os.symlink(os.readlink(source), target)\n"
    "    elif not os.path.isdir(source): shutil.copyfile(source, target)\n"
    "    else:\n"
    "        os.mkdir(target)\n"
    "        for name in os.listdir(source): copied(os.path.join(source, name), os.path.join(target, name))\n"
    "def put(source, path):\n"
    "    inside = inner(path)\n"
    "    target = os.path.join(ROOT, inside)\n"
    "    if os.path.lexists(target) and not (os.path.isfile(target) and not os.path.islink(target) and os.path.isfile(source)):\n"
    "        raise Refused('argument', 'there is something of this name, which is not replaced; remove it first')\n"
    "    os.makedirs(os.path.dirname(target), exist_ok=True)\n"
    "    copied(source, target)\n"
    "    return {}\n"
    "def do(work, *words):\n"
    "    try: answer = work(*words)\n"
    "    except Refused as e: answer = {'kind': e.args[0], 'why': e.args[1]}\n"
    "    except OSError as e: answer = {'kind': 'io', 'why': str(e)}\n"
    "    SUBMIT(**answer)\n";

enum { PIECE = 4 << 20 };

static int inner_error(const droste_error *public, struct error *err)
{
    return error_set(err, (enum error_code) public->code, "%s", public->text);
}

static int take_answer(struct volume_remote *r, const droste_result *result,
    struct json_object **out, struct error *err)
{
    size_t len = 0;
    droste_error why;
    const char *submit = droste_result_submit(result, &len);
    droste_result_error(result, &why);
    if (!submit)
        return why.code ? inner_error(&why, err)
                        : error_set(
                              err, ERROR_IO, "volume '%.64s': the sandbox did not answer", r->name);
    int rc = json_parse(submit, len, &json_limits_large, out, err);
    const char *reason = rc == 0 ? json_get_string(*out, "why", NULL) : NULL;
    if (reason)
        rc = error_set(err, error_code_named(json_get_string(*out, "kind", NULL), ERROR_IO),
            "volume '%.64s': %.150s", r->name, reason);
    return rc;
}

static int volume_remote_ask(
    struct volume_remote *r, const struct buf *code, struct json_object **out, struct error *err)
{
    droste_error why;
    droste_result *result = NULL;
    if (buf_failed(code))
        return error_memory(err);
    int rc = droste_session_exec(r->session, buf_text(code), code->len, 0, &result, &why);
    rc = rc < 0 ? inner_error(&why, err) : out ? take_answer(r, result, out, err) : 0;
    droste_result_free(result);
    return rc;
}

/* Formats a path for Python: JSON in ASCII, in which bytes that are not UTF-8 are surrogates, as in
 * os.fsdecode. */
static void put_python_text(struct buf *out, const char *text)
{
    buf_puts(out, "os.fsdecode(bytes.fromhex('");
    for (; *text; text++)
        buf_printf(out, "%02x", (unsigned char)*text);
    buf_puts(out, "'))");
}

/* ---- the sandbox ---- */

/* `staged` is a workspace for the sandbox, or NULL. */
static int volume_remote_open(droste *d, const char *name, struct workspace *staged,
    struct volume_remote *r, struct error *err)
{
    droste_error why;
    cleanup_buf struct buf code = { 0 };
    *r = (struct volume_remote){ .name = name };
    int rc = droste_set(d, "volume-name", name, &why);
    if (rc == 0)
        rc = droste_set(d, "output-limit", "256M", &why);
    if (rc == 0)
        rc = api_session_open_volume(d, staged ? workspace_hold(staged) : NULL, &r->session, &why);
    if (rc < 0)
        inner_error(&why, err);
    buf_puts(&code, library);
    if (rc == 0)
        rc = volume_remote_ask(r, &code, NULL, err);
    return rc;
}

/* Waits until the copied data is durable in the volume. Returns rc, or the reason why it is not. */
static int volume_remote_close(struct volume_remote *r, int rc, struct error *err)
{
    droste_error why;
    int ended = r->session ? droste_session_finish(r->session, &why) : 0;
    droste_session_close(r->session);
    return rc < 0 ? rc : ended < 0 ? inner_error(&why, err) : 0;
}

/* ---- what is done there ---- */

/* False if the text is not hexadecimal digits. */
static bool read_hex(const char *hex, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 2 * len; i++) {
        const char *digit = hex[i] ? strchr(digits, hex[i]) : NULL;
        if (!digit)
            return false;
        unsigned value = (unsigned)(digit - digits);
        out[i / 2] = (char)(i % 2 ? (unsigned char)out[i / 2] | value : value << 4);
    }
    return true;
}

static int tell_entry(struct json_object *row, volume_entry_fn *fn, void *arg, struct error *err)
{
    cleanup_free char *path = NULL;
    const char *hex = json_object_get_string(json_object_array_get_idx(row, 0));
    size_t len = hex ? strlen(hex) / 2 : 0;
    if (len == 0 || len > PACK_PATH_MAX || !(path = calloc(1, len + 1)) ||
        !read_hex(hex, len, path) || strlen(path) != len)
        return error_set(err, ERROR_PROTOCOL, "the sandbox lists what is not a file");
    droste_volume_entry entry = { .path = path,
        .mode = (mode_t)json_object_get_int64(json_object_array_get_idx(row, 1)),
        .size = (uint64_t)json_object_get_int64(json_object_array_get_idx(row, 2)),
        .mtime = json_object_get_int64(json_object_array_get_idx(row, 3)) };
    return fn(arg, &entry, err);
}

int volume_remote_list(droste *d, const char *name, const char *path, unsigned depth, size_t most,
    volume_entry_fn *fn, void *arg, bool *more, struct error *err)
{
    struct volume_remote r;
    cleanup_buf struct buf code = { 0 };
    cleanup_json struct json_object *answer = NULL;
    buf_puts(&code, "do(listed, ");
    put_python_text(&code, path);
    buf_printf(&code, ", %u, %zu)", depth, most);
    int rc = volume_remote_open(d, name, NULL, &r, err);
    if (rc == 0)
        rc = volume_remote_ask(&r, &code, &answer, err);
    volume_remote_close(&r, -1, NULL); /* nothing was written */
    struct json_object *rows = json_get_typed(answer, "rows", json_type_array);
    for (size_t i = 0; rc == 0 && i < json_length(rows); i++)
        rc = tell_entry(json_object_array_get_idx(rows, i), fn, arg, err);
    *more = json_get_bool(answer, "more", false);
    return rc;
}

/* Appends one piece to the file. Returns its length, 0 at the end, or an error. */
static int64_t fetch_piece(struct volume_remote *r, int64_t at, int file, struct error *err)
{
    cleanup_buf struct buf code = { 0 };
    cleanup_json struct json_object *answer = NULL;
    cleanup_free char *data = NULL;
    buf_printf(&code, "do(piece, %lld, %d)", (long long)at, PIECE);
    int rc = volume_remote_ask(r, &code, &answer, err);
    if (rc < 0)
        return rc;
    const char *hex = json_get_string(answer, "data", "");
    size_t len = strlen(hex) / 2;
    if (len > PIECE || !(data = malloc(len + 1)) || !read_hex(hex, len, data))
        return error_set(err, ERROR_PROTOCOL, "the sandbox sends what is not data");
    for (size_t sent = 0; sent < len;) {
        ssize_t n = write(file, data + sent, len - sent);
        if (n < 0)
            return error_set_errno(err, ERROR_IO, "writing what the sandbox sends");
        sent += (size_t)n;
    }
    return (int64_t)len;
}

static int volume_remote_copy(
    struct volume_remote *r, const char *path, const struct volume *into, struct error *err)
{
    cleanup_buf struct buf code = { 0 };
    cleanup_json struct json_object *answer = NULL;
    cleanup_fd int file = -1;
    struct pack_state state = { 0 };
    bool over = false;
    int64_t at = 0, n = 1;
    buf_puts(&code, "do(packed, ");
    put_python_text(&code, path);
    buf_puts(&code, ")");
    int rc = volume_remote_ask(r, &code, &answer, err);
    if (rc == 0)
        rc = volume_pack_file(into, &file, err);
    for (; rc == 0 && n > 0; at += n)
        if ((n = fetch_piece(r, at, file, err)) < 0)
            rc = (int)n;
    if (rc == 0 && lseek(file, 0, SEEK_SET) < 0)
        rc = error_set_errno(err, ERROR_IO, "reading what the sandbox has sent");
    if (rc == 0)
        rc = volume_unpack(into, file, &state, &over, err);
    list_clear(&state.paths);
    if (rc == 0 && over)
        rc = error_set(err, ERROR_IO,
            "volume '%.64s': what is to be copied is over --volume-size or --volume-files",
            r->name);
    return rc;
}

int volume_remote_fetch(
    droste *d, const char *name, const char *path, const struct volume *into, struct error *err)
{
    struct volume_remote r;
    int rc = volume_remote_open(d, name, NULL, &r, err);
    if (rc == 0)
        rc = volume_remote_copy(&r, path, into, err);
    volume_remote_close(&r, -1, NULL);
    return rc;
}

int volume_remote_put(
    droste *d, const char *name, struct workspace *staged, const char *path, struct error *err)
{
    cleanup_buf struct buf code = { 0 };
    cleanup_json struct json_object *answer = NULL;
    cleanup_buf struct buf source = { 0 };
    struct volume_remote r;
    int rc = volume_remote_open(d, name, staged, &r, err);
    if (rc < 0)
        return volume_remote_close(&r, rc, NULL);
    buf_printf(&source, "%s/put", droste_session_workspace(r.session));
    buf_puts(&code, "do(put, ");
    put_python_text(&code, buf_text(&source));
    buf_puts(&code, ", ");
    put_python_text(&code, path);
    buf_puts(&code, ")");
    rc = volume_remote_ask(&r, &code, &answer, err);
    return volume_remote_close(&r, rc, err);
}
