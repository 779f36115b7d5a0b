"""Cells whose rich results are compared with those of ipykernel, by name."""

PLOT = "import matplotlib.pyplot as plt, numpy as np\nnp.random.seed(3)\n"
SEABORN = (PLOT + "import seaborn as sns, pandas as pd\n"
           "frame = pd.DataFrame({'x': range(9), 'y': np.arange(9) ** 2,\n"
           "                      'k': list('aabbccabc')})\n")
PLOTLY = "import plotly.graph_objects as go\n"
ALTAIR = ("import altair as alt, pandas as pd\n"
          "source = pd.DataFrame({'a': list('abc'), 'b': [3, 1, 2]})\n")

# matplotlib, each type of chart; all end with plt.show() or leave their figure open.
CHARTS = {
    "line":
        "plt.plot([1, 4, 9], label='squares'); plt.xlabel('time (s)'); plt.title('t'); plt.show()",
    "lines-open-figure": "fig, ax = plt.subplots(); ax.plot([1, 2]); ax.plot([2, 1]); None",
    "dates":
        "import datetime as d\nplt.plot([d.date(2024, 1, n) for n in (1, 2, 3)], [3, 1, 2]); "
        "plt.show()",
    "log-scale": "plt.plot([1, 10, 100]); plt.yscale('log'); plt.show()",
    "scatter": "plt.scatter([1, 2, 3], [3, 1, 2]); plt.show()",
    "scatter-groups":
        "plt.scatter([1], [2], label='a'); plt.scatter([3], [1], label='b'); plt.legend(); "
        "plt.show()",
    "bar": "plt.bar(['a', 'b'], [3, 5]); plt.ylabel('n'); plt.show()",
    "bar-groups":
        "plt.bar([0, 1], [3, 5], .4, label='x'); plt.bar([.4, 1.4], [1, 2], .4, label='y'); "
        "plt.show()",
    "barh": "plt.barh(['a', 'b'], [3, 5]); plt.show()",
    "pie": "plt.pie([1, 2, 3], labels=list('abc')); plt.show()",
    "box":
        "plt.boxplot([[1, 2, 3, 9], [2, 3, 4]], patch_artist=True, tick_labels=['a', 'b']); "
        "plt.show()",
    "box-lines": "plt.boxplot([[1, 2, 3, 9], [2, 3, 4]]); plt.show()",
    "violin": "plt.violinplot([[1, 2, 3, 9], [2, 3, 4]]); plt.show()",
    "histogram": "plt.hist([1, 1, 2, 3, 3, 3]); plt.show()",
    "histogram-2d": "plt.hist2d([1, 1, 2], [2, 3, 3]); plt.show()",
    "hexbin": "plt.hexbin(np.random.rand(50), np.random.rand(50), gridsize=5); plt.show()",
    "step": "plt.step([1, 2, 3], [3, 1, 2]); plt.show()",
    "stairs": "plt.stairs([1, 3, 2]); plt.show()",
    "stem": "plt.stem([3, 1, 2]); plt.show()",
    "errorbar": "plt.errorbar([1, 2], [3, 4], yerr=.5); plt.show()",
    "fill-between": "plt.fill_between([1, 2, 3], [1, 3, 2]); plt.show()",
    "stackplot": "plt.stackplot([1, 2, 3], [1, 3, 2], [2, 1, 1]); plt.show()",
    "image": "plt.imshow(np.eye(3)); plt.colorbar(); plt.show()",
    "matshow": "plt.matshow(np.eye(3)); plt.show()",
    "pcolormesh": "plt.pcolormesh(np.eye(3)); plt.show()",
    "contour": "plt.contour(np.outer([1, 2, 3], [1, 2, 3])); plt.show()",
    "contourf": "plt.contourf(np.outer([1, 2, 3], [1, 2, 3])); plt.show()",
    "quiver": "plt.quiver([1, 2], [1, 2], [1, 0], [0, 1]); plt.show()",
    "streamplot": "y, x = np.mgrid[0:3, 0:3]; plt.streamplot(x, y, x + 1, y + 1); plt.show()",
    "polar": "plt.polar([0, 1, 2], [1, 2, 3]); plt.show()",
    "fill": "plt.fill([0, 1, 1], [0, 0, 1]); plt.show()",
    "lines-and-spans":
        "plt.hlines([1, 2], 0, 3); plt.vlines([1], 0, 2); plt.axhspan(0, 1); plt.axvline(2); "
        "plt.show()",
    "broken-barh": "plt.broken_barh([(0, 1), (2, 1)], (0, 1)); plt.show()",
    "ecdf": "plt.ecdf([1, 2, 2, 3]); plt.show()",
    "loglog": "plt.loglog([1, 10], [1, 100]); plt.show()",
    "annotated":
        "plt.plot([1, 2]); plt.annotate('here', (0, 1), (.5, 1.5), "
        "arrowprops={'arrowstyle': '->'}); plt.text(0, 2, '$x^2$'); plt.show()",
    "spy": "plt.spy(np.eye(3)); plt.show()",
    "specgram": "plt.specgram(np.sin(np.arange(600)), NFFT=64, noverlap=32); plt.show()",
    "spectrum": "plt.psd(np.sin(np.arange(600)), NFFT=64); plt.show()",
    "correlation": "plt.xcorr(np.arange(9.), np.arange(9.) ** 2, maxlags=4); plt.show()",
    "pcolor": "plt.pcolor(np.eye(3)); plt.show()",
    "barbs": "plt.barbs([1, 2], [1, 2], [10, 20], [5, 60]); plt.show()",
    "triplot": "plt.triplot([0, 1, 0, 1], [0, 0, 1, 1]); plt.show()",
    "tripcolor": "plt.tripcolor([0, 1, 0, 1], [0, 0, 1, 1], [1, 2, 3, 4]); plt.show()",
    "tricontour": "plt.tricontourf([0, 1, 0, 1], [0, 0, 1, 1], [1, 2, 3, 4]); plt.show()",
    "surface":
        "x, y = np.mgrid[0:4, 0:4]\nplt.figure().add_subplot(projection='3d')"
        ".plot_surface(x, y, x * y); plt.show()",
    "bars-in-three-dimensions":
        "plt.figure().add_subplot(projection='3d').bar3d([0, 1], [0, 1], 0, 1, 1, [1, 2]); "
        "plt.show()",
    "scatter-in-three-dimensions":
        "plt.figure().add_subplot(projection='3d').scatter([0, 1], [0, 1], [1, 2]); plt.show()",
    "mosaic":
        "fig, axes = plt.subplot_mosaic('AB;CC'); axes['A'].plot([1, 2]); axes['C'].hist([1, 2]); "
        "plt.show()",
    "two-scales": "plt.plot([1, 2]); plt.twinx().plot([9, 3], 'r'); plt.show()",
    "eventplot": "plt.eventplot([[1, 2], [2, 3]]); plt.show()",
    "three-dimensions":
        "plt.figure().add_subplot(projection='3d').plot([1, 2], [1, 2], [1, 2]); plt.show()",
    "table": "plt.table([['a', 'b']]); plt.show()",
    "subplots":
        "fig, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.bar(['x'], [1]); "
        "fig.suptitle('s'); plt.show()",
    "two-figures": "plt.plot([1, 2]); plt.figure(); plt.plot([2, 1]); plt.show()",
    "figure-as-value": "fig = plt.figure(); fig.gca().plot([1, 2]); plt.close(fig); fig",
    "figure-and-value": "plt.plot([1, 2])",
    "empty-figure": "plt.figure(); plt.show()",
    "transparent": "plt.figure(facecolor='none'); plt.plot([1, 2]); plt.show()",
    "no-interaction": "plt.ioff(); plt.plot([1, 2]); plt.close('all'); plt.ion(); None",
    "failing-after-plot": "plt.plot([1, 2]); 1 / 0",
}

