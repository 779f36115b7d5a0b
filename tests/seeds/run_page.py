"""Runs the blocks of a page, one after the other, in one namespace, as its reader would who has
installed droste-compat; says what became of each.

    run_page.py MODE with [{"code": …, "name": …, "look": [expression, …]}, …] as JSON on standard
    input

MODE is `script`: the blocks follow each other as in a script, and one that awaits at its top level
is run by a loop of its own, as `python -m asyncio` would; or `loop`: each is a cell of a notebook,
whose event loop runs all the time. After a block, expressions are evaluated in its namespace, where
it ran. Prints {"results": [{"out", "error", "looks"}, …], "warnings": […], "droste": path of the
package} as JSON.
"""
import ast
import asyncio
import contextlib
import importlib.util
import inspect
import io
import json
import os
import site
import sys
import traceback
import warnings

#: droste-compat, as pip installs it (a .pth file and a module), where pip has not
COMPAT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                      "python", "compat")
#: what a page takes for granted: page 003 is a part of a longer manual, and imports nothing
GIVEN = {"003": "from rlm import RLM"}


class Page:
    def __init__(self, page):
        if importlib.util.find_spec("_droste_compat") is None:
            site.addsitedir(COMPAT)
        self.names = {"__name__": "__main__"}
        exec(GIVEN.get(page, ""), self.names)

    def compile(self, block):
        return compile(block["code"], "<%s>" % block["name"], "exec",
                       ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    @contextlib.contextmanager
    def watch(self, block, found):
        """What a block prints and raises; then what its reader looks at."""
        out, error = io.StringIO(), None
        with contextlib.redirect_stdout(out):
            try:
                yield
            except Exception:
                error = traceback.format_exc()
        looks = []
        for expression in block.get("look", ()):
            try:
                looks.append(repr(eval(expression, self.names)))
            except Exception as e:
                looks.append("%s: %s" % (type(e).__name__, e))
        found.append({"out": out.getvalue(), "error": error, "looks": looks})

    def script(self, blocks):
        found = []
        for block in blocks:
            with self.watch(block, found):
                compiled = self.compile(block)
                if compiled.co_flags & inspect.CO_COROUTINE:
                    asyncio.run(eval(compiled, self.names))
                else:
                    exec(compiled, self.names)
        return found

    async def notebook(self, blocks):
        found = []
        for block in blocks:
            with self.watch(block, found):
                value = eval(self.compile(block), self.names)
                if inspect.iscoroutine(value):
                    await value
            await asyncio.sleep(0)      # the next cell is another turn of the loop
        return found


def main():
    mode, request = sys.argv[1], json.load(sys.stdin)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        page = Page(request["page"])
        results = page.script(request["blocks"]) if mode == "script" else asyncio.run(
            page.notebook(request["blocks"]))
        page.names.clear()
        import gc
        gc.collect()
    warned = [str(w.message) for w in caught if issubclass(
        w.category, (ResourceWarning, RuntimeWarning)) or "droste" in str(w.filename)]
    json.dump({"results": results, "warnings": warned, "droste": sys.modules["droste"].__file__},
              sys.stdout)


if __name__ == "__main__":
    main()
