# A Homebrew formula for Linux: brew install --HEAD --formula packaging/homebrew/droste.rb
# Its syntax is checked; it has not been run, because the machines of this project have no Homebrew.
class Droste < Formula
  desc "Runtime for Recursive Language Models: sandboxed Python sessions"
  license "Apache-2.0"
  head File.expand_path("../..", __dir__), using: :git

  depends_on "meson" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "curl"
  depends_on "gnutls"
  depends_on "json-c"
  depends_on "libarchive"
  depends_on "libedit"
  depends_on "libmicrohttpd"
  depends_on "libseccomp"
  depends_on "libuv"
  depends_on :linux
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "python@3.13"
  depends_on "sqlite"
  depends_on "zlib"
  depends_on "zstd"

  def install
    system "meson", "setup", "build", "-Dtests=false", *std_meson_args
    system "meson", "compile", "-C", "build", "--verbose"
    system "meson", "install", "-C", "build"
  end

  test do
    assert_equal "42", shell_output("#{bin}/droste exec -c 'print(6 * 7)'").strip
  end
end
