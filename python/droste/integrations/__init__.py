"""Plug-ins for agent, evaluation and training frameworks (docs/frameworks.md).

Each module needs the package of its framework, which droste does not install; importing it without
that package raises an ImportError that names it.
"""
