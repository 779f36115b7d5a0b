/* serve/access/keys.c: see keys.h.
 *
 * The file is JSON, {"keys": [{"id", "name", "hash", "scopes", "limits", "net", …}]}. A change
 * reads it, writes all of it to a new file and renames that, under a lock, so that a reader or a
 * crash never sees half of it, and two changes at once both count.
 */
#include "serve/access/keys.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/suggest.h"
#include "base/text.h"
#include "droste.h"

static const char key_prefix[] = "e2b_";

/* ---- scopes ---- */

static const struct {
    const char *name;
    unsigned bit;
} key_scopes[] = { { "read", SCOPE_READ }, { "sandboxes", SCOPE_SANDBOXES }, { "runs", SCOPE_RUNS },
    { "approvals", SCOPE_APPROVALS }, { "models", SCOPE_MODELS }, { "metrics", SCOPE_METRICS },
    { "admin", SCOPE_ADMIN } };

static int key_scope_refuse(const char *text, size_t len, struct error *err)
{
    cleanup_free char *word = strndup(text, len < 64 ? len : 64);
    return word ? suggest_refuse("scope", word, &key_scopes[0].name, sizeof key_scopes[0],
                      array_length(key_scopes), err)
                : error_memory(err);
}

int key_scopes_parse(const char *text, unsigned *out, struct error *err)
{
    *out = 0;
    for (;;) {
        size_t n = strcspn(text, ","), i = 0;
        while (i < array_length(key_scopes) &&
               (strlen(key_scopes[i].name) != n || strncmp(key_scopes[i].name, text, n) != 0))
            i++;
        if (i == array_length(key_scopes))
            return key_scope_refuse(text, n, err);
        *out |= key_scopes[i].bit;
        if (text[n] == '\0')
            return 0;
        text += n + 1;
    }
}

void key_scopes_print(unsigned scopes, struct buf *out)
{
    const char *comma = "";
    for (size_t i = 0; i < array_length(key_scopes); i++)
        if (scopes & key_scopes[i].bit) {
            buf_printf(out, "%s%s", comma, key_scopes[i].name);
            comma = ",";
        }
}

/* ---- limits ---- */

enum limit_kind { LIMIT_COUNT, LIMIT_NUMBER, LIMIT_SECONDS, LIMIT_SETTING, LIMIT_DEVICE };

#define LIMIT_AT(member) offsetof(struct key_limits, member)

static const struct key_limit {
    const char *name;
    enum limit_kind kind;
    size_t at;
} key_limits[] = {
    { "sandboxes", LIMIT_COUNT, LIMIT_AT(sandboxes) },
    { "starts", LIMIT_NUMBER, LIMIT_AT(starts) },
    { "memory", LIMIT_SETTING, LIMIT_AT(memory) },
    { "cpus", LIMIT_SETTING, LIMIT_AT(cpus) },
    { "device", LIMIT_DEVICE, LIMIT_AT(device) },
    { "life", LIMIT_SECONDS, LIMIT_AT(life_seconds) },
    { "idle", LIMIT_SECONDS, LIMIT_AT(idle_seconds) },
    { "cost", LIMIT_NUMBER, LIMIT_AT(cost) },
};

static bool limit_is_text(enum limit_kind kind)
{
    return kind == LIMIT_SETTING || kind == LIMIT_DEVICE;
}

/* `droste keys create` asks the table of settings, and a sandbox checks its device; this only
 * keeps a line of the file a word. */
static bool limit_is_word(enum limit_kind kind, const char *value)
{
    static const char device[] = "nvidia";
    size_t n = kind == LIMIT_DEVICE ? strlen(device) : 0;
    if (!*value || strlen(value) >= KEY_SETTING_SIZE || strncmp(value, device, n) != 0)
        return false;
    value += n;
    return strspn(value, n ? ":,0123456789" : "0123456789.KMGTkmgtiB") == strlen(value);
}

