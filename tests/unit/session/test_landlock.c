/* What isolation `landlock` holds back, where the guest stands among the host's files and
 * processes. A deny has its allowed twin, which is often the host itself doing the same. */
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jail/landlock.h"

static bool can_have_it(void)
{
    if (landlock_abi() >= LANDLOCK_SCOPE_ABI)
        return true;
    print_message("# this kernel has no Landlock of ABI %d\n", LANDLOCK_SCOPE_ABI);
    return false;
}

static void open_confined(struct fixture *f)
{
    struct session_options options = fixture_options();
    options.spec.isolation = ISOLATION_LANDLOCK;
    options.spec.python = "/usr/bin/python3";
    options.spec.limits.processes = 20;
    fixture_open(f, &options);
    /* e(call, ...) gives the name of the errno, or "ok". */
    assert_status(run(f, "import errno, os, socket, time\n"
                         "def e(call, *args):\n"
                         "    try: call(*args)\n"
                         "    except OSError as error: return errno.errorcode[error.errno]\n"
                         "    return 'ok'\n"),
        CELL_OK);
}

#define CONFINED(f)                                                                                \
    struct fixture *f = *state;                                                                    \
    if (!can_have_it())                                                                            \
        skip();                                                                                    \
    open_confined(f)

/* A file of the host's that its user can read and write, and a directory around it. */
static char directory[64], file[80];

static int make_file(void **state)
{
    snprintf(directory, sizeof directory, "/tmp/droste-host-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    chmod(directory, 0777);
    snprintf(file, sizeof file, "%s/file", directory);
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    (void)!write(fd, "canary", 6);
    fchmod(fd, 0666);
    close(fd);
    if (geteuid() == 0) /* the guest's own, as with an ordinary user */
        (void)!chown(file, JAIL_NOBODY, JAIL_NOBODY);
    return fixture_setup(state);
}

static int remove_file(void **state)
{
    unlink(file);
    rmdir(directory);
    return fixture_teardown(state);
}

static bool is_as_it_was(void)
{
    char text[16] = "";
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text);
    bool same = n == 6 && memcmp(text, "canary", 6) == 0 && fstat(fd, &st) == 0 &&
                (st.st_mode & 07777) == 0666;
    close(fd);
    return same;
}

static void the_hosts_files_cannot_be_opened(void **state)
{
    char code[700];
    CONFINED(f);
    snprintf(code, sizeof code,
        "p, d = '%s', '%s'\n"
        "SUBMIT([e(open, p), e(open, p, 'a'), e(open, p, 'w'), e(os.truncate, p, 0), e(os.unlink, "
        "p),"
        " e(os.rename, p, p + '2'), e(os.link, p, d + '/l'), e(os.symlink, p, d + '/s'),"
        " e(os.mkdir, d + '/m'), e(open, d + '/new', 'w'), e(os.listdir, d), e(open, "
        "'/etc/passwd'),"
        " e(os.listdir, '/'), e(os.listdir, '/proc')], e(os.stat, p))",
        file, directory);
    assert_submits(f, code,
        "{\"output\": [[\"EACCES\", \"EACCES\", \"EACCES\", \"EACCES\", \"EACCES\", \"EACCES\", "
        "\"EACCES\", \"EACCES\", \"EACCES\", \"EACCES\", \"EACCES\", \"EACCES\", \"EACCES\", "
        "\"EACCES\"], \"ok\"]}");
    assert_true(is_as_it_was());
}

/* Landlock does not see these; the filter does. */
static void the_hosts_files_keep_their_modes_times_and_attributes(void **state)
{
    char code[500];
    CONFINED(f);
    snprintf(code, sizeof code,
        "p = '%s'\n"
        "SUBMIT(e(os.chmod, p, 0), e(os.chown, p, 0, 0), e(os.utime, p, (1, 1)),"
        " e(os.setxattr, p, 'user.x', b'y'), e(os.chmod, '/usr/bin', 0o777))",
        file);
    assert_submits(
        f, code, "{\"output\": [\"EPERM\", \"EPERM\", \"EPERM\", \"EPERM\", \"EPERM\"]}");
    assert_true(is_as_it_was());
}

static void its_own_directory_is_all_its_own(void **state)
{
    CONFINED(f);
    assert_submits(f,
        "import tempfile\n"
        "os.mkdir('d'); open('d/x', 'w').write('hello'); os.rename('d/x', 'y'); os.truncate('y', "
        "2)\n"
        "os.symlink('y', 'l'); os.link('y', 'h')\n"
        "SUBMIT(open('l').read(), sorted(os.listdir()), "
        "tempfile.mkdtemp().startswith(os.getcwd()))",
        "{\"output\": [\"he\", [\"d\", \"h\", \"l\", \"y\"], true]}");
}

