# attack: enters the kernel by the doors that the filter was not written for: int 0x80, and the
#     numbers of x32
# rows: 37
# expect: CONTAIN(signal 31)
# isolation: full light landlock
# needs: seccomp
# unconfined: safe


X32 = 0x40000000


def run_code(code):
    """Runs machine code; what it leaves in eax."""
    import mmap
    place = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
    place.write(code)
    at = ctypes.addressof(ctypes.c_char.from_buffer(place))
    return ctypes.CFUNCTYPE(ctypes.c_int)(at)()


def of_32_bits(number):
    """mov eax, number; int 0x80; ret."""
    return run_code(b"\xb8" + struct.pack("<I", number) + b"\xcd\x80\xc3") and "reached"


def attack():
    """getpid, and for 32 bits mount (21) and ptrace (26), which the list refuses by their 64-bit
    numbers."""
    return {**{"int 0x80, %d" % n: in_child(of_32_bits, n) for n in (20, 21, 26)},
            **{"x32, %d" % n: in_child(raw, X32 + n) for n in (39, 101, 165)}}


def twin():
    """The same by the front door: mov eax, 39 (getpid); syscall; ret."""
    pid = run_code(b"\xb8\x27\x00\x00\x00\x0f\x05\xc3")
    return "success" if pid == os.getpid() else "no pid"
