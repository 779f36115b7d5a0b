/* What the wall of a local sandbox holds back, seen from inside. A deny has its allowed twin. */
#include "../processes.h"
#include "fixture.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "env/local/cpu_priority.h"
#include "jail/landlock.h"

/* The level under test: `full` and `light` hold the same back. */
static enum isolation own_root(void)
{
    enum isolation level = fixture_isolation();
    return isolation_has_own_root(level) ? level : ISOLATION_FULL;
}

static void open_at(struct fixture *f, enum isolation isolation)
{
    struct session_options options = fixture_options();
    options.spec.isolation = isolation;
    options.spec.python = "/usr/bin/python3"; /* one in /root would make a part of that visible */
    fixture_open(f, &options);
    /* e(call, ...) gives the name of the errno, or "ok". */
    assert_status(run(f, "import errno, os, socket, time\n"
                         "def e(call, *args):\n"
                         "    try: call(*args)\n"
                         "    except OSError as error: return errno.errorcode[error.errno]\n"
                         "    return 'ok'\n"),
        CELL_OK);
}

static void the_hosts_files_are_not_there(void **state)
{
    struct fixture *f = *state;
    char code[512];
    open_at(f, own_root());
    const char *source = getenv("DROSTE_TEST_SOURCE");
    snprintf(code, sizeof code,
        "SUBMIT([p for p in ['/etc/shadow', '/root/.bashrc', '/root/.ssh', '/boot', '/var', "
        "'/run', '/sys', "
        "'/proc/1/root/etc/shadow', '/proc/self/root/root/.bashrc', '/old', '/new', %s%s%s] "
        "if e(os.stat, p) not in ('ENOENT', 'EACCES')])",
        source ? "'" : "", source ? source : "", source ? "'" : "");
    assert_submits(f, code, "{\"output\": []}");
    assert_submits(f, "SUBMIT(e(os.stat, '/usr/bin'), e(os.stat, '/etc/passwd'))",
        "{\"output\": [\"ok\", \"ok\"]}");
}

/* Files that are another's say EACCES before the mount gets to say EROFS. */
static void system_directories_are_readable_and_not_writable(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    assert_submits(f,
        "SUBMIT(read=len(os.listdir('/usr')) > 3, write=e(open, '/usr/x', 'w'), "
        "root=e(os.mkdir, '/x'), dev=e(os.mkdir, '/dev/x'))",
        "{\"read\": true, \"write\": \"EROFS\", \"root\": \"EROFS\", \"dev\": \"EROFS\"}");
    assert_submits(f,
        "SUBMIT([p for p in (os.__file__, '/etc/passwd', '/usr/bin/env') "
        "if e(open, p, 'a') not in ('EROFS', 'EACCES') or e(open, p, 'rb') != 'ok'])",
        "{\"output\": []}");
}

static void tmp_is_private_writable_and_gone_with_its_sandbox(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    struct session *first = f->session;
    assert_submits(f,
        "open('/tmp/mark', 'w').write('x'); open('/dev/shm/mark', 'w').write('x')\n"
        "SUBMIT(os.listdir('/tmp'), os.getcwd())",
        "{\"output\": [[\"mark\"], \"/tmp\"]}");
    f->session = NULL; /* beside the first, which lives on */
    open_at(f, own_root());
    assert_submits(f, "SUBMIT(os.listdir('/tmp') + os.listdir('/dev/shm'))", "{\"output\": []}");
    session_close(first);
    open_at(f, own_root());
    assert_submits(f, "SUBMIT(os.listdir('/tmp') + os.listdir('/dev/shm'))", "{\"output\": []}");
    assert_int_equal(access("/tmp/mark", F_OK), -1);
}

static void tmp_is_limited_in_bytes_and_files(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    options.spec.isolation = own_root();
    options.spec.limits.tmp_size = 4 << 20;
    fixture_open(f, &options);
    assert_submits(f,
        "import errno\n"
        "def fill():\n"
        "    try:\n"
        "        with open('/tmp/big', 'wb', 0) as f:\n"
        "            for i in range(64): f.write(bytes(1 << 20))\n"
        "    except OSError as e: return errno.errorcode[e.errno]\n"
        "def many():\n"
        "    try:\n"
        "        for i in range(100000): open('/tmp/%d' % i, 'w').close()\n"
        "    except OSError as e: return errno.errorcode[e.errno]\n"
        "import os\nsmall = open('/tmp/small', 'w').write('x')\n"
        "SUBMIT(small, fill(), os.unlink('/tmp/big'), many())",
        "{\"output\": [1, \"ENOSPC\", null, \"ENOSPC\"]}");
}

