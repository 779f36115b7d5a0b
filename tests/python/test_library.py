"""The bindings of the C library."""
import glob
import os
import re

import droste
from droste import _library


def test_every_function_is_called_with_its_types():
    """Each of the two handles has the types of the functions in its own table only. Through the
    other handle, pointers would be cut to 32 bits, which works until one is larger."""
    tables = {"lib": _library._WAITING, "quick": _library._QUICK}
    wrong = []
    for path in sorted(glob.glob(os.path.join(os.path.dirname(droste.__file__), "**", "*.py"),
                                 recursive=True)):
        with open(path, encoding="utf-8") as file:
            found = re.findall(r"\b(lib|quick)\.(droste_\w+)", file.read())
        wrong += ["%s: %s.%s" % (os.path.basename(path), handle, name) for handle, name in found
                  if name not in tables[handle]]
    assert wrong == []