static bool limit_set(struct key_limits *limits, const struct key_limit *l, const char *value)
{
    void *at = (char *)limits + l->at;
    char *end = NULL;
    double number = limit_is_text(l->kind) ? 1 : text_to_double(value, &end);
    if (limit_is_text(l->kind)) {
        if (!limit_is_word(l->kind, value))
            return false;
        strcpy(at, value);
        return true;
    }
    if (l->kind == LIMIT_SECONDS)
        return droste_parse_seconds(value, at) && *(double *)at > 0;
    if (end == value || *end || !(number > 0 && number <= 1e9))
        return false;
    if (l->kind == LIMIT_NUMBER) {
        *(double *)at = number;
        return true;
    }
    *(int64_t *)at = (int64_t)number;
    return (double)(int64_t)number == number;
}

int key_limit_parse(struct key_limits *limits, const char *text, struct error *err)
{
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : strlen(text);
    for (size_t i = 0; i < array_length(key_limits); i++) {
        const struct key_limit *l = &key_limits[i];
        if (!equals || strlen(l->name) != n || strncmp(l->name, text, n) != 0)
            continue;
        if (limit_set(limits, l, equals + 1))
            return 0;
        return error_set(
            err, ERROR_ARGUMENT, "the limit %s is not a valid number, size, time or device", text);
    }
    return error_set(err, ERROR_ARGUMENT,
        "'%s' is not a limit: expected sandboxes=N, starts=N (a second), memory=SIZE, cpus=N, "
        "device=DEVICE, life=TIME, idle=TIME or cost=DOLLARS (a day)",
        text);
}

static void limit_print(const struct key_limits *limits, const struct key_limit *l, struct buf *out)
{
    const void *at = (const char *)limits + l->at;
    if (limit_is_text(l->kind))
        buf_puts(out, at);
    else if (l->kind == LIMIT_COUNT)
        buf_printf(out, "%lld", (long long)*(const int64_t *)at);
    else
        json_append_number(out, *(const double *)at);
}

static bool limit_is_set(const struct key_limits *limits, const struct key_limit *l)
{
    const void *at = (const char *)limits + l->at;
    if (limit_is_text(l->kind))
        return *(const char *)at != '\0';
    return l->kind == LIMIT_COUNT ? *(const int64_t *)at > 0 : *(const double *)at > 0;
}

void key_limits_print(const struct key_limits *limits, struct buf *out)
{
    const char *space = "";
    for (size_t i = 0; i < array_length(key_limits); i++)
        if (limit_is_set(limits, &key_limits[i])) {
            buf_printf(out, "%s%s=", space, key_limits[i].name);
            limit_print(limits, &key_limits[i], out);
            space = " ";
        }
}

/* ---- destinations ---- */

/* The texts stand one behind the other, with an empty one behind the last. */
const char *key_net_next(const struct key *key, const char *rule)
{
    const char *next = rule ? rule + strlen(rule) + 1 : key->net;
    return *next ? next : NULL;
}

int key_net_add(struct key *key, const char *rule, struct error *err)
{
    droste_error why;
    size_t used = 0, len = strlen(rule) + 1;
    if (droste_network_covers(rule, rule, &why) < 0)
        return error_set(err, ERROR_ARGUMENT, "%s", why.text);
    for (const char *at = NULL; (at = key_net_next(key, at));)
        used = (size_t)(at - key->net) + strlen(at) + 1;
    if (used + len >= sizeof key->net)
        return error_set(err, ERROR_ARGUMENT,
            "the destinations of a key have at most %zu bytes together", sizeof key->net - 1);
    memcpy(key->net + used, rule, len);
    return 0;
}

/* ---- reading ---- */

int keys_default_path(char **out, struct error *err)
{
    cleanup_free char *home = NULL;
    if (file_data_home(&home, err) < 0)
        return -1;
    *out = text_printf("%s/keys.json", home);
    return *out ? 0 : error_memory(err);
}

