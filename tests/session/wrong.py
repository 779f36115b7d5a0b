"""Environments that are wrong on purpose: local sandboxes, each with one defect, to see that the
suite finds it.

    pytest tests/session --environment wrong:deaf

Each is a real session behind a thin interpreter that spoils one thing, in the host or by what it
does to the guest first. `found_by` names tests that must fail there, with `[…]` for one of several
cases; tests/python/test_conformance.py runs them. A defect that no test finds is a hole in the
suite.
"""
import os
import re
import threading

import droste
from adapters import ADAPTERS, Local
from droste.result import Result

DEFECTS = {}


def defect(name, *found_by):
    """Registers an interpreter with a defect, and the tests that find it."""
    def register(kind):
        kind.found_by = found_by
        DEFECTS[name] = kind
        return kind
    return register


@ADAPTERS.register
class Wrong(Local):
    """The strongest isolation that works, with the defect that is named after the colon."""
    name = "wrong"
    word = "defect"

    def __init__(self, text, settings):
        self.kind = DEFECTS[settings.pop("defect")]
        self.made = 0
        with droste.Interpreter() as interp:
            isolation = interp.isolation
        super().__init__(text, {**settings, "env": "local", "isolation": isolation})
        self.settings.update(self.kind.settings)

    def interpreter(self, **settings):
        self.made += 1
        return self.kind.make({**self.settings, **settings}, self.made)


class Spoilt(droste.Interpreter):
    """An interpreter that is as it should be; defects are below."""
    #: for every session
    settings = {}
    #: runs in the guest before anything else
    first = ""

    @classmethod
    def make(cls, settings, number):
        if cls.first:
            settings["setup_code"] = cls.first + "\n" + settings.get("setup_code", "")
        return cls(**cls.change(settings, number))

    @staticmethod
    def change(settings, number):
        return settings


@defect("deaf", "test_subprocesses_are_heard", "test_c_extensions_are_heard",
        "test_forks_are_heard")
class Deaf(Spoilt):
    """Hears what Python prints, and loses what subprocesses and C code write."""
    first = (
        "import os, sys\nfor _fd, _name in ((1, 'stdout'), (2, 'stderr')):\n    _kept = "
        "os.dup(_fd)\n    os.set_inheritable(_kept, False)\n"
        "    os.dup2(os.open(os.devnull, os.O_WRONLY), _fd)\n    setattr(sys, _name, "
        "os.fdopen(_kept, 'w', buffering=1))\n"
        "    os.register_at_fork(after_in_child=lambda fd=_kept: os.dup2(1, fd))\ndel os, sys, "
        "_fd, _name, _kept")


@defect("one stream", "test_the_two_streams_stay_apart", "test_each_stream_has_a_cap_of_its_own")
class OneStream(Spoilt):
    """Sends both streams through one pipe."""
    first = "import os\nos.dup2(1, 2)\ndel os"


@defect("forgets after an exception", "test_what_was_bound_before_an_error_stays")
class Forgetful(Spoilt):
    """Takes a cell that raised back."""

    def execute(self, code, *more, **options):
        before = super().execute("sorted(globals())").echo
        result = super().execute(code, *more, **options)
        if result.status == "error":
            super().execute("for _n in [n for n in globals() if n not in %s]: del globals()[_n]"
                            % before)
        return result


@defect("timeouts are ok", "test_the_soft_deadline_keeps_the_state[a sleep]",
        "test_no_code_escapes_the_kill[an ignored signal]")
class NothingHappened(Spoilt):
    """Reports cells that ran into their deadline as ok."""

    class _result_type(Result):
        @property
        def status(self):
            return "ok" if Result.status.fget(self) == "timeout" else Result.status.fget(self)


@defect("deadlines lose the state", "test_the_soft_deadline_keeps_the_state[a loop]")
class Hasty(Spoilt):
    """Opens another sandbox at the soft deadline, as those do that can only kill."""

    def execute(self, code, *more, **options):
        result = super().execute(code, *more, **options)
        if result.status == "timeout" and result.alive:
            self._leave()
            self.start()
        return result


@defect("fields without names", "test_a_field_may_have_any_name[items]",
        "test_fields_are_attributes_items_and_output")
class Nameless(Spoilt):
    """Keeps the values that were submitted, and drops their names."""

    class _result_type(Result):
        @property
        def fields(self):
            fields = Result.fields.fget(self)
            return fields and {"output": list(fields.values())[0] if len(fields) == 1
                               else list(fields.values())}


@defect("answers in order of arrival", "test_answers_go_to_who_asked[threads]",
        "test_answers_go_to_who_asked[asyncio]", "test_answers_go_to_who_asked[a batch]")
class Exchanged(Spoilt):
    """The first answer goes to whoever asked first, and so on."""

    @staticmethod
    def change(settings, number):
        model = settings.get("model")
        if not callable(model):
            return settings
        lock, asked, answers = threading.Condition(), [], []

        def exchange(messages):
            with lock:
                asked.append(None)
                place = len(asked) - 1
            answer = model(messages)
            with lock:
                answers.append(answer)
                lock.notify_all()
                lock.wait_for(lambda: len(answers) > place, 30)
                return answers[place]
        return {**settings, "model": exchange}


