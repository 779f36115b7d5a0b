"""The site of the documentation: `make docs`, with Sphinx and MyST from Debian, without a network.

The sources are the Markdown files where they are, so that they read the same in a checkout, on a
forge and on the site. Warnings are errors: a link to a page, a file or a heading that does not
exist fails the build.
"""
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as build:
    release = version = re.search(r"version: '([^']+)'", build.read())[1]

project = "Droste"
author = "The Droste authors"
copyright = "The Droste authors, Apache-2.0"

extensions = ["myst_parser"]
include_patterns = ["SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "README.md", "docs/**.md"]
root_doc = "docs/index"
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]     # a page may have an h3 first, as an FAQ's questions

html_theme = "furo"
html_title = "Droste %s" % release
html_extra_path = ["site"]              # index.html, which leads to the first page
html_show_sphinx = False
html_copy_source = False
highlight_language = "text"
