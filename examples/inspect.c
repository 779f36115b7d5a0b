/* inspect.c: what Droste has here: environments, what works, volumes, and recorded runs.
 *
 *   cc inspect.c -o inspect $(pkg-config --cflags --libs droste) && ./inspect
 */
#include <droste.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int rc, const droste_error *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "inspect: %s\n", err->text);
    exit(1);
}

static void show_feature(void *arg, const droste_feature *feature)
{
    if (!feature->supported)
        printf("%s has no %s\n", (const char *)arg, feature->name);
}

static void show_finding(void *arg, const droste_finding *finding)
{
    printf("%s: %s, %.*s\n", finding->name, finding->state, (int)finding->len, finding->text);
}

static int show_volume(void *arg, const char *name)
{
    droste_volume *volume;
    droste_volume_usage usage;
    droste_error err;
    check(droste_volume_open(arg, name, 0, &volume, &err), &err);
    check(droste_volume_measure(volume, &usage, &err), &err);
    printf("volume %s: %llu bytes\n", name, (unsigned long long)usage.size);
    droste_volume_close(volume);
    return 0;
}

static int show_call(void *arg, const droste_record_call *call, droste_error *err)
{
    printf("  %s asks %s: %s\n", call->kind, call->model, call->status);
    return 0;
}

static int show_run(void *arg, const droste_record_run *run, droste_error *err)
{
    printf("run %s: %s, %lld calls\n", run->id, run->status, (long long)run->calls);
    return 0;
}

int main(void)
{
    const droste_record_visitor steps = { .run = show_run, .call = show_call, .lazy = 1 };
    const droste_record_filter newest = { .limit = 10 };
    const char *name;
    char id[DROSTE_RUN_ID_SIZE];
    droste_record *record;
    droste_error err;
    droste *d;

    check(droste_new(&d, &err), &err);
    check(droste_configure(d, NULL, &err), &err);
    for (size_t i = 0; (name = droste_environment_at(i, NULL)); i++)
        check(droste_environment_features(d, name, show_feature, (void *)name, &err), &err);
    if (!droste_diagnose(d, show_finding, NULL))
        printf("sandboxes do not work here\n");
    check(droste_volume_names(d, show_volume, d, &err), &err);

    check(droste_record_open(d, &record, &err), &err);
    if (record) { /* NULL: nothing was recorded yet */
        check(droste_record_list(record, &newest, show_run, NULL, &err), &err);
        if (droste_record_find(record, "20", id, &err) == 0) /* an id, or its beginning */
            check(droste_record_visit(record, id, &steps, NULL, &err), &err);
    }
    droste_record_close(record);
    droste_free(d);
    return 0;
}