static bool key_is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static int key_parse(struct json_object *o, struct key *key, struct error *err)
{
    const char *name = json_get_string(o, "name", ""), *hash = json_get_string(o, "hash", "");
    struct json_object *scopes = json_get_typed(o, "scopes", json_type_array);
    struct json_object *limits = json_get_typed(o, "limits", json_type_array);
    struct json_object *net = json_get_typed(o, "net", json_type_array);
    unsigned bit;
    if (!key_is_hex(hash, HASH_TEXT_SIZE - 1) || strlen(name) >= KEY_NAME_SIZE)
        return error_set(err, ERROR_CONFIG, "a key has no valid hash or name");
    strcpy(key->hash, hash);
    strcpy(key->name, name);
    memcpy(key->id, hash, KEY_ID_SIZE - 1);
    key->created_ms = json_get_int(o, "created_ms", 0);
    key->expires_ms = json_get_int(o, "expires_ms", 0);
    for (size_t i = 0; i < json_length(scopes); i++) {
        const char *text = json_object_get_string(json_object_array_get_idx(scopes, i));
        if (key_scopes_parse(text ? text : "", &bit, err) < 0)
            return -ERROR_CONFIG;
        key->scopes |= bit;
    }
    for (size_t i = 0; i < json_length(limits); i++) {
        const char *text = json_object_get_string(json_object_array_get_idx(limits, i));
        if (key_limit_parse(&key->limits, text ? text : "", err) < 0)
            return -ERROR_CONFIG;
    }
    for (size_t i = 0; i < json_length(net); i++) {
        const char *text = json_object_get_string(json_object_array_get_idx(net, i));
        if (key_net_add(key, text ? text : "", err) < 0)
            return -ERROR_CONFIG;
    }
    return 0;
}

static int keys_parse(const struct buf *text, struct keys *out, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    if (json_parse(buf_text(text), text->len, &json_limits_large, &o, err) < 0)
        return -1;
    struct json_object *list = json_get_typed(o, "keys", json_type_array);
    size_t count = json_length(list);
    if (!list || count > KEYS_MOST)
        return error_set(
            err, ERROR_CONFIG, "expected {\"keys\": […]} with at most %d keys", KEYS_MOST);
    out->rows = calloc(count + 1, sizeof *out->rows); /* room for a new one */
    if (!out->rows)
        return error_memory(err);
    for (; out->count < count; out->count++)
        if (key_parse(json_object_array_get_idx(list, out->count), &out->rows[out->count], err) < 0)
            return -ERROR_CONFIG;
    return 0;
}

int keys_read(const char *path, struct keys *out, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    struct stat st;
    struct keys keys = { 0 };
    cleanup_fd int fd = file_open(path, O_RDONLY, 0, "the file of keys", err);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0 || (st.st_mode & 022) || (st.st_uid != geteuid() && st.st_uid != 0))
        return error_set(err, ERROR_PERMISSION,
            "others may write %s: give it to the server's user, with mode 0600", path);
    int rc = file_read_fd(fd, path, KEYS_BYTES_MAX, &text, err);
    if (rc == 0)
        rc = keys_parse(&text, &keys, err);
    if (rc < 0) {
        keys_free(&keys);
        return error_wrap(err, "reading the keys in %s", path);
    }
    *out = keys;
    return 0;
}

void keys_free(struct keys *keys)
{
    free(keys->rows);
    *keys = (struct keys){ 0 };
}

/* ---- writing ---- */

static void key_print_list(const char *joined, char separator, struct buf *out)
{
    buf_putc(out, '[');
    for (const char *p = joined; *p;) {
        size_t n = strcspn(p, (char[]){ separator, '\0' });
        if (p != joined)
            buf_puts(out, ", ");
        json_append_string(out, p, n);
        p += n + (p[n] != '\0');
    }
    buf_putc(out, ']');
}

static void key_print(const struct key *key, struct buf *out)
{
    cleanup_buf struct buf scopes = { 0 }, limits = { 0 };
    key_scopes_print(key->scopes, &scopes);
    key_limits_print(&key->limits, &limits);
    buf_printf(out, "  {\"id\": \"%s\", \"name\": ", key->id);
    json_append_string(out, key->name, strlen(key->name));
    buf_printf(out,
        ", \"hash\": \"%s\", \"created_ms\": %lld, \"expires_ms\": %lld, \"scopes\": ", key->hash,
        (long long)key->created_ms, (long long)key->expires_ms);
    key_print_list(buf_text(&scopes), ',', out);
    buf_puts(out, ", \"limits\": ");
    key_print_list(buf_text(&limits), ' ', out);
    buf_puts(out, ", \"net\": [");
    for (const char *rule = NULL; (rule = key_net_next(key, rule));) {
        buf_puts(out, rule == key->net ? "" : ", ");
        json_append_string(out, rule, strlen(rule));
    }
    buf_puts(out, "]}");
}

