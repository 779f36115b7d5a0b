"""Functions that cells may use: texts, files, programs, buffers, volumes and workspaces."""