static void proc_shows_only_its_own_processes(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    assert_submits(f, "SUBMIT(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))",
        "{\"output\": [1, 2]}");
    open_at(f, ISOLATION_PROCESS);
    assert_submits(
        f, "SUBMIT(sum(p.isdigit() for p in os.listdir('/proc')) > 2)", "{\"output\": true}");
}

static void there_is_no_network(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof address;
    cleanup_fd int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char code[128];
    assert_int_equal(bind(listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(listener, 5), 0);
    getsockname(listener, (struct sockaddr *)&address, &len);
    snprintf(code, sizeof code, "s = socket.socket()\nSUBMIT(e(s.connect, ('127.0.0.1', %d)))",
        ntohs(address.sin_port));
    open_at(f, own_root());
    assert_submits(f, code, "{\"output\": \"ENETUNREACH\"}");
    open_at(f, ISOLATION_PROCESS);
    assert_submits(f, code, "{\"output\": \"ok\"}");
}

static void the_hosts_abstract_sockets_are_out_of_reach(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int n = snprintf(address.sun_path + 1, 64, "droste-test-%d", (int)getpid());
    cleanup_fd int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char code[160];
    assert_int_equal(bind(listener, (struct sockaddr *)&address,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
        0);
    assert_int_equal(listen(listener, 5), 0);
    snprintf(code, sizeof code,
        "s = socket.socket(socket.AF_UNIX)\nSUBMIT(e(s.connect, '\\0droste-test-%d'))",
        (int)getpid());
    open_at(f, own_root());
    assert_submits(f, code, "{\"output\": \"ECONNREFUSED\"}");
    open_at(f, ISOLATION_PROCESS);
    assert_submits(f, code, "{\"output\": \"ok\"}");
}

static void worker_and_keeper_have_no_privileges(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    assert_submits(f,
        "def lines(pid):\n"
        "    for line in open('/proc/%d/status' % pid):\n"
        "        name, _, value = line.partition(':')\n"
        "        if name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):\n"
        "            yield int(value, 16)\n"
        "        if name == 'NoNewPrivs': yield value.strip()\n"
        "SUBMIT(list(lines(os.getpid())), list(lines(1)))",
        "{\"output\": [[0, 0, 0, 0, 0, \"1\"], [0, 0, 0, 0, 0, \"1\"]]}");
}

static void what_needs_privileges_is_denied(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    assert_submits(f,
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def c(name, *args):\n"
        "    if getattr(libc, name)(*args) != -1: return 'ok'\n"
        "    return errno.errorcode[ctypes.get_errno()]\n"
        "SUBMIT(c('mount', b'proc', b'/tmp', b'proc', 0, None), c('umount2', b'/tmp', 2), "
        "c('sethostname', b'x', 1), c('chroot', b'/tmp'), c('setns', 0, 0x10000000), "
        "e(os.setuid, 0), e(os.mknod, '/tmp/n', 0o20600, 0x103) in ('EPERM', 'EACCES'))",
        "{\"output\": [\"EPERM\", \"EPERM\", \"EPERM\", \"EPERM\", \"EPERM\", \"EINVAL\", "
        "true]}");
}

static bool has_scopes(void)
{
    if (landlock_abi() >= LANDLOCK_SCOPE_ABI)
        return true;
    print_message("# this kernel has no Landlock of ABI %d\n", LANDLOCK_SCOPE_ABI);
    return false;
}

/* A guest that could stop or kill its keeper would choose what is told about its end. */
static void the_keeper_cannot_be_signalled_and_ones_own_children_can(void **state)
{
    struct fixture *f = *state;
    if (!has_scopes())
        skip();
    open_at(f, own_root());
    assert_submits(f,
        "import signal\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    while True: time.sleep(1)\n"
        "SUBMIT([e(os.kill, 1, n) for n in (0, signal.SIGSTOP, signal.SIGTERM)],"
        " e(os.kill, pid, signal.SIGKILL), os.waitpid(pid, 0)[1])",
        "{\"output\": [[\"EPERM\", \"EPERM\", \"EPERM\"], \"ok\", 9]}");
}

/* Siblings share the zygote's network namespace, where abstract sockets live. */
static void siblings_cannot_meet_over_abstract_sockets(void **state)
{
    struct fixture *f = *state;
    if (!has_scopes())
        skip();
    open_at(f, own_root());
    struct session *first = f->session;
    assert_submits(f,
        "s = socket.socket(socket.AF_UNIX)\ns.bind('\\0droste-meet')\ns.listen()\n"
        "c = socket.socket(socket.AF_UNIX)\nSUBMIT(e(c.connect, '\\0droste-meet'))",
        "{\"output\": \"ok\"}");
    f->session = NULL; /* beside the first, which lives on */
    open_at(f, own_root());
    assert_submits(f, "c = socket.socket(socket.AF_UNIX)\nSUBMIT(e(c.connect, '\\0droste-meet'))",
        "{\"output\": \"EPERM\"}");
    session_close(first);
}

/* What is open in a sandbox is its own: a description that it shared with a sibling would keep the
 * notes that fcntl leaves in it (the number of a signal, an owner, a flag). */
static void siblings_share_no_open_file(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    struct session *first = f->session;
    static const char note[] = "import fcntl\n"
                               "def notes(): return [fcntl.fcntl(fd, 11) for fd in range(4)]\n";
    assert_status(run(f, note), CELL_OK);
    assert_submits(f, "[fcntl.fcntl(fd, 10, 42) for fd in range(4)]; SUBMIT(notes())",
        "{\"output\": [42, 42, 42, 42]}");
    f->session = NULL;
    open_at(f, own_root());
    assert_status(run(f, note), CELL_OK);
    assert_submits(f, "SUBMIT(notes())", "{\"output\": [0, 0, 0, 0]}");
    session_close(first);
}

/* Without Landlock the mounts alone say so; with it, twice. */
static void a_guest_writes_in_its_own_directories_only(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    assert_submits(f,
        "def put(p):\n    with open(p, 'w') as f: f.write('x')\n"
        "os.mkdir('/tmp/a'); os.mkdir('/tmp/b'); put('/tmp/a/x')\n"
        "SUBMIT([e(put, p) in ('EACCES', 'EROFS', 'EPERM', 'ENOENT') for p in "
        "('/usr/x', '/etc/passwd', '/proc/self/oom_score_adj', '/dev/x', '/x')],"
        " [e(put, p) for p in ('/dev/null', '/dev/shm/x', '/tmp/x')],"
        " e(os.rename, '/tmp/a/x', '/tmp/b/x'), e(os.truncate, '/tmp/b/x', 0),"
        " e(os.symlink, 'x', '/tmp/l'), e(os.mkfifo, '/tmp/f'), e(os.chmod, '/tmp/b/x', 0o700))",
        "{\"output\": [[true, true, true, true, true], [\"ok\", \"ok\", \"ok\"], \"ok\", "
        "\"ok\", \"ok\", \"ok\", \"ok\"]}");
}

static void what_proc_tells_of_the_host_is_masked(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    assert_submits(f,
        "def size(p):\n"
        "    try: return len(open(p, 'rb').read())\n"
        "    except OSError: return 0\n"
        "SUBMIT([p for p in ('kallsyms', 'keys', 'key-users', 'interrupts', 'timer_list', 'kcore',"
        " 'kmsg', 'config.gz', 'sched_debug', 'cmdline', 'locks') if size('/proc/' + p)],"
        " size('/proc/meminfo') > 100, size('/proc/self/status') > 100,"
        " open('/proc/self/exe', 'rb').read(4)[1:].decode())",
        "{\"output\": [[], true, true, \"ELF\"]}");
}

/* Raw numbers, so that the C library hides nothing. x86-64's; other machines have others. */
static const char raw_calls[] = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
                                "def raw(*args):\n"
                                "    ctypes.set_errno(0)\n"
                                "    if libc.syscall(*args) >= 0: return 'ok'\n"
                                "    return errno.errorcode[ctypes.get_errno()]\n";

static bool has_raw_calls(void)
{
#ifdef __x86_64__
    return true;
#else
    print_message("# the numbers are x86-64's\n");
    return false;
#endif
}

static void open_with_raw_calls(struct fixture *f)
{
    if (!has_raw_calls())
        skip();
    open_at(f, own_root());
    assert_status(run(f, raw_calls), CELL_OK);
}

/* Each of these is a door to the kernel that a guest has no use for. */
static void calls_that_attacks_need_are_refused_by_name(void **state)
{
    struct fixture *f = *state;
    open_with_raw_calls(f);
    assert_submits(f,
        "names = dict(ptrace=101, syslog=103, unshare=272, setns=308, kcmp=312, bpf=321, "
        "userfaultfd=323, perf_event_open=298, keyctl=250, add_key=248, request_key=249, "
        "process_vm_readv=310, process_vm_writev=311, pidfd_getfd=438, io_uring_setup=425, "
        "open_tree=428, move_mount=429, fsopen=430, mount_setattr=442, kexec_load=246, "
        "init_module=175, finit_module=313, reboot=169, swapon=167, acct=163, quotactl=179, "
        "iopl=172, ioperm=173, modify_ldt=154, lookup_dcookie=212, name_to_handle_at=303, "
        "fanotify_init=300, chroot=161, pivot_root=155, seccomp=317, mlockall=151, "
        "sched_setscheduler=144, process_madvise=440)\n"
        "SUBMIT([n for n, number in names.items() if raw(number, 0, 0, 0, 0, 0, 0) != 'EPERM'])",
        "{\"output\": []}");
}

/* The kernel's answer to a descriptor that is none would be EBADF: it was not asked. */
static void a_sync_of_the_whole_machine_does_nothing(void **state)
{
    struct fixture *f = *state;
    open_with_raw_calls(f);
    assert_submits(f,
        "os.sync(); f = open('/tmp/x', 'w')\n"
        "SUBMIT(raw(306, -1, 0, 0, 0, 0, 0), e(os.fsync, f.fileno()), e(os.fsync, 99))",
        "{\"output\": [\"ok\", \"ok\", \"EBADF\"]}");
}

/* What nobody has thought of is refused too: clone3 hides its flags from a filter, and numbers that
 * this kernel or the next gives to something new are not in the list. */
static void calls_that_are_not_in_the_list_do_not_exist(void **state)
{
    struct fixture *f = *state;
    open_with_raw_calls(f);
    assert_submits(f,
        "SUBMIT([n for n in [435, 253, 254] + list(range(457, 600)) "
        "if raw(n, 0, 0, 0, 0, 0, 0) != 'ENOSYS'])",
        "{\"output\": []}");
}

/* Namespaces, raw sockets, other families, typing into a terminal, odd prctls: by their arguments.
 * The twins are what ordinary code does with the same calls. */
static void calls_are_refused_by_their_arguments(void **state)
{
    struct fixture *f = *state;
    open_with_raw_calls(f);
    assert_submits(f,
        "flags = (0x10000000, 0x20000000, 0x20000, 0x40000000, 0x8000000, 0x4000000, 0x2000000)\n"
        "SUBMIT([raw(56, flag | 17, 0, 0, 0, 0) for flag in flags] == ['EPERM'] * 7,"
        " [raw(41, family, 1, 0) for family in (16, 17, 38, 40, 15)],"
        " raw(41, 2, 3, 1), raw(16, 0, 0x5412, b'x'), raw(16, 0, 0x100005412, b'x'),"
        " raw(157, 35, 0, 0, 0, 0), raw(157, 4, 1, 0, 0, 0), raw(135, 0x0040000),"
        " [raw(72, 0, n, 0) for n in (0x402, 0x400, 0x100000402)], raw(72, 0, 1, 0))",
        "{\"output\": [true, [\"ENOSYS\", \"ENOSYS\", \"ENOSYS\", \"ENOSYS\", \"ENOSYS\"], "
        "\"ENOSYS\", \"EPERM\", \"EPERM\", \"ENOSYS\", \"ENOSYS\", \"ENOSYS\", "
        "[\"EPERM\", \"EPERM\", \"EPERM\"], \"ok\"]}");
    assert_submits(f,
        "import socket, subprocess, threading, multiprocessing\n"
        "t = threading.Thread(target=lambda: None); t.start(); t.join()\n"
        "pid = os.fork()\nif pid == 0: os._exit(7)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "out = subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout\n"
        "a, b = socket.socketpair(); a.send(b'x')\n"
        "tcp = socket.socket(); udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "with multiprocessing.Pool(2) as pool: squares = pool.map(abs, [-1, -2])\n"
        "SUBMIT(code, out, b.recv(1).decode(), squares)",
        "{\"output\": [7, \"hi\\n\", \"x\", [1, 2]]}");
}

static void limits_are_as_asked_for(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    options.spec.isolation = own_root();
    options.spec.limits = (struct jail_limits){ .memory = 300 << 20,
        .processes = 20,
        .open_files = 100,
        .file_size = 1 << 20,
        .tmp_size = 8 << 20 };
    fixture_open(f, &options);
    assert_submits(f,
        "import resource as r\nSUBMIT([r.getrlimit(getattr(r, 'RLIMIT_' + n)) "
        "for n in ('DATA', 'NPROC', 'NOFILE', 'FSIZE', 'CORE', 'SIGPENDING')])",
        "{\"output\": [[314572800, 314572800], [20, 20], [100, 100], [1048576, 1048576], "
        "[1, 1], [1024, 1024]]}");
    assert_status(run(f, "r.setrlimit(r.RLIMIT_NOFILE, (200, 200))"), CELL_ERROR);
    assert_string_equal(f->last.error.type, "ValueError");
}

static void memory_over_the_limit_is_an_error_and_the_session_lives(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    options.spec.limits.memory = 200 << 20;
    fixture_open(f, &options);
    run(f, "x = 1");
    const struct cell_result *r = run(f, "y = bytearray(300 << 20)");
    assert_status(r, CELL_ERROR);
    assert_true(r->alive);
    assert_string_equal(r->error.type, "MemoryError");
    assert_submits(
        f, "y = bytearray(50 << 20); SUBMIT(x=x, n=len(y))", "{\"x\": 1, \"n\": 52428800}");
}

static void a_fork_bomb_stops_at_the_limit(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    options.spec.isolation = own_root();
    options.spec.limits.processes = 20;
    fixture_open(f, &options);
    assert_submits(f,
        "import errno, os, time\npids = []\n"
        "try:\n"
        "    while len(pids) < 1000:\n"
        "        pid = os.fork()\n"
        "        if pid == 0:\n"
        "            time.sleep(1000)\n"
        "            os._exit(0)\n"
        "        pids.append(pid)\n"
        "except OSError as e:\n"
        "    SUBMIT(errno.errorcode[e.errno], len(pids))",
        "{\"output\": [\"EAGAIN\", 18]}");
    assert_submits(f,
        "[os.kill(p, 9) for p in pids]; [os.waitpid(p, 0) for p in pids]\n"
        "SUBMIT(os.waitpid(os.fork() or os._exit(0), 0)[1])",
        "{\"output\": 0}");
}

static void orphans_are_reaped_by_the_keeper(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    assert_submits(f,
        "for i in range(50):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os.fork()\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "t = time.monotonic()\n"
        "def others(): return [p for p in os.listdir('/proc') if p.isdigit() and int(p) > 2]\n"
        "while others() and time.monotonic() - t < 30: time.sleep(0.01)\n"
        "SUBMIT(others())",
        "{\"output\": []}");
}

static void a_daemon_dies_with_its_session(void **state)
{
    const enum isolation levels[] = { own_root(), ISOLATION_PROCESS };
    struct fixture *f = *state;
    for (size_t i = 0; i < array_length(levels); i++) {
        open_at(f, levels[i]);
        assert_status(run(f, "r, w = os.pipe()\n"
                             "if os.fork() == 0:\n"
                             "    os.setsid()\n"
                             "    if os.fork() == 0:\n"
                             "        os.write(w, str(os.getpid()).encode())\n"
                             "        while True: time.sleep(1)\n"
                             "    os._exit(0)\n"
                             "os.wait()\npid = int(os.read(r, 20))\nos.kill(pid, 0)"),
            CELL_OK);
        if (levels[i] == ISOLATION_PROCESS) {
            run(f, "SUBMIT(pid)");
            pid_t daemon = atoi(strpbrk(submitted(&f->last), "0123456789"));
            assert_int_equal(kill(daemon, 0), 0);
            fixture_close(f);
            for (int tries = 0; tries < 6000 && kill(daemon, 0) == 0; tries++)
                usleep(10000);
            assert_int_equal(kill(daemon, 0), -1);
            assert_int_equal(errno, ESRCH);
        }
    }
}

/* The processes whose parent is `parent`, but for a zygote's standby: how many they are, the last
 * of them in *child, and in *user whose it is in all four of its ids, or -1. */
static unsigned children_of(pid_t parent, pid_t *child, uid_t *user)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *e; (e = readdir(dir));) {
        char path[300], line[128];
        int found_parent = 0, uids[4] = { 0 };
        char name[32] = "";
        snprintf(path, sizeof path, "/proc/%s/status", e->d_name);
        FILE *file = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        while (file && fgets(line, sizeof line, file)) {
            sscanf(line, "Name: %31s", name);
            sscanf(line, "PPid: %d", &found_parent);
            sscanf(line, "Uid: %d %d %d %d", &uids[0], &uids[1], &uids[2], &uids[3]);
        }
        if (file)
            fclose(file);
        if (!file || found_parent != parent)
            continue;
        if (strcmp(name, "standby") == 0)
            continue;
        count++;
        *user = (uid_t)uids[0];
        for (int i = 1; i < 4; i++)
            if (uids[i] != uids[0])
                *user = (uid_t)-1;
        *child = atoi(e->d_name);
    }
    closedir(dir);
    return count;
}