static void the_interpreter_and_the_system_can_be_read(void **state)
{
    CONFINED(f);
    assert_submits(f,
        "import sqlite3, decimal, subprocess\n"
        "SUBMIT(e(open, '/usr/bin/env'), e(open, '/dev/null', 'w'), e(open, '/proc/self/status'),"
        " e(open, '/proc/meminfo'), subprocess.check_output(['echo', 'hi'], text=True),"
        " e(open, '/usr/x', 'w') in ('EACCES', 'EROFS'))",
        "{\"output\": [\"ok\", \"ok\", \"ok\", \"ok\", \"hi\\n\", true]}");
}

static void siblings_do_not_see_each_others_directory(void **state)
{
    char code[200];
    CONFINED(f);
    struct session *first = f->session;
    assert_status(run(f, "open('mark', 'w').write('x'); SUBMIT(os.getcwd())"), CELL_SUBMITTED);
    char *start = strchr(submitted(&f->last), '/');
    snprintf(code, sizeof code, "SUBMIT(e(open, '%.*s/mark'), e(os.listdir, '%.*s'))",
        (int)strcspn(start, "\""), start, (int)strcspn(start, "\""), start);
    assert_submits(f, code, "{\"output\": [\"ok\", \"ok\"]}");
    f->session = NULL; /* beside the first, which lives on */
    open_confined(f);
    assert_submits(f, code, "{\"output\": [\"EACCES\", \"EACCES\"]}");
    session_close(first);
}

/* A process of the user that the guest is, which ends with the test whatever becomes of that. */
static pid_t start_bystander(void)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (geteuid() == 0 && setresuid(JAIL_NOBODY, JAIL_NOBODY, JAIL_NOBODY) < 0)
        _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (;;)
        pause();
}

static void processes_outside_cannot_be_signalled_or_looked_into(void **state)
{
    char code[500];
    CONFINED(f);
    pid_t bystander = start_bystander();
    snprintf(code, sizeof code,
        "p = %d\n"
        "def words(path): return open(path).read()\n"
        "SUBMIT([e(os.kill, p, n) for n in (0, 9, 19)], e(os.killpg, p, 9),"
        " [e(os.kill, os.getppid(), n) for n in (0, 19)], e(words, '/proc/%%d/environ' %% p),"
        " e(words, '/proc/%%d/environ' %% os.getppid()), e(os.kill, os.getpid(), 0),"
        " len(words('/proc/self/environ')) > 0)",
        (int)bystander);
    assert_submits(f, code,
        "{\"output\": [[\"EPERM\", \"EPERM\", \"EPERM\"], \"ESRCH\", [\"EPERM\", \"EPERM\"], "
        "\"EACCES\", \"EACCES\", \"ok\", true]}");
    assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0); /* it lives */
    kill(bystander, SIGKILL);
    waitpid(bystander, NULL, 0);
}

/* Renicing everything of a user's, or taking its limits away. */
static void processes_outside_keep_their_priorities_and_limits(void **state)
{
    CONFINED(f);
    assert_submits(f,
        "import resource\nup = os.getppid()\n"
        "SUBMIT(e(os.setpriority, os.PRIO_USER, 0, 19) != 'ok',"
        " e(os.setpriority, os.PRIO_PROCESS, up, 19) != 'ok',"
        " e(resource.prlimit, up, resource.RLIMIT_NOFILE, (0, 0)) != 'ok',"
        " e(os.setpriority, os.PRIO_PROCESS, 0, 19), resource.getrlimit(resource.RLIMIT_CORE))",
        "{\"output\": [true, true, true, \"ok\", [1, 1]]}");
}

static void no_socket_can_be_made_but_a_pair(void **state)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char code[400];
    CONFINED(f);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", directory);
    cleanup_fd int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    chmod(address.sun_path, 0777);
    snprintf(code, sizeof code,
        "a, b = socket.socketpair()\na.send(b'x')\n"
        "SUBMIT([e(socket.socket, n) for n in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)],"
        " e(a.connect, '%s') != 'ok', b.recv(1).decode())",
        address.sun_path);
    assert_submits(f, code, "{\"output\": [[\"EPERM\", \"EPERM\", \"EPERM\"], true, \"x\"]}");
    unlink(address.sun_path);
}

/* Without a user namespace the kernel counts the user's other processes too, and others of this
 * check may start while the bomb grows: it tries again until it has got some. */
