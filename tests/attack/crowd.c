/* tests/attack/crowd.c: see crowd.h. */
#include "crowd.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#if defined(__SANITIZE_ADDRESS__)
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

/* A frame by hand: wire/frame.h. */
#define FRAME                                                                                      \
    "import os, struct, sys\n"                                                                     \
    "def frame(kind, ident, head=b'', blob=b'', more=0):\n"                                        \
    "    return struct.pack('<BBHIQQ', 1, kind, 0, len(head), ident, len(blob) + more) + head + "  \
    "blob\n"                                                                                       \
    "def say(data):\n"                                                                             \
    "    view = memoryview(data)\n"                                                                \
    "    while view: view = view[os.write(3, view):]\n"                                            \
    "f = sys._getframe()\n"                                                                        \
    "while 'CHANNEL_FD' not in f.f_globals: f = f.f_back\n"                                        \
    "running = f.f_globals['state'].session.running\n"

static const struct crowd_attack attacks[] = {
    { "spin", "while True: pass", false },
    { "spin in C", "sum(range(10 ** 15))", false },
    { "output flood",
        "import os\nx = b'x' * 65536\n"
        "while True: os.write(1, x)",
        false },
    { "two floods",
        "import os, _thread\nx = b'x' * 1000\n"
        "def flood(fd):\n    while True: os.write(fd, x)\n"
        "_thread.start_new_thread(flood, (2,))\nflood(1)",
        false },
    { "call flood",
        "import _thread\n"
        "def ask():\n"
        "    while True:\n"
        "        try: llm_query('x')\n"
        "        except Exception: pass\n"
        "for i in range(8): _thread.start_new_thread(ask, ())\nask()",
        false },
    { "batch flood", "while True: llm_query_batched(['x'] * 1000)", false },
    /* As many prompts as a call may have, and as many values: what one message can cost the
     * host. */
    { "most prompts", "x = ['x'] * 20000\nwhile True: llm_query_batched(x)", false },
    { "most values",
        FRAME "g, n = f.f_globals, 0\n"
              "x = b'[{\"role\":\"user\",\"content\":\"x\",\"junk\":[' + b'0,' * 90000 + b'0]}]'\n"
              "while True: g['state'].link.call({'name': 'llm_query', 'messages': [0]}, [x])",
        false },
    { "large calls",
        "x = 'x' * (20 << 20)\n"
        "while True:\n"
        "    try: llm_query(x)\n"
        "    except Exception: pass",
        false },
    { "half frames",
        FRAME "x = b'x' * 65536\nsay(frame(19, 1, b'{}', b'', 100 << 20))\n"
              "for i in range(1599): os.write(3, x)\n"
              "while True: pass",
        false },
    { "frame by bytes",
        FRAME "whole = frame(19, 1, b'{}', b'x' * (1 << 20))\n"
              "for i in range(len(whole) - 1): os.write(3, whole[i:i + 1])\n"
              "while True: pass",
        false },
    { "forged frames", FRAME "while True: say(os.urandom(4096))", true },
    { "forged results", FRAME "while True: say(frame(20, running, b'{\"status\": \"ok\"}'))",
        true },
    { "large results", "SUBMIT('x' * (20 << 20))", false },
    { "fork bomb",
        "import os\n"
        "while True:\n"
        "    try: os.fork()\n"
        "    except OSError: pass",
        false },
    { "thread bomb",
        "import _thread\n"
        "def spin():\n    while True: pass\n"
        "while True:\n"
        "    try: _thread.start_new_thread(spin, ())\n"
        "    except RuntimeError: pass",
        false },
    { "memory",
        "kept = []\n"
        "while True:\n"
        "    try: kept.append(bytearray(b'x' * (1 << 20)))\n"
        "    except MemoryError: kept.clear()",
        false },
    { "files",
        "import os\nx = b'x' * (1 << 20)\n"
        "while True:\n"
        "    with open('/tmp/x', 'wb', 0) as f:\n"
        "        try:\n"
        "            while True: f.write(x)\n"
        "        except OSError: pass",
        false },
    { "descriptors",
        "import os\n"
        "while True:\n"
        "    kept = []\n"
        "    try:\n"
        "        while True: kept.append(os.dup(0))\n"
        "    except OSError: pass\n"
        "    for fd in kept: os.close(fd)",
        false },
    { "signals",
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *a: None)\n"
        "while True: os.kill(0, signal.SIGUSR1)",
        false },
    { "stop", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", false },
    /* A session has a share of the processors of its own, where the kernel has autogroups. */
    { "sessions",
        "import os\n"
        "for i in range(4):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        while True: pass\n"
        "while True: pass",
        false },
    { "exit", "import os; os._exit(1)", true },
    { "kill", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", true },
};

const struct crowd_attack *crowd_attack_at(size_t index)
{
    return index < array_length(attacks) ? &attacks[index] : NULL;
}

static void refuse(void *arg, const struct lm_request *request, struct lm_call *call)
{
    struct crowd *c = arg;
    struct error why = { 0 };
    c->calls++;
    error_set(&why, ERROR_MODEL, "there is no answer for attackers");
    lm_answer(call, "", 0, NULL, &why);
}

static void guest_call(void *arg, struct session *s, const struct session_call *call)
{
    broker_call(((struct attacker *)arg)->broker, s, call);
}

static void guest_dropped(void *arg, struct session *s, uint64_t id)
{
    struct attacker *a = arg;
    if (a->broker)
        broker_drop(a->broker, s, id);
}

static void cell_done(void *arg, struct cell_result *result)
{
    struct attacker *a = arg;
    cell_result_free(&a->last);
    a->last = *result;
    a->done = true;
    a->cells++;
}

/* The attack; but the very first cell only shows that the sandbox stands. */
static int run_cell(struct attacker *a, struct error *err)
{
    const char *code = a->cells == 0 ? "pass" : a->attack->code;
    /* What ends its sandbox has as long as that takes, beside so many others. */
    double limit = a->attack->ends ? 0 : -1;
    struct session_cell cell = { .code = code, .len = strlen(code), .execute_timeout = limit };
    a->done = false;
    return session_exec(a->session, &cell, cell_done, a, err);
}

static void close_attacker(struct attacker *a)
{
    broker_close(steal(&a->broker));
    session_close(steal(&a->session));
    budget_free(&a->budget);
}

static int open_attacker(struct attacker *a, struct error *err)
{
    static const struct session_events events = { guest_call, guest_dropped, NULL };
    static const struct budget_limits limits = { .calls = -1 };
    struct broker_options options = { .lm = a->crowd->lm, .budget = &a->budget, .depth = 1 };
    budget_init(&a->budget, &limits);
    int rc = broker_open(&options, &a->broker, err);
    if (rc == 0)
        rc = session_open(a->crowd->env, &a->crowd->options, &events, a, &a->session, err);
    if (rc == 0)
        rc = run_cell(a, err);
    a->sandboxes++;
    return rc;
}

static const struct crowd_attack *choose(size_t index, const char *only)
{
    for (size_t i = 0; only && i < array_length(attacks); i++)
        if (strcmp(attacks[i].name, only) == 0)
            return &attacks[i];
    return &attacks[index % array_length(attacks)];
}

/* Attackers whose cell has ended attack again, in a new sandbox where the old one is gone. */
static void go_on(void *arg)
{
    struct crowd *c = arg;
    for (size_t i = 0; i < c->count; i++) {
        struct attacker *a = &c->attackers[i];
        if (!a->done || (a->cells > 1 && !c->again))
            continue;
        if (session_is_alive(a->session) && run_cell(a, NULL) == 0)
            continue;
        close_attacker(a);
        if (open_attacker(a, &a->refused) < 0)
            a->done = false;
    }
}

bool crowd_stands(const struct crowd *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->attackers[i].cells == 0)
            return false;
    return true;
}