/* Where the host lowers processes, all are of one session: between sessions that have autogroups
 * their policies would not count (sched(7)). */
static void a_guest_has_a_session_of_its_own_only_where_that_is_needed(void **state)
{
    struct fixture *f = *state;
    open_at(f, own_root());
    assert_submits(f, "SUBMIT(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())",
        cpu_priority_can_raise() ? "{\"output\": [false, true]}" : "{\"output\": [true, true]}");
}

/* The host answers all of them: it goes first. */
static void a_guest_runs_below_its_host(void **state)
{
    struct fixture *f = *state;
    char expected[64];
    int nice = getpriority(PRIO_PROCESS, 0);
    open_at(f, own_root());
    snprintf(expected, sizeof expected, "{\"output\": %d}", nice < 9 ? nice + 10 : 19);
    assert_submits(f, "SUBMIT(os.getpriority(os.PRIO_PROCESS, 0))", expected);
}

/* The only child, which is one of these users. A standby copy takes its name after the clone, and a
 * zygote that starts a sandbox is its user for a moment, perhaps while the guest already runs. */
static void find_only_child(pid_t parent, const struct user_range *users, pid_t *child, uid_t *user)
{
    pid_t found = 0;
    unsigned count = 0;
    for (int i = 0; i < 6000; i++) {
        count = children_of(parent, &found, user);
        if (count == 1 && *user >= users->first && *user <= users->last)
            break;
        usleep(10000);
    }
    assert_int_equal(count, 1);
    assert_in_range(*user, users->first, users->last);
    *child = found;
}