static void a_fork_bomb_stops_at_about_the_limit(void **state)
{
    CONFINED(f);
    assert_submits(f,
        "def forked(enough):\n"
        "    while True:\n"
        "        try: return os.fork()\n"
        "        except OSError as error:\n"
        "            if enough: return errno.errorcode[error.errno]\n"
        "        time.sleep(0.01)\n"
        "pids = []\n"
        "while type(pid := forked(len(pids) > 5)) is int and len(pids) < 1000:\n"
        "    if pid == 0:\n"
        "        time.sleep(1000)\n"
        "        os._exit(0)\n"
        "    pids.append(pid)\n"
        "SUBMIT(pid, len(pids) < 100)",
        "{\"output\": [\"EAGAIN\", true]}");
    assert_submits(f,
        "[os.kill(p, 9) for p in pids]; [os.waitpid(p, 0) for p in pids]\n"
        "SUBMIT(os.waitpid(forked(False) or os._exit(0), 0)[1])",
        "{\"output\": 0}");
}

/* There is no pid namespace to end it with, and each process forks as fast as it can while it is
 * being killed; how the sandbox ended is told only when none is left. The user's other processes
 * live on. */
static void a_fork_bomb_ends_with_its_sandbox(void **state)
{
    CONFINED(f);
    pid_t bystander = start_bystander();
    for (int round = 0; round < 3; round++) {
        /* Others of the user may have used up the limit meanwhile. */
        run(f, "def fork():\n"
               "    while True:\n"
               "        try: return os.fork()\n"
               "        except OSError: time.sleep(0.01)\n"
               "if fork() == 0:\n"
               "    while True:\n"
               "        try: os.fork()\n"
               "        except BaseException: pass\n"
               "time.sleep(0.2)\n"
               "os._exit(3)\n");
        assert_status(&f->last, CELL_KILLED);
        assert_string_equal(f->last.killed, "exit 3");
        fixture_close(f);
        open_confined(f);
    }
    assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0); /* it lives */
    kill(bystander, SIGKILL);
    waitpid(bystander, NULL, 0);
}

/* An ordinary user cannot empty the bounding set, from which nothing can be had. */
static void privileges_are_gone_and_do_not_come_back(void **state)
{
    CONFINED(f);
    assert_submits(f,
        "s = dict(l.split(':\\t', 1) for l in open('/proc/self/status').read().splitlines())\n"
        "SUBMIT([int(s[n], 16) for n in ('CapInh', 'CapPrm', 'CapEff', 'CapAmb')],"
        " [s[n] for n in ('NoNewPrivs', 'Seccomp')], os.getuid() != 0, e(os.setuid, 0))",
        "{\"output\": [[0, 0, 0, 0], [\"1\", \"2\"], true, \"EPERM\"]}");
    if (geteuid() == 0)
        assert_submits(f, "SUBMIT(int(s['CapBnd'], 16))", "{\"output\": 0}");
}

/* As root the guest is nobody, who cannot read what only root can: said at once, not as an import
 * that fails in the middle of a cell. */
static void an_unreadable_interpreter_is_refused(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    struct session_events events = { 0 };
    if (!can_have_it())
        skip();
    if (geteuid() != 0) {
        print_message("# needs root\n");
        skip();
    }
    char command[300], python[100];
    snprintf(python, sizeof python, "%s/venv/bin/python3", directory);
    snprintf(command, sizeof command, "/usr/bin/python3 -m venv --without-pip %s/venv", directory);
    assert_int_equal(system(command), 0);
    options.spec.isolation = ISOLATION_LANDLOCK;
    options.spec.python = python;
    fixture_open(f, &options);
    assert_submits(f, "SUBMIT(1)", "{\"output\": 1}");
    fixture_close(f);
    environment_close(f->env);
    assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    chmod(directory, 0700);
    struct error reason = { 0 };
    int rc = session_open(f->env, &options, &events, f, &f->session, &reason);
    chmod(directory, 0777);
    snprintf(command, sizeof command, "rm -r %s/venv", directory);
    assert_int_equal(system(command), 0);
    assert_int_equal(rc, -(int)ERROR_UNSUPPORTED);
    assert_non_null(strstr(reason.text, directory));
}

#define AROUND_FILE(test) cmocka_unit_test_setup_teardown(test, make_file, remove_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AROUND_FILE(the_hosts_files_cannot_be_opened),
        AROUND_FILE(the_hosts_files_keep_their_modes_times_and_attributes),
        T(its_own_directory_is_all_its_own),
        T(the_interpreter_and_the_system_can_be_read),
        T(siblings_do_not_see_each_others_directory),
        T(processes_outside_cannot_be_signalled_or_looked_into),
        T(processes_outside_keep_their_priorities_and_limits),
        AROUND_FILE(no_socket_can_be_made_but_a_pair),
        T(a_fork_bomb_stops_at_about_the_limit),
        T(a_fork_bomb_ends_with_its_sandbox),
        T(privileges_are_gone_and_do_not_come_back),
        AROUND_FILE(an_unreadable_interpreter_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
