# attack: reads what tells of the kernel's addresses and of the host: kcore, kmsg, keys, other
#     tasks, the kernel's command line, locks of files that the guest does not see
# rows: 44
# expect: DENY(ENOENT|EACCES|EPERM|EIO|zeros|empty)
# isolation: full light landlock
# unconfined: unsafe


def kallsyms():
    try:
        with open("/proc/kallsyms") as f:
            return "zeros" if all(line.split()[0].strip("0") == "" for line in f) else "success"
    except OSError as e:
        return errno.errorcode[e.errno]


def contents(path):
    try:
        return "empty" if not read(path).strip() else "success"
    except OSError as e:
        return errno.errorcode[e.errno]


def attack():
    paths = ["/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/proc/1/mem",
             "/proc/sched_debug", "/proc/timer_list", "/proc/vmallocinfo", "/proc/pagetypeinfo",
             "/proc/slabinfo", "/proc/iomem_", "/proc/self/pagemap_", "/sys/kernel/notes",
             "/sys/kernel/debug/sched/debug", "/sys/kernel/btf/vmlinux", "/boot/vmlinuz",
             "/proc/1/environ", "/proc/1/maps", "/proc/%d/environ" % HOST["pid"]]
    saw = {path: seen(read, path) for path in paths}
    saw["/proc/kallsyms"] = kallsyms()
    saw.update((path, contents(path)) for path in ("/proc/keys", "/proc/cmdline", "/proc/locks"))
    saw["syslog"] = raw(103, 3, ctypes.create_string_buffer(4096), 4096)
    return saw


def twin():
    return seen(read, "/proc/self/status" if has_own_proc() else "/proc/meminfo")
