/* serve/embedded.h: the files of the console, from web/ (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_console_html[], embedded_console_css[], embedded_console_js[];
extern const size_t embedded_console_html_size, embedded_console_css_size, embedded_console_js_size;