/* The zygote is nobody; its keeper and the guest's process are one user, who is no other
 * sandbox's. */
static void roots_guest_is_a_user_of_its_own_on_the_host(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    const struct user_range *users = &options.spec.users, nobody = { JAIL_NOBODY, JAIL_NOBODY };
    uid_t before = 0;
    if (geteuid() != 0) {
        print_message("skipped: only root's guests change their user\n");
        skip();
    }
    for (int round = 0; round < 2; round++) {
        pid_t pid = getpid();
        uid_t zygote, keeper, guest;
        open_at(f, own_root());
        find_only_child(pid, &nobody, &pid, &zygote);
        find_only_child(pid, users, &pid, &keeper);
        find_only_child(pid, users, &pid, &guest);
        assert_int_equal(keeper, guest);
        assert_int_not_equal(guest, before);
        before = guest;
        assert_submits(f, "SUBMIT(os.getuid(), os.getgid(), os.getgroups())",
            "{\"output\": [1000, 1000, []]}");
    }
}

static void a_stopped_guest_is_killed_at_its_deadline(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    options.grace = 0.2;
    fixture_open(f, &options);
    const struct cell_result *r =
        run_limited(f, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", 1);
    assert_status(r, CELL_TIMEOUT);
    assert_false(r->alive);
    assert_string_equal(r->killed, "timeout");
}

/* Large replies and variables travel as descriptors, for which there may be no number left. */
static void a_guest_without_descriptors_is_still_spoken_with(void **state)
{
    struct fixture *f = *state;
    char *large = calloc(1, 100001);
    open_at(f, fixture_isolation());
    memset(large, '#', 100000);
    assert_submits(f,
        "fds = []\n"
        "while e(lambda: fds.append(os.dup(0))) == 'ok': pass\n"
        "SUBMIT(e(os.dup, 0), llm_query('small'), e(llm_query, 'x' * 100000))",
        "{\"output\": [\"EMFILE\", \"small\", \"EMFILE\"]}");
    assert_status(run(f, large), CELL_ERROR);
    assert_string_equal(f->last.error.type, "OSError");
    assert_submits(f, "os.close(fds.pop()); SUBMIT(e(llm_query, 'x' * 100000))",
        "{\"output\": \"EMFILE\"}"); /* a map needs one of its own */
    assert_submits(f, "[os.close(fd) for fd in fds]; SUBMIT(len(llm_query('x' * 100000)))",
        "{\"output\": 100000}");
    assert_status(run(f, large), CELL_OK);
    free(large);
}

static void a_flood_of_output_is_capped_and_costs_the_host_nothing(void **state)
{
    struct fixture *f = *state;
    open_at(f, fixture_isolation());
    size_t before = resident_bytes();
    const struct cell_result *r =
        run(f, "for i in range(200): os.write(1, b'x' * (1 << 20)), os.write(2, b'y' * 4096)");
    assert_status(r, CELL_OK);
    assert_int_equal(r->out_left_out, (200ull << 20) - (1u << 20));
    assert_true(r->out.len < (1u << 20) + 100);
    assert_int_equal(r->err.len, 200 * 4096);
    assert_in_range(resident_bytes(), 0, before + (32u << 20));
    assert_submits(f, "SUBMIT(x=1)", "{\"x\": 1}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_hosts_files_are_not_there),
        T(system_directories_are_readable_and_not_writable),
        T(tmp_is_private_writable_and_gone_with_its_sandbox),
        T(tmp_is_limited_in_bytes_and_files),
        T(proc_shows_only_its_own_processes),
        T(there_is_no_network),
        T(the_hosts_abstract_sockets_are_out_of_reach),
        T(worker_and_keeper_have_no_privileges),
        T(what_needs_privileges_is_denied),
        T(the_keeper_cannot_be_signalled_and_ones_own_children_can),
        T(siblings_cannot_meet_over_abstract_sockets),
        T(siblings_share_no_open_file),
        T(a_sync_of_the_whole_machine_does_nothing),
        T(a_guest_writes_in_its_own_directories_only),
        T(what_proc_tells_of_the_host_is_masked),
        T(calls_that_attacks_need_are_refused_by_name),
        T(calls_that_are_not_in_the_list_do_not_exist),
        T(calls_are_refused_by_their_arguments),
        T(limits_are_as_asked_for),
        T(memory_over_the_limit_is_an_error_and_the_session_lives),
        T(a_fork_bomb_stops_at_the_limit),
        T(orphans_are_reaped_by_the_keeper),
        T(a_daemon_dies_with_its_session),
        T(a_guest_has_a_session_of_its_own_only_where_that_is_needed),
        T(a_guest_runs_below_its_host),
        T(roots_guest_is_a_user_of_its_own_on_the_host),
        T(a_stopped_guest_is_killed_at_its_deadline),
        T(a_guest_without_descriptors_is_still_spoken_with),
        T(a_flood_of_output_is_capped_and_costs_the_host_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
