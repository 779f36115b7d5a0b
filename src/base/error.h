/* base/error.h: errors are values.
 *
 * A function that can fail returns 0 or a negative value and takes a `struct error *` last. The
 * error lives in the caller's frame, is bounded, and needs no memory, so that running out of it
 * can be reported too. `err` may be NULL where the caller does not care why.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>

/* Stable numbers, the same as DROSTE_ERROR_* in droste.h; append, never renumber. */
enum error_code {
    ERROR_NONE = 0,
    ERROR_ARGUMENT = 1,           /* the caller asked for something that makes no sense */
    ERROR_CONFIG = 2,             /* a configuration file or variable is wrong */
    ERROR_NOT_FOUND = 3,          /* a file, run or name is not there */
    ERROR_PERMISSION = 4,         /* the operating system or a provider said no */
    ERROR_UNSUPPORTED = 5,        /* asked for by name and cannot be had here */
    ERROR_ENVIRONMENT = 6,        /* a sandbox could not be started */
    ERROR_LOST = 7,               /* a sandbox died */
    ERROR_PROTOCOL = 8,           /* a guest, a server or a file broke the rules of its format */
    ERROR_TIMEOUT = 9,            /* a deadline passed */
    ERROR_BUDGET = 10,            /* a limit was reached that is not listed below */
    ERROR_CANCELLED = 11,         /* stopped on request */
    ERROR_IO = 12,                /* reading or writing failed */
    ERROR_MEMORY = 13,            /* out of memory */
    ERROR_STORE = 14,             /* the record could not be read or written */
    ERROR_MODEL = 20,             /* a model call failed for a reason not listed below */
    ERROR_MODEL_AUTH = 21,        /* the key is missing or was refused */
    ERROR_MODEL_UNKNOWN = 22,     /* the provider does not know the model */
    ERROR_MODEL_RATE = 23,        /* rate limited, and the retries are used up */
    ERROR_MODEL_SERVER = 24,      /* the provider failed, and the retries are used up */
    ERROR_MODEL_CONNECT = 25,     /* no connection to the provider */
    ERROR_MODEL_STALL = 26,       /* nothing arrived within the first-token or stall limit */
    ERROR_MODEL_CUT = 27,         /* the connection ended in the middle of an answer */
    ERROR_MODEL_REPLY = 28,       /* the answer is not what the protocol promises */
    ERROR_MODEL_REPLAY = 29,      /* the recording has no answer for this request */
    ERROR_BUDGET_CALLS = 30,      /* the limit on calls of models */
    ERROR_BUDGET_TOOL_CALLS = 31, /* the limit on calls of tools */
    ERROR_BUDGET_TOKENS = 32,     /* the limit on tokens */
    ERROR_BUDGET_COST = 33,       /* the limit on money */
    ERROR_BUDGET_TIME = 34,       /* the limit on time, seen by a call */
    ERROR_BUDGET_TURNS = 35,      /* the limit on turns without an answer */
    ERROR_BUDGET_ERRORS = 36,     /* the limit on turns in a row whose code failed */
    ERROR_BUDGET_RECORD = 37,     /* the limit on bytes of the record */
};

/* Room for a provider's whole message, which is what its user needs; a longer text ends with
 * "…". */
enum { ERROR_TEXT_SIZE = 2048 };

/* The type of the library's interface, too: droste_error of droste/base.h. */
struct error {
    int code;                   /* an enum error_code */
    int sys;                    /* errno, or 0 */
    char text[ERROR_TEXT_SIZE]; /* one line of UTF-8: what was tried, on what, and what to do */
};

/* Sets *err and returns -code, so that `return error_set(err, ...)` is the whole failure path. */
int error_set(struct error *err, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int error_vset(struct error *err, enum error_code code, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* As error_set, with errno kept and its words appended. */
int error_set_errno(struct error *err, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepends the caller's context ("opening volume 'x'") to an error that is already set, and
 * returns -code again. */
int error_wrap(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets ERROR_MEMORY with the same message everywhere. */
int error_memory(struct error *err);

/* The code's stable name: "argument", "model_rate"… Never NULL. */
const char *error_code_name(enum error_code code);
/* The code with that name, which may be NULL; otherwise the fallback. */
enum error_code error_code_named(const char *name, enum error_code fallback);

/* True for the codes that a model client reports. */
bool error_is_model(enum error_code code);
/* True for ERROR_BUDGET and the codes of single limits. */
bool error_is_budget(enum error_code code);
