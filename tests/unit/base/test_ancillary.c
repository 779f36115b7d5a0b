/* Descriptors that are sent with messages. */
#include "../test.h"

#include <fcntl.h>

#include "base/os/ancillary.h"

/* Two descriptors are sent in one message; the receiver wants so many. */
static size_t pass_two(int fds[2], size_t most)
{
    ANCILLARY(2) out = { { 0 } };
    ANCILLARY(1) in = { { 0 } };
    int pair[2];
    char byte = 'x';
    struct iovec iov = { &byte, 1 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    struct msghdr received = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = in.bytes, .msg_controllen = sizeof in.bytes
    };
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ancillary_put(&m, &out, pair, 2);
    assert_int_equal(sendmsg(pair[0], &m, 0), 1);
    assert_int_equal(recvmsg(pair[1], &received, MSG_CMSG_CLOEXEC), 1);
    size_t taken = ancillary_take(&received, fds, most);
    close(pair[0]);
    close(pair[1]);
    return taken;
}

/* The room for one has place for two: what was not asked for is neither written behind the caller's
 * array nor left open; its twin asks for both and has them. */
static void what_is_too_many_is_closed(void **state)
{
    int next = dup(0), fds[2] = { -1, -1 };
    close(next); /* the lowest that is free: what stays open takes it */
    assert_int_equal(pass_two(fds, 1), 1);
    assert_true(fcntl(fds[0], F_GETFD) >= 0);
    assert_int_equal(fds[1], -1);
    close(fds[0]);
    int after = dup(0);
    assert_int_equal(after, next);
    close(after);
    assert_true(fcntl(next, F_GETFD) < 0 && fcntl(next + 1, F_GETFD) < 0 &&
                fcntl(next + 2, F_GETFD) < 0 && fcntl(next + 3, F_GETFD) < 0);
    assert_int_equal(pass_two(fds, 2), 2);
    assert_true(fcntl(fds[0], F_GETFD) >= 0 && fcntl(fds[1], F_GETFD) >= 0);
    close(fds[0]);
    close(fds[1]);
}

/* A message without any gives none. */
static void none_is_none(void **state)
{
    int fd = -1;
    struct msghdr m = { 0 };
    assert_int_equal(ancillary_take(&m, &fd, 1), 0);
    assert_int_equal(fd, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_too_many_is_closed),
        cmocka_unit_test(none_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
