"""Rich results beside those of ipykernel for the same cells (rich_cells.py): matplotlib, seaborn,
pandas, polars, PIL, sympy, altair, plotly, IPython's display objects, and values with methods of
their own. Chart data is compared with that of E2B's own library.

Droste adds the types in ADDED; everything else must be there, and equal, byte by byte.
"""
import json
import os
import re
import subprocess

import droste
import pytest
from rich_cells import CELLS, CHARTS_OF_E2B

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PYTHON = os.path.join(ROOT, "build", "rich", "bin", "python")
ADDED = ("e2b/data", "e2b/chart")

pytestmark = pytest.mark.skipif(not os.access(PYTHON, os.X_OK),
                                reason="build/rich is not there (scripts/setup rich)")

PRETTY = "IPython prints it in a form of its own; Droste's text is its repr()"
TERMINAL = "pandas shows the columns that fit into a terminal, and asks IPython whether it is one"

# What differs, by cell and media type, and why.
DIFFERENT = {
    ("pil-rgb", "text/plain"): PRETTY, ("pil-rgba", "text/plain"): PRETTY,
    ("pil-grey", "text/plain"): PRETTY, ("class-itself", "text/plain"): PRETTY,
    ("pandas-wide-frame", "text/plain"): TERMINAL, ("pandas-wide-frame", "text/html"): TERMINAL,
    ("plotly-scatter", "text/html"): "plotly makes HTML for the notebook that it runs in",
    ("plotly-scatter", "text/plain"): "the echo of the value, which ipykernel leaves out",
}


@pytest.fixture
def session():
    with droste.Interpreter(python=PYTHON) as session:
        yield session


def theirs(place):
    run = subprocess.run([PYTHON, os.path.join(HERE, "ipykernel_results.py")], text=True,
                         check=True, input=json.dumps(list(CELLS.values())), stdout=subprocess.PIPE,
                         cwd=place)
    return dict(zip(CELLS, json.loads(run.stdout)))


def comparable(media, data):
    """Removes what differs from run to run: addresses, random ids, and how text is wrapped."""
    if isinstance(data, bytes):
        import base64
        return base64.b64encode(data).decode()
    if not isinstance(data, str):
        return data
    data = re.sub(r"(?: object)? at 0x[0-9a-f]+", " at 0x", data)
    data = re.sub(r"altair-viz-[0-9a-f]{32}", "altair-viz", data)
    return "".join(data.split()) if media == "text/plain" else data.strip()


def shape(name, bundle):
    return {media: comparable(media, data) for media, data in bundle.items()
            if media not in ADDED and (name, media) not in DIFFERENT}


def test_results_equal_ipykernels(session, tmp_path):
    """One test, because one kernel serves all cells."""
    assert len(CELLS) >= 60
    expected, wrong = theirs(tmp_path), []
    for name, code in CELLS.items():
        found = [shape(name, one.bundle) for one in session.execute(code).results]
        wanted = [shape(name, bundle) for bundle in expected[name]]
        if list(filter(None, found)) != list(filter(None, wanted)):
            wrong.append((name, found, wanted))
    assert not wrong


def test_charts_equal_those_of_e2bs_library(session):
    for name in CHARTS_OF_E2B:
        code = CELLS[name].replace("plt.show()", "") + """
from e2b_charts import chart_figure_to_dict
import json
SUBMIT(theirs=json.loads(json.dumps(chart_figure_to_dict(plt.gcf()))))"""
        result = session.execute(code).raise_for_status()
        assert (name, result.results[-1].chart) == (name, result.theirs)


def test_a_box_plot_has_its_statistics(session):
    """E2B's library fails on some."""
    chart = session.execute(CELLS["box"]).results[0].chart
    assert chart["type"] == "box_and_whisker" and chart["elements"] == [
        {"label": "a", "min": 1.0, "first_quartile": 1.75, "median": 2.5, "third_quartile": 4.5,
         "max": 4.5, "outliers": [9.0]},
        {"label": "b", "min": 2.0, "first_quartile": 2.5, "median": 3.0, "third_quartile": 3.5,
         "max": 4.0, "outliers": []}]


def test_frames_have_their_data(session):
    for library in ("pandas", "polars"):
        code = ("import %s, datetime as d\n"
                "%s.DataFrame({'a': [1, 2], 't': [d.date(2024, 1, 1), None]})")
        (result,) = session.execute(code % (library, library)).results
        assert result.data == {"a": [1, 2], "t": ["2024-01-01", None]}


def test_plotting_complains_about_nothing():
    """Not even in the first cell, which looks for the machine's fonts. Where that takes more than
    five seconds, matplotlib says so, in ipykernel as well."""
    with droste.Interpreter(python=PYTHON) as session:
        result = session.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()")
        said = re.sub("Matplotlib is building the font cache.*\n", "", result.stderr)
        assert (said, len(result.results)) == ("", 1)


def test_a_selected_backend_shows_nothing(session):
    """A program that selects a backend of its own shows its figures itself; the twin is above."""
    code = "import matplotlib\nmatplotlib.use('Agg')\n" + CELLS["lines-open-figure"]
    assert session.execute(code).results == []


def test_figures_cost_nothing_where_no_cell_uses_them(session):
    """Neither matplotlib nor a module of Droste's own is loaded before a cell imports it."""
    result = session.execute("import sys\nSUBMIT(found=[n for n in sys.modules if 'matplotlib' in n"
                             " or n == 'droste_figures'])")
    assert result.found == []
