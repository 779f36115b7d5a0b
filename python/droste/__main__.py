"""`python -m droste`: the `droste` command, whose sandboxes run this interpreter."""
import sys

import _droste_command

_droste_command.run(_droste_command.program(), sys.argv[1:], sys.executable)