CELLS = {name: PLOT + code for name, code in CHARTS.items()}
CELLS.update({
    # libraries on top of matplotlib
    "seaborn-line": SEABORN + "sns.lineplot(frame, x='x', y='y'); plt.show()",
    "seaborn-bar": SEABORN + "sns.barplot(frame, x='k', y='y', errorbar=None); plt.show()",
    "seaborn-box": SEABORN + "sns.boxplot(frame, x='k', y='y'); plt.show()",
    "seaborn-heatmap": SEABORN + "sns.heatmap(np.eye(3)); plt.show()",
    "seaborn-grid": SEABORN + "sns.relplot(frame, x='x', y='y', col='k'); plt.show()",
    "pandas-plot": SEABORN + "frame.plot(x='x', y='y'); plt.show()",
    # tables
    "pandas-frame": "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', None]})",
    "pandas-wide-frame":
        "import pandas as pd\npd.DataFrame({str(i): range(100) for i in range(30)})",
    "pandas-series": "import pandas as pd\npd.Series([1, 2, 3], name='s')",
    "pandas-index": "import pandas as pd\npd.MultiIndex.from_product([[1, 2], ['a']])",
    "pandas-display": "import pandas as pd\nfor n in (1, 2): display(pd.DataFrame({'n': [n]}))",
    "pandas-styler":
        "import pandas as pd\npd.DataFrame({'a': [1]}).style.set_uuid('u').highlight_max()",
    "polars-frame": "import polars as pl\npl.DataFrame({'a': [1, 2], 'b': ['x', None]})",
    "polars-series": "import polars as pl\npl.Series('a', [1, 2])",
    "numpy-array": "import numpy as np\nnp.arange(6).reshape(2, 3)",
    # images and formulas
    "pil-rgb": "from PIL import Image\nImage.new('RGB', (4, 3), 'red')",
    "pil-rgba": "from PIL import Image\nImage.new('RGBA', (4, 3), (1, 2, 3, 4))",
    "pil-grey": "from PIL import Image\nImage.new('L', (4, 3), 9)",
    "sympy-expression": "import sympy\nx = sympy.symbols('x')\nsympy.Integral(x ** 2, x)",
    "sympy-matrix": "import sympy\nsympy.Matrix([[1, 2], [3, 4]])",
    "sympy-equation": "import sympy\ny = sympy.symbols('y')\nsympy.Eq(y ** 2, 4)",
    # charts as data
    "altair-bar": ALTAIR + "alt.Chart(source).mark_bar().encode(x='a', y='b')",
    "altair-layers":
        ALTAIR + "c = alt.Chart(source).encode(x='a', y='b')\nc.mark_line() + c.mark_point()",
    "plotly-scatter": PLOTLY + "go.Figure(go.Scatter(x=[1, 2], y=[3, 4]))",
    "plotly-show": PLOTLY + "go.Figure(go.Bar(x=['a'], y=[3])).show()",
    # IPython's objects
    "ipython-html": "from IPython.display import HTML\nHTML('<b>x</b>')",
    "ipython-markdown": "from IPython.display import Markdown, display\ndisplay(Markdown('**x**'))",
    "ipython-latex": "from IPython.display import Latex\nLatex('$x$')",
    "ipython-math": "from IPython.display import Math\nMath('x^2')",
    "ipython-svg":
        "from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')",
    "ipython-json": "from IPython.display import JSON\nJSON({'a': [1, {'b': None}]})",
    "ipython-javascript": "from IPython.display import Javascript\nJavascript('1')",
    "ipython-image":
        "from IPython.display import Image\nImage(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(30), width=5)",
    "ipython-audio": "from IPython.display import Audio\nAudio([0, 1] * 20, rate=8000)",
    "ipython-frame": "from IPython.display import IFrame\nIFrame('http://localhost', 10, 10)",
    "ipython-code": "from IPython.display import Code\nCode('x = 1', language='python')",
    "ipython-raw":
        "from IPython.display import display\n"
        "display({'text/plain': 'p', 'text/html': '<p>'}, raw=True)",
    "ipython-publish":
        "from IPython.display import publish_display_data as p\np({'text/plain': 'a', 'a/b': 'c'})",
    "ipython-update":
        "from IPython.display import display\nh = display('a', display_id='i')\nh.update('b')",
    "ipython-exclude":
        "from IPython.display import display, HTML\ndisplay(HTML('x'), exclude=['text/html'])",
    # values of the language
    "int": "6 * 7",
    "text": "'a' + 'b'",
    "none": "None",
    "several-displays": "display(1, 'two', [3])",
    "own-html": "class A:\n    def _repr_html_(self): return '<i>a</i>'\nA()",
    "own-bundle": "class B:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
                  "        return {'text/plain': 'b', 'application/x-b': 'data'}\nB()",
    "own-display": "class C:\n    def _ipython_display_(self): display('c')\ndisplay(C())",
    "class-itself": "class D:\n    def _repr_html_(self): return 'no'\nD",
})

# Those of which E2B's library makes chart data; it fails on boxes without a whisker.
CHARTS_OF_E2B = ("line", "dates", "log-scale", "scatter", "scatter-groups", "bar", "bar-groups",
                 "barh", "pie", "subplots", "histogram", "image", "stem")
