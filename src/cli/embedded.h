/* cli/embedded.h: files embedded in the program (scripts/embed): the viewer's page (web/) and the
 * completion scripts of shells (src/cli/completion). */
#ifndef DROSTE_CLI_EMBEDDED_H
#define DROSTE_CLI_EMBEDDED_H

#include <stddef.h>

extern const unsigned char embedded_page[];
extern const size_t embedded_page_size;
extern const unsigned char embedded_bash[], embedded_zsh[], embedded_fish[];
extern const size_t embedded_bash_size, embedded_zsh_size, embedded_fish_size;

#endif