int crowd_open(struct crowd *c, struct loop *loop, struct environment *env,
    const struct session_options *options, size_t count, const char *only, bool again,
    struct error *err)
{
    struct lm_options model = { .model = "callback", .callback = refuse, .callback_arg = c };
    *c = (struct crowd){ .loop = loop, .env = env, .options = *options, .again = again };
    c->attackers = calloc(count, sizeof *c->attackers);
    if (!c->attackers)
        return error_memory(err);
    c->timer = timer_new(loop, go_on, c);
    if (!c->timer)
        return error_memory(err);
    timer_start(c->timer, 1, 1);
    int rc = lm_open(loop, &model, &c->lm, err);
    for (; rc == 0 && c->count < count; c->count++) {
        struct attacker *a = &c->attackers[c->count];
        a->crowd = c;
        a->attack = choose(c->count, only);
        rc = open_attacker(a, err);
    }
    return rc;
}

void crowd_close(struct crowd *c)
{
    for (size_t i = 0; i < c->count; i++) {
        close_attacker(&c->attackers[i]);
        cell_result_free(&c->attackers[i].last);
    }
    free(c->attackers);
    timer_free(c->timer);
    lm_close(c->lm);
    *c = (struct crowd){ 0 };
}

/* ---- the host ---- */

static unsigned count_entries(const char *path)
{
    unsigned n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n - 2; /* . and .. */
}

static unsigned count_lines(const char *path)
{
    unsigned n = 0;
    int c;
    FILE *f = fopen(path, "re");
    while (f && (c = getc(f)) != EOF)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

/* Adds the children of a process, which has one thread; returns how many there are in all. */
static size_t add_children(int *pids, size_t count, size_t most, int pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "re");
    while (f && count < most && fscanf(f, "%d", &pids[count]) == 1)
        count++;
    if (f)
        fclose(f);
    return count;
}

static bool is_named(int pid, const char *name)
{
    char path[64], found[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *f = fopen(path, "re");
    bool same = f && fgets(found, sizeof found, f) && strcmp(found, name) == 0;
    if (f)
        fclose(f);
    return same;
}

/* A zygote that has had much to do has copies, which stay, and each of them may have a standby. */
static void count_processes(struct crowd_host *host)
{
    int pids[4096];
    size_t count = add_children(pids, 0, array_length(pids), (int)getpid());
    host->children = (unsigned)count;
    for (size_t i = 0; i < count; i++)
        count = add_children(pids, count, array_length(pids), pids[i]);
    for (size_t i = 0; i < count; i++) {
        bool is_copy = is_named(pids[i], "zygote copy\n");
        host->copies += is_copy;
        host->processes += !is_copy && !is_named(pids[i], "standby\n");
    }
}

static size_t resident(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%*u %lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* What is allocated now; blocks of their own maps are counted apart. */
static size_t allocated(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return __sanitizer_get_current_allocated_bytes();
#else
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#endif
}

void crowd_look(struct crowd_host *host)
{
    *host = (struct crowd_host){ .descriptors = count_entries("/proc/self/fd"),
        .threads = count_entries("/proc/self/task"),
        .mounts = count_lines("/proc/self/mounts"),
        .heap = allocated(),
        .rss = resident() };
    count_processes(host);
    host->descriptors -= host->copies; /* one each */
}
