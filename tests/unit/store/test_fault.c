/* Faults at many places: the nth allocation of SQLite fails, the nth write of its is refused or cut
 * short. Whatever n is, the caller gets an error or what it asked for, nothing crashes or leaks, no
 * step is half there, and once the fault is over the same store goes on. */
#include "fixture.h"

/* Fires at the `at`th event from now on, and at every later one too if it `lasts`. */
static struct fault {
    long at; /* 0: never */
    long seen;
    bool lasts;
} memory, disk;

static bool fires(struct fault *fault)
{
    fault->seen++;
    return fault->at > 0 && (fault->lasts ? fault->seen >= fault->at : fault->seen == fault->at);
}

/* ---- memory: SQLite's allocator with a hole in it ---- */

static sqlite3_mem_methods real_memory;

static void *failing_malloc(int size)
{
    return fires(&memory) ? NULL : real_memory.xMalloc(size);
}

static void *failing_realloc(void *old, int size)
{
    return fires(&memory) ? NULL : real_memory.xRealloc(old, size);
}

/* ---- disk: the operating system's files, with writes that fail ---- */

static sqlite3_vfs *real_vfs;

/* SQLite's files are of several kinds (with locks and without), each with its own methods; all
 * write and sync the same way. */
static struct kind {
    sqlite3_io_methods methods; /* with faults; first: file->pMethods points here */
    const sqlite3_io_methods *real;
} kinds[4];

static int failing_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 at)
{
    const struct kind *kind = (const struct kind *)file->pMethods;
    if (!fires(&disk))
        return kind->real->xWrite(file, data, len, at);
    kind->real->xWrite(file, data, len / 2, at); /* cut short, as a full disk does */
    return disk.seen % 2 ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

static int failing_sync(sqlite3_file *file, int flags)
{
    const struct kind *kind = (const struct kind *)file->pMethods;
    return fires(&disk) ? SQLITE_IOERR_FSYNC : kind->real->xSync(file, flags);
}

static int failing_open(
    sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    int rc = real_vfs->xOpen(real_vfs, name, file, flags, out_flags);
    if (rc != SQLITE_OK)
        return rc;
    struct kind *kind = kinds;
    while (kind->real && kind->real != file->pMethods)
        kind++;
    kind->real = file->pMethods;
    kind->methods = *file->pMethods;
    kind->methods.xWrite = failing_write;
    kind->methods.xSync = failing_sync;
    file->pMethods = &kind->methods;
    return rc;
}

static void install_faults(void)
{
    static sqlite3_vfs vfs;
    sqlite3_mem_methods methods;
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_memory);
    methods = real_memory;
    methods.xMalloc = failing_malloc;
    methods.xRealloc = failing_realloc;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0); /* every allocation counts */
    real_vfs = sqlite3_vfs_find(NULL);
    vfs = *real_vfs;
    vfs.zName = "failing";
    vfs.xOpen = failing_open;
    sqlite3_vfs_register(&vfs, 1);
}

/* ---- the work that is disturbed ---- */

static int see_call(void *arg, const droste_record_call *call, struct error *err)
{
    return 0;
}

static int see_run(void *arg, const droste_record_run *run, struct error *err)
{
    return 0;
}

static int do_steps(struct store *store, struct error *err)
{
    static char text[20000];
    memset(text, 'x', sizeof text);
    droste_record_run run = plain_run(NULL);
    struct store_visitor visitor = { .run = see_run, .call = see_call };
    droste_record_filter some = { .children = true, .limit = 3 };
    droste_record_call call_end = { .status = "ok", .reply = { text, sizeof text } };
    droste_record_run run_end = { .status = "done", .answer = store_text("{}") };
    char id[STORE_RUN_ID_SIZE];
    int64_t call;
    int rc = store_run_begin(store, &run, id, err);
    if (rc == 0)
        rc = store_turn_begin(store, id, 1, err);
    droste_record_call begin = {
        .run = id, .turn = 1, .kind = "root", .model = "m", .request = store_text(id)
    };
    if (rc == 0)
        rc = store_call_begin(store, &begin, &call, err);
    if (rc == 0)
        rc = store_call_end(store, call, &call_end, err);
    if (rc == 0)
        rc = store_run_visit(store, id, &visitor, NULL, err);
    if (rc == 0)
        rc = store_run_end(store, id, &run_end, err);
    if (rc == 0)
        rc = store_run_list(store, &some, see_run, NULL, err);
    return rc;
}

