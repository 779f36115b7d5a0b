/* droste/base.h: what all headers of libdroste share: errors, and the `droste` object. */
#ifndef DROSTE_BASE_H
#define DROSTE_BASE_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DROSTE_API __attribute__((visibility("default")))
#else
#define DROSTE_API
#endif

/* Stable codes of errors; droste_error_name has their names. */
enum {
    DROSTE_ERROR_NONE = 0,
    DROSTE_ERROR_ARGUMENT = 1,
    DROSTE_ERROR_CONFIG = 2,
    DROSTE_ERROR_NOT_FOUND = 3,
    DROSTE_ERROR_PERMISSION = 4,
    DROSTE_ERROR_UNSUPPORTED = 5,
    DROSTE_ERROR_ENVIRONMENT = 6,
    DROSTE_ERROR_LOST = 7,
    DROSTE_ERROR_PROTOCOL = 8,
    DROSTE_ERROR_TIMEOUT = 9,
    DROSTE_ERROR_BUDGET = 10,
    DROSTE_ERROR_CANCELLED = 11,
    DROSTE_ERROR_IO = 12,
    DROSTE_ERROR_MEMORY = 13,
    DROSTE_ERROR_STORE = 14,
    DROSTE_ERROR_MODEL = 20,
    DROSTE_ERROR_MODEL_AUTH = 21,
    DROSTE_ERROR_MODEL_UNKNOWN = 22,
    DROSTE_ERROR_MODEL_RATE = 23,
    DROSTE_ERROR_MODEL_SERVER = 24,
    DROSTE_ERROR_MODEL_CONNECT = 25,
    DROSTE_ERROR_MODEL_STALL = 26,
    DROSTE_ERROR_MODEL_CUT = 27,
    DROSTE_ERROR_MODEL_REPLY = 28,
    DROSTE_ERROR_MODEL_REPLAY = 29,
    /* The limit that was reached: "budget_calls"…. DROSTE_ERROR_BUDGET is one without a code. */
    DROSTE_ERROR_BUDGET_CALLS = 30,
    DROSTE_ERROR_BUDGET_TOOL_CALLS = 31,
    DROSTE_ERROR_BUDGET_TOKENS = 32,
    DROSTE_ERROR_BUDGET_COST = 33,
    DROSTE_ERROR_BUDGET_TIME = 34,
    DROSTE_ERROR_BUDGET_TURNS = 35,
    DROSTE_ERROR_BUDGET_ERRORS = 36,
    DROSTE_ERROR_BUDGET_RECORD = 37,
};

/* The size of an error's text in bytes. A longer text is shortened and ends with "…". */
#define DROSTE_ERROR_SIZE 2048

#ifdef DROSTE_BUILD /* by the library itself, whose name for the type it is */
#include "base/error.h"
typedef struct error droste_error;
#else
typedef struct droste_error {
    int code;
    int sys;                      /* errno, or 0 */
    char text[DROSTE_ERROR_SIZE]; /* one line: what was tried, on what, and what to do */
} droste_error;
#endif

/* See droste.h. */
typedef struct droste droste;

/* Gets the names of a list, one after the other; returns 0 to continue. */
typedef int droste_name_fn(void *arg, const char *name);

DROSTE_API const char *droste_version(void);
/* The name of a code: "argument", "model_rate"…. */
DROSTE_API const char *droste_error_name(int code);

#ifdef __cplusplus
}
#endif

#endif
