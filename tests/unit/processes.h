/* What there is on the machine while a test runs: processes, as /proc shows them, and what this one
 * holds. */
#pragma once

#include "test.h"

#include <dirent.h>
#include <stdbool.h>
#include <unistd.h>

struct process {
    pid_t pid, parent;
    char state;
    unsigned long long started;
    bool is_zygote; /* a standby or a copy, by its name: guest/zygote/zygote.c */
};

static inline bool read_process(pid_t pid, struct process *p)
{
    char path[64], text[1024], *end;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    end = strrchr(text, ')');
    *p = (struct process){ .pid = pid };
    int parent;
    if (!end || sscanf(end + 1,
                    " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                    "%*d %*d %*d %llu",
                    &p->state, &parent, &p->started) != 3)
        return false;
    p->parent = parent;
    p->is_zygote = strstr(text, "(standby)") || strstr(text, "(zygote copy)");
    return true;
}

enum { PROCESSES_MAX = 4096 };

/* All living processes below `root`, itself not among them. */
static inline size_t descendants(pid_t root, struct process *out, size_t max)
{
    static struct process all[PROCESSES_MAX];
    size_t count = 0, found = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && count < PROCESSES_MAX &&
            read_process(atoi(e->d_name), &all[count]))
            count++;
    closedir(dir);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < count; i++) {
            bool below = all[i].pid > 0 && all[i].parent == root;
            for (size_t j = 0; j < found && !below; j++)
                below = all[i].pid > 0 && all[i].parent == out[j].pid;
            if (!below || all[i].state == 'Z' || found == max)
                continue;
            out[found++] = all[i];
            all[i].pid = 0;
            more = true;
        }
    }
    return found;
}

/* The zygote: the only child of this process. */
static inline pid_t zygote_pid(void)
{
    struct process list[64];
    size_t n = descendants(getpid(), list, sizeof list / sizeof *list);
    for (size_t i = 0; i < n; i++)
        if (list[i].parent == getpid())
            return list[i].pid;
    fail_msg("there is no zygote");
    return -1;
}

static inline size_t count_descendants(pid_t root)
{
    static struct process list[PROCESSES_MAX];
    return descendants(root, list, PROCESSES_MAX);
}

/* Those of sandboxes. */
static inline size_t count_sandboxed(pid_t zygote)
{
    static struct process list[PROCESSES_MAX];
    size_t count = 0, all = descendants(zygote, list, PROCESSES_MAX);
    for (size_t i = 0; i < all; i++)
        count += !list[i].is_zygote;
    return count;
}

static inline bool is_left(const struct process *p)
{
    struct process now;
    return read_process(p->pid, &now) && now.started == p->started && now.state != 'Z';
}

static inline size_t count_zombies(pid_t parent)
{
    size_t zombies = 0;
    struct process p;
    DIR *dir = opendir("/proc");
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && read_process(atoi(e->d_name), &p))
            zombies += p.parent == parent && p.state == 'Z';
    closedir(dir);
    return zombies;
}

static inline size_t count_fds(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static inline size_t count_entries(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; (e = readdir(dir));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static inline size_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * 4096;
}
