"""The package's own structure: modules without a cycle, no name that nothing uses, and a top level
of Droste's own names."""
import ast
import functools
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "python", "droste")


@functools.cache
def modules():
    """{name: syntax tree} of the package's modules."""
    found = {}
    for directory, _, files in os.walk(PACKAGE):
        for file in files:
            if file.endswith(".py"):
                path = os.path.join(directory, file)
                name = os.path.relpath(path, os.path.dirname(PACKAGE))[:-3].replace(os.sep, ".")
                with open(path) as text:
                    found[re.sub(r"\.__init__$", "", name)] = ast.parse(text.read(), path)
    return found


def imported(name, tree, ours):
    """The modules of the package that one names in its imports, in functions as well. A package is
    not one of its modules' needs."""
    package = name if name in ("droste", "droste.compat") else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in ours)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[:len(parts) - node.level + 1] if node.level else []
            source = ".".join(base + ([node.module] if node.module else []))
            for each in node.names:
                whole = "%s.%s" % (source, each.name)
                if whole in ours or source in ours:
                    yield whole if whole in ours else source


def cycle(needs):
    """The names of one cycle, or None."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name):]
        if name in done:
            return None
        path.append(name)
        found = next(filter(None, map(visit, sorted(needs[name]))), None)
        path.pop()
        done.add(name)
        return found

    return next(filter(None, map(visit, sorted(needs))), None)


def test_imports_form_no_cycle():
    """Of no module, by imports within functions either: each can be read with what is below it
    alone."""
    ours = modules()
    needs = {name: set(imported(name, tree, ours)) for name, tree in ours.items()}
    # they are seen at all
    assert "droste._library" in needs["droste.errors"] and "droste.rlm" in needs[
        "droste.compat.navigator"]
    assert cycle(needs) is None


def test_a_cycle_is_found():
    """The check above sees a direct one, and one over a third module; two ways to one module are
    none."""
    assert cycle({"a": {"b"}, "b": {"a"}}) == ["a", "b"]
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) is None


def test_droste_does_not_need_the_classes_of_other_systems():
    """`import droste` loads the translations of arguments, and none of the peers' interpreters,
    adapters and configurations."""
    done = subprocess.run([sys.executable, "-c",
                           "import sys, droste\nprint(sorted(n for n in sys.modules if "
                           "n.startswith('droste.compat.')))"],
                          env={**os.environ, "PYTHONPATH": os.path.dirname(PACKAGE)},
                          capture_output=True, text=True, timeout=60)
    loaded = ast.literal_eval(done.stdout)
    assert "droste.compat.arguments" in loaded
    assert not {"droste.compat." + name for name in ("providers", "config", "navigator", "adapters",
                                                     "repl", "modules")} & set(loaded)


# ---- names that nothing uses

def used_names(tree):
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    quoted = (node.value for node in ast.walk(tree)
              if isinstance(node, ast.Constant) and isinstance(node.value, str))
    # annotations, __all__
    return names | {word for text in quoted if len(text) < 200 for word in re.findall(r"\w+", text)}


def unused_imports(tree):
    """The names that a module imports and has no use for."""
    used = used_names(tree)
    for node in ast.walk(tree):
        if (isinstance(node, (ast.Import, ast.ImportFrom))
            and getattr(node, "module", "") != "__future__"):
            for each in node.names:
                name = (each.asname or each.name).partition(".")[0]
                if name not in used:
                    yield name


def unused_variables(tree):
    """Local variables that are assigned alone (not unpacked), and never read."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes = list(ast.walk(function))
            read = {n.id for n in nodes if isinstance(n, ast.Name)
                    and not isinstance(n.ctx, ast.Store)}
            outer = {name for n in nodes if isinstance(n, (ast.Global, ast.Nonlocal))
                     for name in n.names}
            for node in nodes:
                if isinstance(node, ast.Assign):
                    yield from (t.id for t in node.targets
                                if isinstance(t, ast.Name) and t.id not in read | outer)


@pytest.mark.parametrize("name", sorted(modules()))
def test_every_name_is_used(name):
    """Imports and local variables."""
    tree = modules()[name]
    assert (list(unused_imports(tree)), list(unused_variables(tree))) == ([], [])


def test_unused_names_are_found():
    """The check above sees an import and a variable without use, and no others."""
    tree = ast.parse(
        "import a, b\nfrom c import d as e\nx: 'e' = b\ndef f():\n    unused = 1\n    used = 2\n   "
        " return used\n")
    assert (list(unused_imports(tree)), list(unused_variables(tree))) == (["a"], ["unused"])


def test_http_is_loaded_for_servers_alone():
    """It takes as long to import as the rest."""
    code = ("import sys, %s\n"
            "print('http.client' in sys.modules)")
    for names, expected in (("droste, droste.volumes, droste.runs", "False"),
                            ("droste, droste._remote.client", "True")):
        done = subprocess.run([sys.executable, "-c", code % names], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")})
        assert done.stdout.strip() == expected, done.stderr


# ---- the top level

def test_the_top_level_has_drostes_own_names():
    """None of another system; those that were there say where they are."""
    import droste
    import droste.compat
    assert not {"ModalInterpreter", "RLMConfig"} & set(droste.__all__) and {
        "Interpreter", "RLM", "Result", "Completion"} <= set(droste.__all__)
    with pytest.warns(DeprecationWarning, match="droste.compat.ModalInterpreter"):
        assert droste.ModalInterpreter is droste.compat.ModalInterpreter
    for name in droste.compat.__all__:
        assert getattr(droste.compat, name).__name__ == name
    for package in (droste, droste.compat):
        with pytest.raises(AttributeError, match="no_such_name"):
            package.no_such_name
