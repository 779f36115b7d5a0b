/* serve/access/keys.h: API keys: their file, what they may do, and how much of it.
 *
 * A key is "e2b_" and 40 random hexadecimal digits; the prefix is the one that E2B's clients want.
 * The file has only the SHA-256 of each. A slow hash (bcrypt, Argon2) makes guessing expensive
 * where a secret can be guessed; 160 random bits cannot, and a fast hash keeps requests fast.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"

enum { KEY_TEXT_SIZE = 45, KEY_ID_SIZE = 13, KEY_NAME_SIZE = 65, KEY_SETTING_SIZE = 64 };
enum { KEY_NET_SIZE = 2048 }; /* of the destinations of a key, as texts */
enum { KEYS_MOST = 1024, KEYS_BYTES_MAX = 4 << 20 };

/* What a key may do. A route needs one of its scopes; SCOPE_ADMIN suffices everywhere, and sees the
 * objects of all keys. */
enum {
    SCOPE_READ = 1,      /* list and describe its own objects */
    SCOPE_SANDBOXES = 2, /* create, use and end sandboxes */
    SCOPE_METRICS = 4,   /* GET /metrics */
    SCOPE_ADMIN = 8,
    SCOPE_RUNS = 16,       /* start, follow, cancel, resume and delete runs of models */
    SCOPE_MODELS = 64,     /* ask models in OpenAI's protocol, with files and runs of its own */
    SCOPE_APPROVALS = 128, /* decide calls of its own runs that wait for an approval */
    SCOPE_NONE = 32,       /* of a route: anyone, without a key */
};

/* 0 or "" means no limit of the key's own, but of `device`. */
struct key_limits {
    int64_t sandboxes;             /* at once */
    double starts;                 /* a second, of sandboxes */
    char memory[KEY_SETTING_SIZE]; /* of one sandbox, as the setting of that name */
    char cpus[KEY_SETTING_SIZE];   /* the same */
    char device[KEY_SETTING_SIZE]; /* which a sandbox has if it asks for it; "": none */
    double life_seconds, idle_seconds;
    double cost; /* dollars a day, of models */
};

struct key {
    char id[KEY_ID_SIZE]; /* public: the first digits of the hash */
    char name[KEY_NAME_SIZE];
    char hash[HASH_TEXT_SIZE];
    unsigned scopes;
    struct key_limits limits;
    char net[KEY_NET_SIZE];         /* see key_net_next; inline, because keys are copied */
    int64_t created_ms, expires_ms; /* 0: never */
};

struct keys {
    struct key *rows;
    size_t count;
};

/* The names of scopes, "read,sandboxes"; ERROR_ARGUMENT names one that is unknown. */
int key_scopes_parse(const char *text, unsigned *out, struct error *err);
void key_scopes_print(unsigned scopes, struct buf *out);
/* "sandboxes=10": ERROR_ARGUMENT names what is wrong. */
int key_limit_parse(struct key_limits *limits, const char *text, struct error *err);
void key_limits_print(const struct key_limits *limits, struct buf *out);

/* A destination that sandboxes of the key may be opened to, as a rule of the setting allow-net.
 * ERROR_ARGUMENT: it is none, or there is no room for more. */
int key_net_add(struct key *key, const char *rule, struct error *err);
/* The one after `rule` (NULL: the first); NULL: there are no more. */
const char *key_net_next(const struct key *key, const char *rule);

/* $DROSTE_HOME/keys.json; free it. */
int keys_default_path(char **out, struct error *err);
/* ERROR_NOT_FOUND: there is no such file. A file that others may write is refused. */
int keys_read(const char *path, struct keys *out, struct error *err);
void keys_free(struct keys *keys);
/* Adds a key to the file, which is made if there is none, and gives its text, which is nowhere
 * else. The id, hash and time of `key` are set. */
int keys_create(const char *path, struct key *key, char text[KEY_TEXT_SIZE], struct error *err);
/* By id or name; ERROR_NOT_FOUND. Revokes all with that name. */
int keys_revoke(const char *path, const char *which, size_t *count, struct error *err);
/* The key with this text; NULL: none, or it has expired. Takes the same time for each. */
const struct key *keys_find(const struct keys *keys, const char *text, int64_t now_ms);