static int keys_write(const char *path, const struct keys *keys, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    buf_puts(&text, "{\"keys\": [\n");
    for (size_t i = 0; i < keys->count; i++) {
        key_print(&keys->rows[i], &text);
        buf_puts(&text, i + 1 < keys->count ? ",\n" : "\n");
    }
    buf_puts(&text, "]}\n");
    if (buf_failed(&text))
        return error_memory(err);
    return file_replace(path, text.data, text.len, err);
}

/* Held by a change; the file itself is replaced, so that it cannot be what is locked. */
static int keys_lock(const char *path, struct error *err)
{
    cleanup_free char *lock = text_printf("%s.lock", path);
    cleanup_free char *directory = text_copy(path, strlen(path));
    char *slash = directory ? strrchr(directory, '/') : NULL;
    if (!lock || !directory)
        return error_memory(err);
    if (slash && slash > directory) {
        *slash = '\0';
        if (file_make_directories(directory, err) < 0)
            return -1;
    }
    cleanup_fd int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return error_set_errno(err, ERROR_IO, "locking %s", lock);
    return steal_fd(&fd);
}

static int keys_read_or_none(const char *path, struct keys *keys, struct error *err)
{
    int rc = keys_read(path, keys, err);
    if (rc != -ERROR_NOT_FOUND)
        return rc;
    keys->rows = calloc(1, sizeof *keys->rows);
    return keys->rows ? 0 : error_memory(err);
}

int keys_create(const char *path, struct key *key, char text[KEY_TEXT_SIZE], struct error *err)
{
    struct keys keys = { 0 };
    unsigned char secret[20];
    cleanup_fd int lock = keys_lock(path, err);
    if (lock < 0 || random_bytes(secret, sizeof secret, err) < 0)
        return -1;
    strcpy(text, key_prefix);
    text_hex(secret, sizeof secret, text + sizeof key_prefix - 1);
    if (hash_sha256(text, strlen(text), key->hash, err) < 0)
        return -1;
    memcpy(key->id, key->hash, KEY_ID_SIZE - 1);
    key->id[KEY_ID_SIZE - 1] = '\0';
    key->created_ms = clock_wall_ms();
    int rc = keys_read_or_none(path, &keys, err);
    if (rc == 0 && keys.count == KEYS_MOST)
        rc = error_set(err, ERROR_ARGUMENT, "%s has %d keys, which is the most", path, KEYS_MOST);
    if (rc == 0) {
        keys.rows[keys.count++] = *key;
        rc = keys_write(path, &keys, err);
    }
    keys_free(&keys);
    return rc;
}

int keys_revoke(const char *path, const char *which, size_t *count, struct error *err)
{
    struct keys keys = { 0 };
    size_t kept = 0;
    cleanup_fd int lock = keys_lock(path, err);
    int rc = lock < 0 ? -1 : keys_read(path, &keys, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < keys.count; i++)
        if (strcmp(keys.rows[i].id, which) != 0 && strcmp(keys.rows[i].name, which) != 0)
            keys.rows[kept++] = keys.rows[i];
    *count = keys.count - kept;
    keys.count = kept;
    rc = *count > 0 ? keys_write(path, &keys, err)
                    : error_set(err, ERROR_NOT_FOUND,
                          "%s has no key '%.64s'; 'droste keys ls' lists them", path, which);
    keys_free(&keys);
    return rc;
}

/* ---- finding ---- */

const struct key *keys_find(const struct keys *keys, const char *text, int64_t now_ms)
{
    char hash[HASH_TEXT_SIZE];
    const struct key *found = NULL;
    if (hash_sha256(text, strlen(text), hash, NULL) < 0)
        return NULL;
    for (size_t i = 0; i < keys->count; i++)
        if (CRYPTO_memcmp(keys->rows[i].hash, hash, HASH_TEXT_SIZE) == 0)
            found = &keys->rows[i];
    return found && (found->expires_ms == 0 || now_ms < found->expires_ms) ? found : NULL;
}
