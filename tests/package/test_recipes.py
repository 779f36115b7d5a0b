"""The recipes of other package managers: their syntax, and that they name this version."""
import os
import re
import shutil

import pytest
from installed import DROSTE, ROOT, run

FORMULA = os.path.join(ROOT, "packaging", "homebrew", "droste.rb")
NIX = os.path.join(ROOT, "packaging", "nix", "default.nix")
BROKEN = {"ruby": "class Droste < Formula\n", "nix": "{ pkgs }: pkgs.stdenv.mkDerivation {\n"}


def test_the_formula_is_ruby(tmp_path):
    """As ruby reads it; a formula without an end is refused."""
    if not shutil.which("ruby"):
        pytest.skip("ruby is not installed")
    run("ruby", "-c", FORMULA)
    (tmp_path / "broken.rb").write_text(BROKEN["ruby"])
    run("ruby", "-c", tmp_path / "broken.rb", status=1)


def test_the_recipe_is_nix(tmp_path):
    """As nix-instantiate parses it; a recipe without an end is refused."""
    if not shutil.which("nix-instantiate"):
        pytest.skip("nix-bin is not installed")
    env = {**os.environ, "NIX_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    run("nix-instantiate", "--parse", NIX, env=env)
    (tmp_path / "broken.nix").write_text(BROKEN["nix"])
    run("nix-instantiate", "--parse", tmp_path / "broken.nix", env=env, status=1)


def test_versions_are_one():
    """meson.build, the changelog of Debian and the recipe of Nix."""
    version = run(DROSTE, "--version").split()[1]
    for path in (NIX, os.path.join(ROOT, "debian", "changelog")):
        with open(path) as file:
            text = file.read()
        assert re.search(r'version = "%s"|^droste \(%s\)' % ((re.escape(version),) * 2), text,
                         re.M), path