/* Opens and works with the fault set, then once more without; true if it did not come to it. */
static bool survives(const char *file, struct fault *fault, struct fault set)
{
    struct error err = { 0 };
    struct store *store = NULL;
    *fault = set;
    int rc = store_open(file, &store, &err);
    if (rc == 0)
        rc = do_steps(store, &err);
    bool clean = fault->seen < set.at;
    *fault = (struct fault){ 0 };
    if (rc < 0 && err.code != ERROR_STORE && err.code != ERROR_MEMORY)
        fail_msg("fault %ld: %s", set.at, err.text);
    if (rc < 0 && (rc != -(int)err.code || err.text[0] == '\0'))
        fail_msg("fault %ld: %d but '%s'", set.at, rc, err.text);
    if (clean)
        assert_int_equal(rc, 0);
    if (store && do_steps(store, &err) < 0)
        fail_msg("after fault %ld: %s", set.at, err.text);
    store_close(store);
    store_close(open_store(file));
    return clean;
}

static int do_removal(struct store *store, const char *run, struct error *err)
{
    droste_record_keep keep = { .newest = 2, .older_ms = -1 };
    droste_record_freed freed;
    int rc = store_collect(store, &keep, &freed, err);
    return rc < 0 ? rc : store_run_remove(store, run, &freed, err);
}

/* The same for taking runs out of a file that is open. */
static bool survives_removal(const char *file, struct fault *fault, struct fault set)
{
    struct error why = { 0 };
    struct store *store = open_store(file);
    char id[STORE_RUN_ID_SIZE];
    droste_record_run begin = plain_run(NULL);
    for (int i = 0; i < 3; i++) {
        assert_ok(do_steps(store, err));
        assert_ok(store_run_begin(store, &begin, id, err));
        end_run(store, id);
    }
    *fault = set;
    int rc = do_removal(store, id, &why);
    bool clean = fault->seen < set.at;
    *fault = (struct fault){ 0 };
    if (rc < 0 && why.code != ERROR_STORE && why.code != ERROR_MEMORY)
        fail_msg("fault %ld: %s", set.at, why.text);
    if (clean)
        assert_int_equal(rc, 0);
    if (do_steps(store, &why) < 0)
        fail_msg("after fault %ld: %s", set.at, why.text);
    store_close(store);
    return clean;
}

typedef bool survives_fn(const char *file, struct fault *fault, struct fault set);

/* A file for the nth fault, or the same for all: then what was done through one is built on. */
static const char *name_new(const char *name, long n)
{
    static char file[128];
    snprintf(file, sizeof file, "%s.%ld", name, n);
    return file;
}

static const char *name_same(const char *name, long n)
{
    return name;
}

static void disturb_with(survives_fn *try, void **state, const char *name(const char *, long),
    struct fault *fault, bool lasts, long stride)
{
    struct place *place = *state;
    bool clean = false;
    for (long n = 1; !clean; n += stride) {
        const char *file = name(place->file, n);
        clean = try(file, fault, (struct fault){ .at = n, .lasts = lasts });
        assert_intact(file);
        assert_true(n < 100000);
    }
}

static void disturb(void **state, const char *name(const char *, long), struct fault *fault,
    bool lasts, long stride)
{
    disturb_with(survives, state, name, fault, lasts, stride);
}

/* Making the tables takes thousands of allocations and hundreds of writes, the work on them fewer:
 * not every one is tried, but the strides share no factor with what repeats. */
static void an_allocation_fails(void **state)
{
    disturb(state, name_new, &memory, false, 307);
    disturb(state, name_same, &memory, false, 41);
}

static void allocations_fail_from_one_on(void **state)
{
    disturb(state, name_new, &memory, true, 401);
    disturb(state, name_same, &memory, true, 89);
}

static void a_write_fails(void **state)
{
    disturb(state, name_new, &disk, false, 11);
    disturb(state, name_same, &disk, false, 3);
}

static void writes_fail_from_one_on(void **state)
{
    disturb(state, name_new, &disk, true, 11);
    disturb(state, name_same, &disk, true, 3);
}

/* What is to be removed is removed whole or not at all, with its values. */
static void a_fault_comes_while_runs_are_removed(void **state)
{
    disturb_with(survives_removal, state, name_new, &memory, false, 3019);
    disturb_with(survives_removal, state, name_new, &memory, true, 4519);
    disturb_with(survives_removal, state, name_new, &disk, false, 53);
    disturb_with(survives_removal, state, name_new, &disk, true, 71);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(an_allocation_fails),
        store_test(allocations_fail_from_one_on),
        store_test(a_write_fails),
        store_test(writes_fail_from_one_on),
        store_test(a_fault_comes_while_runs_are_removed),
    };
    install_faults();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
