/* jail/landlock.h: the rights that Landlock (landlock(7)) controls, by ABI version.
 *
 * The numbers are defined here because the distribution's kernel header may be older than the
 * kernel. Requesting a right that the kernel does not know is an error.
 */
#pragma once

#include <stdint.h>

/* Rights to files, one bit each, in the kernel's order. */
enum landlock_right {
    LANDLOCK_EXECUTE = 1 << 0,
    LANDLOCK_WRITE_FILE = 1 << 1,
    LANDLOCK_READ_FILE = 1 << 2,
    LANDLOCK_READ_DIR = 1 << 3,
    LANDLOCK_REMOVE_DIR = 1 << 4,
    LANDLOCK_REMOVE_FILE = 1 << 5,
    LANDLOCK_MAKE_CHAR = 1 << 6,
    LANDLOCK_MAKE_DIR = 1 << 7,
    LANDLOCK_MAKE_REG = 1 << 8,
    LANDLOCK_MAKE_SOCK = 1 << 9,
    LANDLOCK_MAKE_FIFO = 1 << 10,
    LANDLOCK_MAKE_BLOCK = 1 << 11,
    LANDLOCK_MAKE_SYM = 1 << 12,
    LANDLOCK_REFER = 1 << 13,     /* ABI 2 */
    LANDLOCK_TRUNCATE = 1 << 14,  /* ABI 3 */
    LANDLOCK_IOCTL_DEV = 1 << 15, /* ABI 5 */

    LANDLOCK_READ = LANDLOCK_EXECUTE | LANDLOCK_READ_FILE | LANDLOCK_READ_DIR,
    LANDLOCK_DEVICES = LANDLOCK_WRITE_FILE | LANDLOCK_TRUNCATE | LANDLOCK_IOCTL_DEV,
    LANDLOCK_ALL = (1 << 16) - 1,
    /* For the guest's own directories: everything except devices. */
    LANDLOCK_OWN = LANDLOCK_ALL & ~(LANDLOCK_MAKE_CHAR | LANDLOCK_MAKE_BLOCK | LANDLOCK_IOCTL_DEV),
    /* Rights that apply to files other than directories. */
    LANDLOCK_OF_FILES = LANDLOCK_EXECUTE | LANDLOCK_READ_FILE | LANDLOCK_DEVICES,
};

enum {
    LANDLOCK_NET_TCP = 3, /* bind and connect, ABI 4 */
    LANDLOCK_SCOPE_SIGNALS = 2,
    LANDLOCK_SCOPE_ALL = 3, /* abstract UNIX sockets and signals, ABI 6 */
    LANDLOCK_SCOPE_ABI = 6, /* Linux 6.12 */
};

/* The kernel's struct landlock_ruleset_attr. */
struct landlock_ruleset {
    uint64_t handled_fs, handled_net, scoped;
};

/* The ABI version of this kernel; 0: no Landlock, with the reason in errno. */
int landlock_abi(void);
/* Everything that a kernel with this ABI can control. */
struct landlock_ruleset landlock_everything(int abi);