@defect("two namespaces", "test_functions_call_themselves",
        "test_comprehensions_and_class_bodies_see_the_namespace",
        "test_the_value_of_a_last_expression_is_returned")
class TwoNamespaces(Spoilt):
    """Runs cells by exec with a dictionary of locals that is merged afterwards."""

    def execute(self, code, *more, **options):
        return super().execute(
            "_locals = {}\ntry: exec(%r, globals(), _locals)\nfinally: globals().update(_locals)"
            % code, *more, **options)


@defect("no module", "test_objects_of_own_classes_can_be_pickled",
        "test_the_namespace_is_the_module_main")
class NoModule(Spoilt):
    """The namespace is a dictionary, and no module has it."""
    first = (
        "import sys, types\nsys.modules['__main__'] = types.ModuleType('__main__')\ndel sys, types")


@defect("lines from elsewhere", "test_an_error_has_the_cells_own_line_numbers",
        "test_a_syntax_error_has_the_cells_line")
class Shifted(Spoilt):
    """Wraps cells in code of its own, so that lines are others."""

    def execute(self, code, *more, **options):
        return super().execute("pass\n" + code, *more, **options)


@defect("rises from the dead", "test_a_cell_ends_as_the_table_says[os_exit3]",
        "test_a_cell_ends_as_the_table_says[it violates the protocol]",
        "test_a_cell_ends_as_the_table_says[it is killed from outside]")
class Resurrected(Spoilt):
    """Puts another sandbox in the place of one that died, and says nothing."""

    def execute(self, code, *more, **options):
        try:
            return super().execute(code, *more, **options)
        except (droste.LostError, droste.TimedOut, droste.ProtocolError, droste.Cancelled):
            self._leave()
            self.start()
            return super().execute(code, *more, **options)


@defect("cuts in silence", "test_long_output_keeps_head_and_tail_and_says_how_much_is_left_out")
class Silent(Spoilt):
    """Leaves the middle of long output out and does not say so."""

    class _result_type(Result):
        @property
        def stdout(self):
            return re.sub(r"\n\.\.\. \[\d+ bytes left out\] \.\.\.\n", "", Result.stdout.fget(self))


@defect("changes texts", "test_awkward_texts_are_as_they_were_both_ways[CRLF]")
class Universal(Spoilt):
    """Reads what is set as a text file with universal line ends."""

    def set(self, name, value):
        return super().set(name, value.replace("\r\n", "\n").replace("\r", "\n")
                           if isinstance(value, str) else value)


@defect("shares the host's variables",
        "test_the_hosts_environment_variables_do_not_reach_the_guest")
class Sharing(Spoilt):
    """The guest inherits the host's environment."""

    @classmethod
    def make(cls, settings, number):
        cls.first = "import os\nos.environ.update(%r)\ndel os" % dict(os.environ)
        return super().make(settings, number)


@defect("no wall", "test_there_is_no_network", "test_the_hosts_files_do_not_reach_the_guest")
class NoWall(Spoilt):
    """Has no wall, and does not declare that."""
    settings = {"isolation": "process"}


@defect("drops limits", "test_what_is_over_a_limit_is_refused_to_the_code[memory]",
        "test_what_is_over_a_limit_is_refused_to_the_code[processes]",
        "test_the_limits_in_force_are_in_the_result_and_no_others")
class Boundless(Spoilt):
    """Takes limits and forgets them."""

    @staticmethod
    def change(settings, number):
        return {name: value for name, value in settings.items()
                if name not in ("memory", "processes", "open_files", "file_size", "tmp_size",
                                "cpu_time")}


@defect("forgets volumes", "test_what_is_written_is_there_in_the_next_session")
class Washed(Spoilt):
    """Each session has a new volume of the name."""

    @staticmethod
    def change(settings, number):
        return ({**settings, "volume_name": "%s-%d" % (settings["volume_name"], number)}
                if "volume_name" in settings else settings)


@defect("leaks", "test_sessions_leave_nothing_behind")
class Leaking(Spoilt):
    """Each session leaves a descriptor behind."""

    def start(self):
        os.dup(2)
        return super().start()


@defect("interrupts the next cell", "test_a_cell_within_its_deadline_is_not_disturbed",
        "test_an_interrupt_while_nothing_runs_has_no_effect")
class Late(Spoilt):
    """Keeps an interrupt that came too late for its cell, and gives it to the next one."""
    kept = False

    def interrupt(self):
        self.kept = not self._under_way
        super().interrupt()

    def execute(self, code, *more, **options):
        if self.kept:
            self.kept, code = False, "raise KeyboardInterrupt"
        result = super().execute(code, *more, **options)
        self.kept = self.kept or result.status == "timeout"
        return result
