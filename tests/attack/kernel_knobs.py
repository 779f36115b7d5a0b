# attack: writes to what steers the kernel: sysrq, core_pattern, modprobe, uevent_helper,
#     binfmt_misc
# rows: 43
# expect: DENY(ENOENT|EACCES|EPERM|EROFS|EIO|EINVAL)
# isolation: full light landlock
# unconfined: unsafe


def attack():
    knobs = ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
             "/proc/sys/kernel/randomize_va_space", "/proc/sys/kernel/hostname",
             "/proc/sys/kernel/ns_last_pid", "/proc/sys/fs/binfmt_misc/register",
             "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches",
             "/proc/sys/user/max_user_namespaces", "/proc/sys/net/ipv4/ip_forward",
             "/proc/self/oom_score_adj", "/proc/1/oom_score_adj", "/proc/self/uid_map",
             "/proc/self/setgroups", "/proc/self/loginuid", "/proc/irq/default_smp_affinity",
             "/proc/bus/pci/00/00.0", "/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run",
             "/sys/power/state", "/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/cgroup.procs",
             "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda"]
    # A process may make itself more likely to be killed; not less.
    data = {"/proc/self/oom_score_adj": b"-1000", "/proc/1/oom_score_adj": b"-1000",
            "/proc/self/uid_map": b"0 0 4294967295"}
    return {path: seen(write, path, data.get(path, b"1")) for path in knobs}


def twin():
    """It may set what concerns itself alone, such as the slack of its timers."""
    return raw("prctl", 29, 50000, 0, 0, 0)
