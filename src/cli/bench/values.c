/* cli/bench/values.c: values of 100 MB into a sandbox and out of it, beside copies.
 *
 * A value that crosses into another process is new memory there, and each new page costs a fault.
 * So the first copy is one into new memory; the second, memcpy into memory that has its pages, is
 * what the copy alone takes.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/bench/measure.h"

enum { VALUE_BYTES = 100000000 };

static int values_copy(const char *from, char *used, struct series *series, droste_error *err)
{
    uint64_t start = clock_ns();
    char *fresh =
        mmap(NULL, VALUE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return bench_fail(err, "no memory for another %d bytes", VALUE_BYTES);
    memcpy(fresh, from, VALUE_BYTES);
    bench_add(&series[0], bench_elapsed_us(start));
    munmap(fresh, VALUE_BYTES);
    start = clock_ns();
    memcpy(used, from, VALUE_BYTES);
    bench_add(&series[1], bench_elapsed_us(start));
    return 0;
}

static int values_set(
    droste_session *s, const char *kind, const char *data, struct series *series, droste_error *err)
{
    uint64_t start = clock_ns();
    int rc = droste_session_set(s, "value", kind, data, VALUE_BYTES, err);
    if (rc == 0)
        bench_add(series, bench_elapsed_us(start));
    return rc;
}

/* As Interpreter.get of the Python package, without the object that it makes of the bytes. */
static int values_get(droste_session *s, struct series *series, droste_error *err)
{
    static const char code[] = "SUBMIT(value=value)";
    droste_result *r = NULL;
    size_t len = 0;
    uint64_t start = clock_ns();
    int rc =
        droste_session_exec(s, code, sizeof code - 1, DROSTE_VALUES | DROSTE_ONLY_VALUES, &r, err);
    if (rc == 0 && (!droste_result_values(r, &len) || len < VALUE_BYTES))
        rc = bench_fail(err, "the cell that submits the value ended with '%s' and %zu bytes",
            droste_result_status(r), len);
    if (rc == 0)
        bench_add(series, bench_elapsed_us(start));
    droste_result_free(r);
    return rc;
}

int bench_values(droste *d, struct series *series, unsigned n, droste_error *err)
{
    static const char *const kinds[] = { "bytes", "text" };
    cleanup_free char *data = malloc(VALUE_BYTES), *used = malloc(VALUE_BYTES);
    droste_session *s = NULL;
    if (!data || !used)
        return bench_fail(err, "no memory for two times %d bytes", VALUE_BYTES);
    for (size_t i = 0; i < VALUE_BYTES; i++)
        data[i] = "0123456789abcdef"[i % 16];
    memcpy(used, data, VALUE_BYTES);
    int rc = droste_session_open(d, &s, err);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        rc = values_copy(data, used, series, err);
        for (size_t kind = 0; rc == 0 && kind < array_length(kinds); kind++) {
            rc = values_set(s, kinds[kind], data, &series[2 + 2 * kind], err);
            if (rc == 0)
                rc = values_get(s, &series[3 + 2 * kind], err);
        }
    }
    droste_session_close(s);
    return rc;
}
