/* cli/embedded.h: the completion scripts of shells (src/cli/completion), embedded in the program
 * (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_bash[], embedded_zsh[], embedded_fish[];
extern const size_t embedded_bash_size, embedded_zsh_size, embedded_fish_size;
