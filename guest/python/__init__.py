"""The guest: one Python session inside a sandbox, driven by frames from the host.

core/ runs cells: frames and link (the channel), session (what the user's code sees), cell,
variables, calls, futures and tools (asking the host), worker (the main loop), boot (the zygote).
helpers/ has the functions that cells may use. remote/ serves guests behind a stream of bytes:
stream (the link), keeper (one worker and the process that guards it) and supervisor.

A sandbox cannot import from here: scripts/flatten-guest joins the modules into one file, which the
host embeds. They use the standard library only, run on CPython 3.8 and newer, and must not import
`threading` before a clone, because its at-fork hooks cost more than the clone itself.

Nothing here is a security boundary: the user's code can reach all of it. The host checks every
frame, and budgets, limits and deadlines live there.
"""
