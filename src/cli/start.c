/* cli/start.c: the program of a wheel, whose code is in libdroste.so: libcurl and OpenSSL, which
 * library and commands need, are there once.
 */
int droste_main(int argc, char **argv);

int main(int argc, char **argv)
{
    return droste_main(argc, argv);
}
