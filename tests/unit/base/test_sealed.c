/* Mapping memory files of a hostile process: each way to change one afterwards is refused. */
#include "../test.h"

#include "base/os/sealed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { SIZE = 10000, ALL = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static int made_file(int seals, size_t written, size_t size)
{
    static char data[SIZE];
    int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    memset(data, 'x', sizeof data);
    assert_int_equal(write(fd, data, written), written);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* Takes the descriptor. */
static void refuse(int fd_owned, size_t len, const char *why)
{
    struct error err = { 0 };
    struct sealed s;
    cleanup_fd int fd = fd_owned;
    assert_int_equal(sealed_map(fd, len, NULL, &s, &err), -(int)ERROR_PROTOCOL);
    assert_non_null(strstr(err.text, why));
    assert_null(s.data);
}

static void a_sealed_file_is_mapped(void **state)
{
    struct sealed s;
    cleanup_fd int fd = made_file(ALL, SIZE, SIZE);
    assert_ok(sealed_map(fd, SIZE, NULL, &s, err));
    assert_int_equal(s.len, SIZE);
    assert_int_equal(s.data[SIZE - 1], 'x');
    sealed_unmap(&s);
    assert_null(s.data);
    sealed_unmap(&s);
}

/* Writing to the mapping copies the page: the file, which the guest sees, stays as it was. */
static void writes_are_private(void **state)
{
    struct sealed one, two;
    cleanup_fd int fd = made_file(ALL, SIZE, SIZE);
    assert_ok(sealed_map(fd, SIZE, NULL, &one, err));
    assert_ok(sealed_map(fd, SIZE, NULL, &two, err));
    one.data[0] = 'y';
    assert_int_equal(two.data[0], 'x');
    sealed_unmap(&one);
    sealed_unmap(&two);
}

static void a_file_without_a_seal_is_refused(void **state)
{
    static const int lacking[] = { 0, F_SEAL_SEAL, ALL & ~F_SEAL_WRITE, ALL & ~F_SEAL_SHRINK,
        ALL & ~F_SEAL_GROW };
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        refuse(made_file(lacking[i], SIZE, SIZE), SIZE, "not sealed");
}

static void another_length_is_refused(void **state)
{
    refuse(made_file(ALL, SIZE, SIZE), SIZE - 1, "10000 bytes instead of 9999");
    refuse(made_file(ALL, SIZE, SIZE), SIZE + 1, "10000 bytes instead of 10001");
    refuse(made_file(ALL, 0, 0), 0, "bytes instead of");
}

/* Pages of a hole would be charged to the reader. */
static void a_file_with_holes_is_refused(void **state)
{
    refuse(made_file(ALL, 1, SIZE), SIZE, "with holes");
}

static void what_is_no_memory_file_is_refused(void **state)
{
    int pipes[2], sockets[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    refuse(pipes[0], SIZE, "not of a memory file");
    refuse(sockets[0], SIZE, "not of a memory file");
    refuse(open("/", O_RDONLY | O_CLOEXEC), SIZE, "not of a memory file");
    refuse(open("/dev/zero", O_RDONLY | O_CLOEXEC), SIZE, "not of a memory file");
    refuse(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), SIZE, "not sealed");
    close(pipes[1]);
    close(sockets[1]);
}

static void mapped_bytes_are_counted_until_they_are_unmapped(void **state)
{
    struct sealed one, two;
    struct sealed_total *total = sealed_total_new();
    cleanup_fd int fd = made_file(ALL, SIZE, SIZE);
    assert_ok(sealed_map(fd, SIZE, total, &one, err));
    assert_ok(sealed_map(fd, SIZE, total, &two, err));
    assert_int_equal(sealed_total_bytes(total), 2 * SIZE);
    sealed_unmap(&one);
    assert_int_equal(sealed_total_bytes(total), SIZE);
    sealed_total_drop(total); /* the mapping keeps it */
    assert_int_equal(sealed_total_bytes(two.total), SIZE);
    sealed_unmap(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sealed_file_is_mapped),
        cmocka_unit_test(writes_are_private),
        cmocka_unit_test(a_file_without_a_seal_is_refused),
        cmocka_unit_test(another_length_is_refused),
        cmocka_unit_test(a_file_with_holes_is_refused),
        cmocka_unit_test(what_is_no_memory_file_is_refused),
        cmocka_unit_test(mapped_bytes_are_counted_until_they_are_unmapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
