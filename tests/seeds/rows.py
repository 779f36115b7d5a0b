"""Which test shows which row of the pages' tables and lists: `@shows(page, section, name, …)` on a
test claims rows by the beginning of their section and of their name."""
import typing

CLAIMS: typing.List[typing.Tuple[str, str, str, str]] = []      # page, section, name, test


def shows(page, section, *names):
    def claim(test):
        CLAIMS.extend((page, section, name, "%s::%s" % (test.__module__, test.__name__))
                      for name in names)
        return test
    return claim


def fits(row, page, section, name):
    return row.page == page and row.section.startswith(section) and row.name.startswith(name)
