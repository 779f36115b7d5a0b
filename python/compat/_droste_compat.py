"""droste-compat: `import rlm` and `import fleet_rlm` without the packages of these names.

droste_compat.pth imports this module when Python starts, so it imports little itself. A finder at
the end of sys.meta_path offers the modules that droste.compat lends. All other finders come first:
a real package always wins, wherever and whenever it is installed. pip cannot refuse to install a
wheel beside another; a wheel with a package `rlm` would overwrite a real one silently, and so this
one has none.
"""
import sys

#: the top-level names, and the distributions that have packages of these names
NAMES = {"fleet_rlm": ("fleet-rlm",), "rlm": ("rlms", "rlm", "agentic-codebase-navigator")}
COMMANDS = ("run-basic", "daytona-smoke")


def installed(name):
    """The real distribution of a top-level name, as 'fleet-rlm 0.4.2'; None without one."""
    from importlib import metadata
    for distribution in NAMES[name]:
        try:
            return "%s %s" % (distribution, metadata.version(distribution))
        except metadata.PackageNotFoundError:
            continue
    return None


class Finder:
    """Lends a name of NAMES where no other finder knows it, and all that its distributions say."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in NAMES:
            return None
        real = installed(name)
        if real:
            raise ImportError(
                "droste-compat does not replace %s, which is installed but has no module %s: "
                "uninstall one of them" % (real, name), name=name)
        from importlib.machinery import ModuleSpec
        return ModuleSpec(name, Finder, is_package=True)

    @staticmethod
    def create_module(spec):
        from droste import compat
        compat.activate(spec.name)
        return sys.modules[spec.name]

    @staticmethod
    def exec_module(module):
        """Nothing is left to do: activate() made the module with its names."""


def fleet_rlm():
    """The command `fleet-rlm`: the real one where that is installed, otherwise Droste's."""
    real = installed("fleet_rlm")
    if real:
        from importlib import metadata
        print("droste-compat: %s is installed, and runs; uninstall it to run this on Droste" % real,
              file=sys.stderr)
        for entry in metadata.distribution(real.split()[0]).entry_points:
            if entry.group == "console_scripts" and entry.name == "fleet-rlm":
                return entry.load()()
        sys.exit("droste-compat: %s has no command fleet-rlm" % real)
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit("fleet-rlm (droste-compat): Droste has the commands %s; try 'fleet-rlm %s --help'"
                 % (" and ".join(COMMANDS), COMMANDS[0]))
    import _droste_command
    _droste_command.run(_droste_command.program(), sys.argv[1:], None)
    return None


if not any(finder is Finder for finder in sys.meta_path):
    sys.meta_path.append(Finder)
