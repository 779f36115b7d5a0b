# A Nix recipe: nix-build packaging/nix
# Its syntax is checked; it has not been built, because the machines of this project do not reach
# Nix's packages.
{ pkgs ? import <nixpkgs> { } }:

pkgs.stdenv.mkDerivation {
  pname = "droste";
  version = "0.1.0";
  src = pkgs.lib.cleanSource ../..;

  nativeBuildInputs = with pkgs; [ meson ninja pkg-config python3 makeWrapper ];
  buildInputs = with pkgs; [
    curl
    gnutls
    json_c
    libarchive
    libedit
    libmicrohttpd
    libseccomp
    libuv
    openssl
    pcre2
    sqlite
    zlib
    zstd
  ];

  mesonBuildType = "release";
  mesonFlags = [ "-Dtests=false" "-Dlibdir=lib" ];

  postPatch = "patchShebangs scripts";

  # The guest's interpreter is found in PATH.
  postInstall = "wrapProgram $out/bin/droste --suffix PATH : ${pkgs.python3}/bin";

  meta = {
    description = "A runtime for Recursive Language Models";
    license = pkgs.lib.licenses.asl20;
    platforms = pkgs.lib.platforms.linux;
    mainProgram = "droste";
  };
}
